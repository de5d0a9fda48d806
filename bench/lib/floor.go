package main

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
)

// floor is the least that a sharded table of endpoints can cost: an
// open-addressed array of slots behind each of 256 mutexes, a compare of the 18
// bytes of address and port, a clock that somebody else reads, and a test of
// one time. It makes no entry beyond its size, forgets nobody and counts
// nothing but tokens.
type floor struct {
	now    atomic.Int64
	shards [256]floorShard
}

type floorShard struct {
	mu    sync.Mutex
	slots []floorSlot
	_     [64]byte
}

type floorSlot struct {
	key         [18]byte
	used        bool
	tokens      int64
	last        int64
	lockedUntil int64
}

// newFloor makes room for n endpoints at a load of at most one half.
func newFloor(n int) *floor {
	f := new(floor)
	size := 16
	for size < 2*(n+n/4)/len(f.shards) {
		size *= 2
	}
	for i := range f.shards {
		f.shards[i].slots = make([]floorSlot, size)
	}
	f.now.Store(int64(time.Second))
	return f
}

// allow takes a token of the endpoint, which starts with so many.
func (f *floor) allow(ep netip.AddrPort, capacity int64) bool {
	var key [18]byte
	addr := ep.Addr().As16()
	copy(key[:], addr[:])
	binary.LittleEndian.PutUint16(key[16:], ep.Port())
	hash := xxhash.Sum64(key[:])
	s := &f.shards[hash&255]
	now := f.now.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := s.find(&key, hash>>8)
	if !slot.used {
		*slot = floorSlot{key: key, used: true, tokens: capacity, last: now}
	}
	if now < slot.lockedUntil || slot.tokens == 0 {
		return false
	}
	slot.tokens--
	slot.last = now
	return true
}

func (s *floorShard) find(key *[18]byte, hash uint64) *floorSlot {
	mask := uint64(len(s.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		if slot := &s.slots[i]; !slot.used || bytes.Equal(slot.key[:], key[:]) {
			return slot
		}
	}
}
