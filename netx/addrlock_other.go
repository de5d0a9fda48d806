//go:build !linux

package netx

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
)

// An addrLock holds a listen address for one gateway: here with a socket bound
// to it, until the one that serves takes its place. Neither shares the address.
type addrLock struct {
	addr  netip.AddrPort // with a real port
	probe io.Closer
	once  sync.Once
}

// lockAddr takes the address, which must not overlap one that this gateway still
// holds.
func lockAddr(proto Protocol, addr netip.AddrPort, _ bool) (*addrLock, error) {
	probe, bound, err := bindProbe(proto, addr)
	if err != nil {
		return nil, fmt.Errorf("%v %v: %w", proto, addr, err)
	}
	return &addrLock{addr: netip.AddrPortFrom(addr.Addr(), addrPort(bound).Port()), probe: probe}, nil
}

func bindProbe(proto Protocol, addr netip.AddrPort) (io.Closer, net.Addr, error) {
	if proto == TCP {
		l, err := net.ListenTCP(tcpNetwork(addr), net.TCPAddrFromAddrPort(addr))
		if err != nil {
			return nil, nil, err
		}
		return l, l.Addr(), nil
	}
	c, err := net.ListenUDP(udpNetwork(addr), net.UDPAddrFromAddrPort(addr))
	if err != nil {
		return nil, nil, err
	}
	return c, c.LocalAddr(), nil
}

// letIn is called with a TCP socket that is about to bind to the address.
func (l *addrLock) letIn(syscall.RawConn) error {
	l.bound()
	return nil
}

func (l *addrLock) bound()   { l.once.Do(func() { _ = l.probe.Close() }) }
func (l *addrLock) release() { l.bound() }
