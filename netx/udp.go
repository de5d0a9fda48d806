package netx

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ee4278a0/throttled/netx/kerneldrop"
)

// A udpServer relays the datagrams of one listen address to one upstream. It
// has a udpLoop for each core, all bound to the same port: the kernel's hash
// keeps a client on one of them, so loops share nothing but the session count.
type udpServer struct {
	*frame
	cfg      ListenerConfig
	lock     *addrLock
	upstream netip.AddrPort
	filter   *kerneldrop.Filter // nil = off
	base     time.Time
	loops    []*udpLoop

	sessions atomic.Int64 // of all loops
	draining atomic.Bool

	toBind  atomic.Int32  // loops that have no socket yet
	bound   chan struct{} // closed when all have one: now they may read
	abort   chan struct{} // closed when one failed to get one
	closing sync.Once

	fullGate, errorGate logGate

	// send passes datagrams to the upstream as upstreamConn.send does. Tests
	// put another one in to see what the kernel rarely answers.
	send func(c upstreamConn, ps [][]byte) (int, error)
}

func newUDPServer(cfg ListenerConfig, f *frame, lock *addrLock) (server, error) {
	upstream, err := resolveUDP(cfg.Upstream)
	if err != nil {
		return nil, err
	}
	if f.self[UDP].reaches(upstream) {
		return nil, errCircle(cfg.Upstream)
	}
	return &udpServer{
		frame:    f,
		cfg:      cfg,
		lock:     lock,
		upstream: upstream,
		base:     time.Now(),
		bound:    make(chan struct{}),
		abort:    make(chan struct{}),
		send:     upstreamConn.send,
	}, nil
}

// resolveUDP looks a name up once; IPv4 is preferred.
func resolveUDP(hostport string) (netip.AddrPort, error) {
	a, err := net.ResolveUDPAddr("udp", hostport)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("upstream %s: %w", hostport, err)
	}
	return unmapped(a.AddrPort()), nil
}

func (s *udpServer) start() error {
	n := s.pathCount()
	s.toBind.Store(int32(n))
	s.filter = s.kernelFilter(s.cfg)
	results := make(chan error, n)
	for range n {
		l, err := newUDPLoop(s)
		if err != nil {
			return errors.Join(err, s.close())
		}
		s.loops = append(s.loops, l)
	}
	for _, l := range s.loops {
		go func() { results <- l.start() }()
	}
	var first error
	for range n {
		if err := <-results; err != nil && first == nil {
			first = err
			close(s.abort)
		}
	}
	if first != nil {
		return errors.Join(fmt.Errorf("%v: %w", s.cfg.Listen, first), s.close())
	}
	return nil
}

// awaitOthers returns when every loop has its socket, so that none reads while
// the kernel's hash still changes. It is false when one of them failed.
func (s *udpServer) awaitOthers() bool {
	if s.toBind.Add(-1) == 0 {
		s.lock.bound()
		close(s.bound)
	}
	select {
	case <-s.bound:
		return true
	case <-s.abort:
		return false
	}
}

// now is the time since the server was made, in nanoseconds.
func (s *udpServer) now() int64 { return int64(time.Since(s.base)) }

func (s *udpServer) addr() netip.AddrPort { return s.cfg.Listen }
func (s *udpServer) drain()               { s.draining.Store(true) }
func (s *udpServer) active() int64        { return s.sessions.Load() }

func (s *udpServer) restarts() (n int64) {
	for _, l := range s.loops {
		n += l.path.restarts()
	}
	return n
}

func (s *udpServer) report() ListenerReport {
	r := newReport(s.cfg)
	for _, l := range s.loops {
		l.count.addTo(&r)
	}
	r.addKernelDrops(s.filter)
	return r
}

func (s *udpServer) close() (err error) {
	s.closing.Do(func() {
		var wg sync.WaitGroup
		for _, l := range s.loops {
			wg.Go(l.stop)
		}
		wg.Wait()
		err = s.filter.Close()
	})
	return err
}
