package shard

import (
	"sync/atomic"
	"unsafe"

	"github.com/seed-ee4278a0/throttled/policy"
)

// An Ask is one packet of a batch.
type Ask struct {
	Key   Key
	Bytes int64  // payload, at least 0
	Skip  bool   // leave the packet out
	Soft  bool   // towards a lockout neither a denial counts nor what this takes from others
	guess uint32 // 1 + the slot where the entry probably is, 0 = none
	hash  uint64
}

// DecideAll decides on the packets in their order, as Decide does on each, and
// writes the decisions to out, which is as long. It returns how many of them
// have no rule; they are denied and not counted.
//
// Of a large table hardly anything is in the cache: a decision on its own
// waits for its place in the index and then for its entry. Here all of a batch
// are asked for first, so that these waits overlap (BenchmarkEvaluateBatch).
func (t *Table) DecideAll(asks []Ask, at policy.Instant, out []policy.Decision) (unknown int) {
	for i := range asks {
		a := &asks[i]
		a.hash = a.Key.hash(t.seed)
		t.shardOf(a.hash).prefetchIndex(a.hash)
	}
	for i := range asks {
		a := &asks[i]
		a.guess = t.shardOf(a.hash).prefetchEntry(a.hash)
	}
	for i := range asks {
		a := &asks[i]
		if a.Skip {
			continue
		}
		s := t.shardOf(a.hash)
		s.mu.Lock()
		d, ok := t.decide(s, a, at)
		s.mu.Unlock()
		if !ok {
			d.Reason = policy.HardLockout
			unknown++
		}
		out[i] = d
	}
	return unknown
}

// A view tells where the index and the entries of a shard lie to whoever does
// not hold the lock. They may have moved since and what is read there may be
// changing, so nothing more may be done with it than to guess what will be
// needed.
type view struct {
	index   index
	entries []entry
}

// publish is called when the index or the slab has moved.
func (s *shard) publish() {
	s.view.Store(&view{index: s.index, entries: s.entries.slots[:cap(s.entries.slots)]})
}

func (s *shard) prefetchIndex(hash uint64) {
	if v := s.view.Load(); v != nil {
		p := unsafe.Pointer(&v.index.words[v.index.first(hash)])
		prefetch(p, p)
	}
}

// prefetchEntry asks for the first entry whose tag is the right one, which is
// on two cache lines mostly, and returns 1 + its slot, 0 where there is none.
func (s *shard) prefetchEntry(hash uint64) (guess uint32) {
	v := s.view.Load()
	if v == nil {
		return 0
	}
	ix := &v.index
	tag, mask := ix.tag(hash), ix.slotMask()
	i := ix.first(hash)
	for range maxLook {
		word := atomic.LoadUint32(&ix.words[i])
		if word&^mask == tag && word&mask-1 < uint32(len(v.entries)) {
			e := &v.entries[word&mask-1]
			prefetch(unsafe.Pointer(e), unsafe.Pointer(&e.state.Denied))
			return word & mask
		}
		if word == 0 {
			return 0
		}
		i = ix.after(i)
	}
	return 0
}

// guessed is the entry of the packet if the guess was right, else nil.
func (s *shard) guessed(a *Ask) *entry {
	if slot := a.guess - 1; slot < s.entries.len() {
		if e := s.entries.at(slot); e.is(a.Key) {
			return e
		}
	}
	return nil
}

// maxLook is how many words of the index prefetchEntry looks at, a cache line.
const maxLook = 16
