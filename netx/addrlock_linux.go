package netx

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// An addrLock holds a listen address for one gateway. The sockets that serve
// have SO_REUSEPORT, with which a second process would bind without an error
// and take half of the traffic; so the address is held in two ways:
//
//   - the guard, a name in the abstract socket namespace of the machine, which
//     no two gateways can have, for as long as the gateway lives; the kernel
//     frees it when the process dies, however it dies;
//   - the probe, a socket bound to the address itself without SO_REUSEPORT,
//     which fails where anybody holds the address or a wildcard that covers
//     it, until the sockets that serve are bound beside it.
type addrLock struct {
	addr  netip.AddrPort // with a real port
	guard *net.UnixConn
	once  sync.Once
	probe int
}

// lockAddr takes the address. The guard comes first where the port is known,
// so of two gateways that start at once exactly one gets to the probe. Where
// this gateway still holds an address that overlaps, the probe stands beside it.
func lockAddr(proto Protocol, addr netip.AddrPort, beside bool) (*addrLock, error) {
	l := &addrLock{addr: addr, probe: -1}
	if addr.Port() != 0 {
		if err := l.takeGuard(proto); err != nil {
			return nil, err
		}
	}
	if err := l.takeProbe(proto, beside); err != nil {
		l.release()
		return nil, err
	}
	if l.guard == nil {
		if err := l.takeGuard(proto); err != nil {
			l.release()
			return nil, err
		}
	}
	return l, nil
}

func (l *addrLock) takeGuard(proto Protocol) error {
	name := fmt.Sprintf("@throttled/%v/%v", proto, l.addr)
	guard, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("%v %v is held by another gateway", proto, l.addr)
	}
	if err != nil {
		return fmt.Errorf("lock of %v %v: %w", proto, l.addr, err)
	}
	l.guard = guard
	return nil
}

func (l *addrLock) takeProbe(proto Protocol, beside bool) error {
	fd, err := bindProbe(proto, l.addr, beside)
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("%v %v is held by another process: %w", proto, l.addr, err)
	}
	if err != nil {
		return fmt.Errorf("%v %v: %w", proto, l.addr, err)
	}
	l.probe = fd
	if l.addr.Port() == 0 {
		port, err := boundPort(fd)
		if err != nil {
			return fmt.Errorf("%v %v: %w", proto, l.addr, err)
		}
		l.addr = netip.AddrPortFrom(l.addr.Addr(), port)
	}
	return nil
}

// bindProbe binds a socket that shares the address with nobody, and then lets
// those in that serve: SO_REUSEPORT that is set last counts for later sockets
// only.
func bindProbe(proto Protocol, addr netip.AddrPort, beside bool) (fd int, err error) {
	family, kind := unix.AF_INET, unix.SOCK_DGRAM
	if addr.Addr().Is6() {
		family = unix.AF_INET6
	}
	if proto == TCP {
		kind = unix.SOCK_STREAM
	}
	fd, err = unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err = bindAlone(fd, proto, addr, beside); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func bindAlone(fd int, proto Protocol, addr netip.AddrPort, beside bool) error {
	set := func(level, opt int) error {
		return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, level, opt, 1))
	}
	if addr.Addr().Is6() {
		if err := set(unix.IPPROTO_IPV6, unix.IPV6_V6ONLY); err != nil {
			return err
		}
	}
	if proto == TCP { // passes TIME_WAIT by, and lets the listener bind beside it
		if err := set(unix.SOL_SOCKET, unix.SO_REUSEADDR); err != nil {
			return err
		}
	}
	if beside {
		if err := set(unix.SOL_SOCKET, unix.SO_REUSEPORT); err != nil {
			return err
		}
	}
	if err := unix.Bind(fd, sockaddr(addr)); err != nil {
		return os.NewSyscallError("bind", err)
	}
	if proto == TCP { // with SO_REUSEADDR only one that listens keeps others out
		if err := unix.Listen(fd, 0); err != nil {
			return os.NewSyscallError("listen", err)
		}
	}
	return set(unix.SOL_SOCKET, unix.SO_REUSEPORT)
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16(), ZoneId: zoneID(a.Addr().Zone())}
}

// zoneID is 0 for no zone and for one that is not there.
func zoneID(zone string) uint32 {
	if zone == "" {
		return 0
	}
	ifi, err := net.InterfaceByName(zone)
	if err != nil {
		return 0
	}
	return uint32(ifi.Index)
}

func boundPort(fd int) (uint16, error) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return 0, os.NewSyscallError("getsockname", err)
	}
	return addrPortOf(sa).Port(), nil
}

// addrPortOf is the opposite of sockaddr, but for the zone.
func addrPortOf(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port))
	}
	return netip.AddrPort{}
}

// letIn is called with a TCP socket that is about to bind beside the probe.
func (l *addrLock) letIn(raw syscall.RawConn) error {
	return setSocket(raw, unix.SO_REUSEPORT, 1)
}

// bound is called when the sockets that serve are bound, before they are read:
// what the kernel hands to the probe is lost. It may be called again.
func (l *addrLock) bound() {
	l.once.Do(func() {
		if l.probe >= 0 {
			_ = unix.Close(l.probe)
		}
	})
}

// release frees the address; it may be called again.
func (l *addrLock) release() {
	l.bound()
	if l.guard != nil {
		_ = l.guard.Close()
	}
}
