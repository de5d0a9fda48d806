package netx

import (
	"net/netip"
	"sync"
)

// connSlots are the places for connections: so many in all and, where perIP is
// not 0, so many for each address.
type connSlots struct {
	max, perIP int

	mu   sync.Mutex // guards what follows
	used int
	byIP map[netip.Addr]int // only addresses that hold a place; nil without perIP
}

func newConnSlots(max, perIP int) *connSlots {
	s := &connSlots{max: max, perIP: perIP}
	if perIP > 0 {
		s.byIP = make(map[netip.Addr]int)
	}
	return s
}

// take says whether there was a place for the address.
func (s *connSlots) take(a netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used >= s.max {
		return false
	}
	if s.byIP != nil {
		a = a.Unmap()
		if s.byIP[a] >= s.perIP {
			return false
		}
		s.byIP[a]++
	}
	s.used++
	return true
}

// free gives back a place that take gave to the address.
func (s *connSlots) free(a netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	if s.byIP == nil {
		return
	}
	a = a.Unmap()
	if s.byIP[a]--; s.byIP[a] == 0 {
		delete(s.byIP, a)
	}
}

// maxSplices bounds how many relays hold a pipe of two descriptors at a time;
// the others copy through a buffer. It stays within fdsPerConnection.
func maxSplices(connections int) int {
	return min(connections/4+1, 64)
}
