package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// chunk is the number of decisions that a table is asked for in one call.
const chunk = 64

// keys are distinct endpoints in random order, and the same as strings.
type keys struct {
	endpoints []netip.AddrPort
	names     []string
}

func newKeys(n int) *keys {
	k := &keys{endpoints: make([]netip.AddrPort, 0, n), names: make([]string, 0, n)}
	seen := make(map[uint32]bool, n)
	for len(k.endpoints) < n {
		addr := rand.Uint32()
		if seen[addr] {
			continue
		}
		seen[addr] = true
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], addr)
		k.endpoints = append(k.endpoints, netip.AddrPortFrom(netip.AddrFrom4(b), uint16(1+rand.IntN(65535))))
	}
	k.nameAll()
	return k
}

// nameAll makes new strings: 18 bytes of address and port.
func (k *keys) nameAll() {
	k.names = k.names[:0]
	for _, ep := range k.endpoints {
		addr := ep.Addr().As16()
		k.names = append(k.names, string(binary.BigEndian.AppendUint16(addr[:], ep.Port())))
	}
}

// A subject is a contender's table on a path, ready to be measured.
type subject struct {
	contender
	path path
	keys *keys
	table
}

// subject is nil where the contender has nothing like the path.
func (c contender) subject(k *keys, p path) *subject {
	if c.peer && p.own || c.name == wireguardName && (p.capacity > 1 || len(k.endpoints) > wireguardKeys) {
		return nil
	}
	s := &subject{contender: c, path: p, keys: k}
	if !p.arriving {
		s.table = c.make(k, p)
		s.warm()
	}
	return s
}

// warm visits all keys until they are on the path: the second time at the latest,
// with wireguard's burst the sixth.
func (s *subject) warm() {
	n := len(s.keys.endpoints)
	for range 6 {
		allowed := 0
		for i := 0; i < n; i += chunk {
			allowed += s.decide(i, min(i+chunk, n))
		}
		switch {
		case s.path.full && s.name != floorName, // newcomers share a bucket, or are denied
			s.path.capacity > 1 && allowed == n,
			s.path.capacity == 1 && allowed == 0:
			return
		}
	}
	if s.name == wireguardName {
		return // it has refilled meanwhile
	}
	panic(fmt.Sprintf("lib: %s does not come to the path %q", s.name, s.path.name))
}

func (s *subject) close() {
	if s.end != nil {
		s.end()
	}
}

// measure decides for so long, and returns the time and the allocations of one
// decision. Where the keys have to be new it goes through them once.
func (s *subject) measure(cores int, d time.Duration) (ns, allocs float64) {
	if s.path.arriving {
		s.close()
		s.table = s.contender.make(s.keys, s.path)
		runtime.GC()
	} else if s.name == wireguardName {
		s.warm() // it has forgotten all of them meanwhile
	}
	var before, after runtime.MemStats
	var done atomic.Int64
	var workers sync.WaitGroup
	runtime.ReadMemStats(&before)
	start := time.Now()
	for w := range cores {
		workers.Go(func() { done.Add(s.work(w, cores, start, d)) })
	}
	workers.Wait()
	elapsed := time.Since(start)
	runtime.ReadMemStats(&after)
	n := float64(done.Load())
	each := float64(after.Mallocs-before.Mallocs) / n
	return float64(elapsed) / n, math.Round(each*1000) / 1000 // the workers themselves are a few
}

// work decides on the keys of one of the workers, from a random one on.
func (s *subject) work(worker, workers int, start time.Time, d time.Duration) (n int64) {
	const look = 16 // chunks between two looks at the clock
	all := len(s.keys.endpoints) / chunk
	first, end := worker*all/workers, (worker+1)*all/workers
	at := first
	if !s.path.arriving {
		first, end = 0, all
		at = rand.IntN(all)
	}
	for i := 1; ; i++ {
		s.decide(at*chunk, (at+1)*chunk)
		n += chunk
		if at++; at == end {
			if s.path.arriving {
				return n
			}
			at = first
		}
		if i%look == 0 && !s.path.arriving && time.Since(start) > d {
			return n
		}
	}
}
