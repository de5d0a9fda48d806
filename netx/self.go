package netx

import (
	"net"
	"net/netip"
)

// selfAddrs are the addresses that the gateway's own UDP listeners hold. A
// datagram that comes from one of them is forged or goes in a circle.
type selfAddrs struct {
	exact    map[netip.AddrPort]bool
	wildcard map[uint16]bool     // ports of listeners on every address
	local    map[netip.Addr]bool // what such a listener answers from
}

// add must not be called once has is.
func (s *selfAddrs) add(listen netip.AddrPort) {
	if !listen.Addr().IsUnspecified() {
		if s.exact == nil {
			s.exact = make(map[netip.AddrPort]bool)
		}
		s.exact[listen] = true
		return
	}
	if s.wildcard == nil {
		s.wildcard = make(map[uint16]bool)
		s.local = localAddrs()
	}
	s.wildcard[listen.Port()] = true
}

// has wants an unmapped address.
func (s *selfAddrs) has(src netip.AddrPort) bool {
	if s.exact[src] {
		return true
	}
	if !s.wildcard[src.Port()] {
		return false
	}
	return src.Addr().IsLoopback() || s.local[src.Addr()]
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
