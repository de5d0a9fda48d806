package netx

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
)

// A plainPath moves one datagram at a time through package net, with a
// goroutine for the clients and one for each session. It is the path of systems
// without recvmmsg and epoll. Two things it cannot do: answer from the address
// that a client has sent to where the listener is on a wildcard, and drop what
// the system has no room for; a write waits for it.
type plainPath struct {
	loop    *udpLoop
	listen  *shared[*net.UDPConn] // nil until it is bound
	serves  bool                  // so that nobody else reads it
	clients sync.WaitGroup
	replies sync.WaitGroup
	whole   []byte // a datagram and its header; guarded by the loop's mu
}

func newPlainPath(l *udpLoop) (udpPath, error) { return &plainPath{loop: l}, nil }

func (p *plainPath) bind(from udpPath) error {
	if old, takesOver := from.(*plainPath); takesOver {
		p.listen = old.listen.share()
		return nil
	}
	p.loop.lock.bound() // this socket shares its port with nobody
	listen := p.loop.cfg.Listen
	c, err := net.ListenUDP(udpNetwork(listen), net.UDPAddrFromAddrPort(listen))
	if err != nil {
		return err
	}
	_ = c.SetReadBuffer(socketBuffer)
	_ = c.SetWriteBuffer(socketBuffer)
	p.listen = newShared(c)
	return nil
}

func (p *plainPath) serve() {
	p.serves = true
	_ = p.listen.socket.SetReadDeadline(time.Time{})
	p.clients.Go(p.fromClients)
}

// udpNetwork keeps an IPv6 wildcard to its own family.
func udpNetwork(a netip.AddrPort) string {
	if a.Addr().Is4() {
		return "udp4"
	}
	return "udp6"
}

func (p *plainPath) stop() {
	if p.serves {
		_ = p.listen.socket.SetReadDeadline(time.Unix(1, 0))
	}
	p.clients.Wait()
}

func (p *plainPath) close() {
	p.replies.Wait()
	if p.listen != nil {
		p.listen.close()
	}
}

func (p *plainPath) countDrops() {}

func (p *plainPath) fromClients() {
	var one [1]datagram
	buf := make([]byte, readBuffer)
	for {
		n, src, err := p.listen.socket.ReadFromUDPAddrPort(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		p.loop.mu.Lock()
		if err != nil {
			p.loop.upstreamError(err)
		} else {
			one[0] = datagram{src: unmapped(src), payload: buf[:n], size: n}
			p.loop.relay(one[:])
		}
		p.loop.mu.Unlock()
	}
}

func (p *plainPath) dial(header []byte) (upstreamConn, error) {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(p.loop.upstream))
	if err != nil {
		return nil, err
	}
	return plainConn{c, p, header}, nil
}

func (p *plainPath) watch(s *session) error {
	p.replies.Go(func() { p.fromUpstream(s, s.conn.(plainConn)) })
	return nil
}

// unwatch wakes the goroutine of a session, which finds that it has ended.
func (p *plainPath) unwatch(s *session) {
	_ = s.conn.(plainConn).SetReadDeadline(time.Unix(1, 0))
}

// fromUpstream carries replies until the session ends. Most of a buffer is
// never written to, so it takes address space more than memory.
func (p *plainPath) fromUpstream(s *session, c plainConn) {
	buf := make([]byte, readBuffer)
	for {
		n, err := c.Read(buf)
		if !p.reply(s, buf[:n], err) {
			return
		}
	}
}

// reply passes on what came from the upstream, and is false once the session
// has ended.
func (p *plainPath) reply(s *session, payload []byte, err error) bool {
	p.loop.mu.Lock()
	defer p.loop.mu.Unlock()
	if s.index < 0 {
		return false
	}
	if err == nil {
		if !p.loop.mayReply(s, len(payload), p.loop.now()) {
			return true
		}
		if _, err = p.listen.socket.WriteToUDPAddrPort(payload, s.peer); err == nil {
			p.loop.count.reply(1, len(payload))
		}
	}
	if err != nil && !errors.Is(err, net.ErrClosed) {
		p.loop.upstreamError(err) // mostly ECONNREFUSED; reading it has cleared it
	}
	return true
}

// plainConn is an upstreamConn of package net.
type plainConn struct {
	*net.UDPConn
	path   *plainPath
	header []byte
}

func (c plainConn) send(ps [][]byte) (int, error) {
	for i, p := range ps {
		if c.header != nil {
			c.path.whole = append(append(c.path.whole[:0], c.header...), p...)
			p = c.path.whole
		}
		if _, err := c.Write(p); err != nil && i == 0 {
			return 0, err
		} else if err != nil {
			return i, nil
		}
	}
	return len(ps), nil
}

func (c plainConn) talksToItself() bool {
	return c.LocalAddr().(*net.UDPAddr).AddrPort() == c.RemoteAddr().(*net.UDPAddr).AddrPort()
}

func (c plainConn) close() { _ = c.Close() }
