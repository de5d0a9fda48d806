//go:build !linux

package netx

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"
)

// An addrLock holds a listen address for one gateway: here with a socket bound
// to it, until the one that serves takes its place. Neither shares the address.
type addrLock struct {
	addr  netip.AddrPort // with a real port
	probe *net.UDPConn
	once  sync.Once
}

func lockAddr(proto Protocol, addr netip.AddrPort) (*addrLock, error) {
	if proto != UDP {
		return nil, fmt.Errorf("a %v listener is not supported on %s", proto, runtime.GOOS)
	}
	probe, err := net.ListenUDP(udpNetwork(addr), net.UDPAddrFromAddrPort(addr))
	if err != nil {
		return nil, fmt.Errorf("%v %v: %w", proto, addr, err)
	}
	port := probe.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	return &addrLock{addr: netip.AddrPortFrom(addr.Addr(), port), probe: probe}, nil
}

func (l *addrLock) bound()   { l.once.Do(func() { _ = l.probe.Close() }) }
func (l *addrLock) release() { l.bound() }
