package netx

import (
	"net/netip"
	"sync"
)

// ipSlots are the places that each address has for its connections, served and
// waiting: else one address could fill the queue. Without a cap they are
// endless and nothing is counted.
type ipSlots struct {
	most int // 0 = no cap

	mu   sync.Mutex // guards used
	used map[netip.Addr]int
}

func newIPSlots(most int) *ipSlots {
	return &ipSlots{most: most, used: make(map[netip.Addr]int)}
}

// take says whether there was a place for the address.
func (s *ipSlots) take(a netip.Addr) bool {
	if s.most == 0 {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a = a.Unmap()
	if s.used[a] >= s.most {
		return false
	}
	s.used[a]++
	return true
}

// free gives back a place that take gave to the address.
func (s *ipSlots) free(a netip.Addr) {
	if s.most == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a = a.Unmap()
	if s.used[a]--; s.used[a] == 0 {
		delete(s.used, a)
	}
}
