package netx

import (
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
)

// selfAddrs are the addresses that the gateway's own listeners of a protocol
// hold. What comes from one of them is forged or goes in a circle, and what goes
// to one comes back.
type selfAddrs struct {
	listen map[netip.AddrPort]bool
	ports  [1 << 16 / 64]uint64                // of listen, a bit each: most datagrams need no more
	local  atomic.Pointer[map[netip.Addr]bool] // what a listener on a wildcard answers from
	doubt  atomic.Bool                         // somebody may have sent from an address that is new since
}

// A selfSet holds the selfAddrs of each protocol. What it holds is not changed,
// but replaced.
type selfSet struct {
	now atomic.Pointer[[TCP + 1]selfAddrs]
}

// of is nil, which has nothing, before the first listener is there.
func (s *selfSet) of(p Protocol) *selfAddrs {
	if now := s.now.Load(); now != nil {
		return &now[p]
	}
	return nil
}

// add must not be called once has is.
func (s *selfAddrs) add(listen netip.AddrPort) {
	if s.listen == nil {
		s.listen = make(map[netip.AddrPort]bool)
		s.readLocal()
	}
	s.listen[listen] = true
	s.ports[listen.Port()/64] |= 1 << (listen.Port() % 64)
}

// has wants an unmapped address.
func (s *selfAddrs) has(src netip.AddrPort) bool {
	if s == nil || s.ports[src.Port()/64]&(1<<(src.Port()%64)) == 0 {
		return false
	}
	if s.listen[src] {
		return true
	}
	wildcard := netip.IPv6Unspecified()
	if src.Addr().Is4() {
		wildcard = netip.IPv4Unspecified()
	}
	if !s.listen[netip.AddrPortFrom(wildcard, src.Port())] {
		return false
	}
	if src.Addr().IsLoopback() || (*s.local.Load())[src.Addr().WithZone("")] {
		return true
	}
	if !s.doubt.Load() {
		s.doubt.Store(true)
	}
	return false
}

// refresh learns of addresses that the machine has got or lost, where has has
// met somebody who may have one.
func (s *selfAddrs) refresh() {
	if s != nil && s.doubt.CompareAndSwap(true, false) {
		s.readLocal()
	}
}

func (s *selfAddrs) readLocal() { s.local.Store(new(localAddrs())) }

// reaches says whether what is sent to an address arrives at a listener of this
// gateway. An unspecified one stands for this machine.
func (s *selfAddrs) reaches(to netip.AddrPort) bool {
	to = unmapped(to)
	switch to.Addr() {
	case netip.IPv4Unspecified():
		to = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), to.Port())
	case netip.IPv6Unspecified():
		to = netip.AddrPortFrom(netip.IPv6Loopback(), to.Port())
	}
	return s.has(to)
}

// errCircle refuses an upstream that is a listener of the gateway.
func errCircle(upstream string) error {
	return fmt.Errorf("upstream %s is a listener of this gateway", upstream)
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// localAddrs are the addresses of the interfaces, without zones; none where
// they cannot be read, as the check is only one more line of defence.
func localAddrs() map[netip.Addr]bool {
	local := make(map[netip.Addr]bool)
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return local
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				local[ip.Unmap()] = true
			}
		}
	}
	return local
}
