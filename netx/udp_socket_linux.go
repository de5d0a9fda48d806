package netx

import (
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// A fastConn is a connected socket that is read when epoll says so.
type fastConn struct {
	path   *fastPath
	fd     int
	header []byte
	peer   destination
}

func (p *fastPath) dial(header []byte) (upstreamConn, error) {
	upstream := p.loop.upstream
	fd, err := udpSocket(upstream.Addr())
	if err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, sockaddr(upstream)); err != nil {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("connect", err)
	}
	return &fastConn{path: p, fd: fd, header: header}, nil
}

func (c *fastConn) send(ps [][]byte) (int, error) {
	out := &c.path.out
	for _, p := range ps {
		out.add(c.header, p, nil)
	}
	n, err := mmsg(unix.SYS_SENDMMSG, c.fd, out.hdrs[:out.n], unix.MSG_DONTWAIT)
	out.n = 0
	return n, err
}

func (c *fastConn) talksToItself() bool {
	own, err := unix.Getsockname(c.fd)
	peer, err2 := unix.Getpeername(c.fd)
	return err == nil && err2 == nil && addrPortOf(own) == addrPortOf(peer)
}

func (c *fastConn) close() { _ = unix.Close(c.fd) }

func udpSocket(a netip.Addr) (fd int, err error) {
	family := unix.AF_INET6
	if a.Is4() {
		family = unix.AF_INET
	}
	fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	return fd, os.NewSyscallError("socket", err)
}

// listenUDP makes a listening socket of many that share their port.
func listenUDP(a netip.AddrPort) (fd int, err error) {
	if fd, err = udpSocket(a.Addr()); err != nil {
		return -1, err
	}
	if err = bindShared(fd, a); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func bindShared(fd int, a netip.AddrPort) error {
	set := func(level, opt, value int) error {
		return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, level, opt, value))
	}
	if a.Addr().Is6() {
		if err := set(unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			return err
		}
	}
	if err := set(unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return err
	}
	if err := set(unix.SOL_SOCKET, unix.SO_RCVBUF, socketBuffer); err != nil {
		return err
	}
	if err := set(unix.SOL_SOCKET, unix.SO_SNDBUF, socketBuffer); err != nil {
		return err
	}
	// More than the kernel's ordinary limit, where we may; else it stays.
	_ = set(unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, socketBuffer)
	if a.Addr().IsUnspecified() {
		if err := askPktinfo(fd, a.Addr()); err != nil {
			return err
		}
	}
	return os.NewSyscallError("bind", unix.Bind(fd, sockaddr(a)))
}
