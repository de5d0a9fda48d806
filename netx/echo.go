package netx

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// echoServer is the upstream called Echo: it sends back what it gets, over UDP
// and over TCP, on loopback ports that the kernel picks. It has no limits of
// its own; who may reach it is the listener's business.
type echoServer struct {
	udp *net.UDPConn
	tcp *net.TCPListener
	wg  sync.WaitGroup

	mu     sync.Mutex
	conns  map[*net.TCPConn]struct{} // guarded by mu; nil after close
	closed chan struct{}
}

const (
	echoReadBuffer = 4 << 20 // a burst waits here while the echo is busy
	echoRetry      = 10 * time.Millisecond
)

// startEcho binds both sockets and serves until close.
func startEcho() (*echoServer, error) {
	loopback := net.IPv4(127, 0, 0, 1)
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: loopback})
	if err != nil {
		return nil, fmt.Errorf("netx: echo: %w", err)
	}
	tcp, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: loopback})
	if err != nil {
		udp.Close()
		return nil, fmt.Errorf("netx: echo: %w", err)
	}
	udp.SetReadBuffer(echoReadBuffer) // the kernel grants what it may: less is no error
	s := &echoServer{
		udp:    udp,
		tcp:    tcp,
		conns:  make(map[*net.TCPConn]struct{}),
		closed: make(chan struct{}),
	}
	s.wg.Go(s.serveUDP)
	s.wg.Go(s.serveTCP)
	return s, nil
}

func (s *echoServer) udpAddr() netip.AddrPort { return s.udp.LocalAddr().(*net.UDPAddr).AddrPort() }
func (s *echoServer) tcpAddr() netip.AddrPort { return s.tcp.Addr().(*net.TCPAddr).AddrPort() }

// close ends the sockets, the connections and their goroutines; a second call
// does nothing.
func (s *echoServer) close() {
	s.mu.Lock()
	conns := s.conns
	s.conns = nil
	s.mu.Unlock()
	if conns == nil {
		return
	}
	close(s.closed)
	s.udp.Close()
	s.tcp.Close()
	for c := range conns {
		c.Close()
	}
	s.wg.Wait()
}

// serveUDP keeps going after errors: an ICMP answer or a full send buffer
// concerns one datagram, not the socket.
func (s *echoServer) serveUDP() {
	buf := make([]byte, MaxDatagram+1)
	for {
		n, from, err := s.udp.ReadFromUDPAddrPort(buf)
		switch {
		case err == nil:
			s.udp.WriteToUDPAddrPort(buf[:n], from)
		case errors.Is(err, net.ErrClosed):
			return
		case !s.pause():
			return
		}
	}
}

// serveTCP waits a little after an error: out of descriptors, accept would
// fail again at once.
func (s *echoServer) serveTCP() {
	for {
		c, err := s.tcp.AcceptTCP()
		switch {
		case err == nil && s.add(c):
			s.wg.Go(func() { s.serveConn(c) })
		case err == nil:
			c.Close()
		case errors.Is(err, net.ErrClosed):
			return
		case !s.pause():
			return
		}
	}
}

// serveConn echoes until the client shuts its side down, then shuts its own.
func (s *echoServer) serveConn(c *net.TCPConn) {
	defer s.remove(c)
	// Hiding ReadFrom keeps io.Copy from a splice and its two descriptors.
	if _, err := io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c}); err != nil {
		c.SetLinger(0) // an echo that broke off must not look complete
	}
}

func (s *echoServer) add(c *net.TCPConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

func (s *echoServer) remove(c *net.TCPConn) {
	s.mu.Lock()
	delete(s.conns, c) // a nil map after close is fine
	s.mu.Unlock()
	c.Close()
}

// pause says whether to go on after it has waited.
func (s *echoServer) pause() bool {
	select {
	case <-s.closed:
		return false
	case <-time.After(echoRetry):
		return true
	}
}
