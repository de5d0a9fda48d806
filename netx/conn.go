package netx

import (
	"net"
	"net/netip"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
)

// PacketConn wraps c so that ReadFrom returns only datagrams that the default
// policy of e lets through. Each is evaluated with its payload; denied ones
// are read and forgotten, and ReadFrom goes on to the next. It returns when a
// datagram passes or when c returns an error, so a deadline, Close and every
// other method work as they do on c.
//
// Where the default policy is a dry run everything is evaluated and everything
// passes, but for what comes from no IP address.
//
// Only the methods of net.PacketConn are there: reading past the throttle
// takes c itself. A sender whose address is no IP address is denied. A
// datagram longer than the buffer counts with what of it c returns.
//
// Concurrent calls are as safe as on c. The engine stays the caller's; once it
// is closed nothing passes.
func PacketConn(e *engine.Engine, c net.PacketConn) net.PacketConn {
	if udp, ok := c.(*net.UDPConn); ok {
		return &udpConn{PacketConn: c, udp: udp, engine: e}
	}
	return &packetConn{PacketConn: c, engine: e}
}

type packetConn struct {
	net.PacketConn
	engine *engine.Engine
}

func (p *packetConn) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		n, from, err := p.PacketConn.ReadFrom(b)
		if err != nil || allowed(p.engine, addrPort(from), n) {
			return n, from, err
		}
	}
}

// udpConn is packetConn for the common case. It makes a net.Addr only for what
// passes, so that a flood costs the garbage collector nothing.
type udpConn struct {
	net.PacketConn
	udp    *net.UDPConn
	engine *engine.Engine
}

func (p *udpConn) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		n, from, err := p.udp.ReadFromUDPAddrPort(b)
		if err != nil {
			return n, nil, err
		}
		if allowed(p.engine, from, n) {
			return n, net.UDPAddrFromAddrPort(from), nil
		}
	}
}

// Listener wraps l so that Accept returns only connections that the default
// policy of e lets through. Each is evaluated as one packet. Denied ones are
// reset, and Accept goes on to the next: a denial is never an error. A peer
// whose address is no IP address, as on a Unix socket, is denied. Where the
// default policy is a dry run all others pass.
//
// Concurrent calls are as safe as on l. The engine stays the caller's; once it
// is closed every connection is denied.
func Listener(e *engine.Engine, l net.Listener) net.Listener {
	return &listener{Listener: l, engine: e}
}

type listener struct {
	net.Listener
	engine *engine.Engine
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil || connects(l.engine, addrPort(c.RemoteAddr())) {
			return c, err
		}
		if tcp, ok := c.(*net.TCPConn); ok {
			tcp.SetLinger(0) // a reset leaves nothing in TIME_WAIT here
		}
		c.Close()
	}
}

// connects evaluates a connection under the default policy.
func connects(e *engine.Engine, from netip.AddrPort) bool {
	return passes(e, from, e.Evaluate(from))
}

// allowed evaluates a datagram of n bytes under the default policy.
func allowed(e *engine.Engine, from netip.AddrPort, n int) bool {
	var (
		ask    = [1]engine.Request{{Endpoint: from, Bytes: n}}
		answer [1]policy.Decision
	)
	e.EvaluateBatch(ask[:], answer[:])
	return passes(e, from, answer[0])
}

// passes says what a decision under the default policy comes to.
func passes(e *engine.Engine, from netip.AddrPort, d policy.Decision) bool {
	return d.Allowed || from.IsValid() && e.DryRun(0)
}

// addrPort is the endpoint of a peer, without an allocation. It is the zero
// value, which the engine denies, where there is no IP address.
func addrPort(a net.Addr) netip.AddrPort {
	switch a := a.(type) {
	case *net.UDPAddr:
		return a.AddrPort()
	case *net.TCPAddr:
		return a.AddrPort()
	case *net.IPAddr:
		ip, _ := netip.AddrFromSlice(a.IP)
		return netip.AddrPortFrom(ip.WithZone(a.Zone), 0)
	}
	return netip.AddrPort{}
}

func isDatagram(a net.Addr) bool {
	_, ok := a.(*net.UDPAddr)
	return ok
}
