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
	s.filter = s.kernelFilter(s.cfg)
	if err := s.bind(); err != nil {
		return errors.Join(err, s.close())
	}
	s.lock.bound()
	for _, l := range s.loops {
		if err := l.serve(); err != nil {
			return errors.Join(fmt.Errorf("%v: %w", s.cfg.Listen, err), s.close())
		}
	}
	return nil
}

// bind binds the sockets of all loops before one of them reads, while the
// kernel's hash still changes.
func (s *udpServer) bind() error {
	for range s.pathCount() {
		l, err := newUDPLoop(s)
		if err != nil {
			return err
		}
		s.loops = append(s.loops, l)
		if err := l.path.bind(); err != nil {
			return fmt.Errorf("%v: %w", s.cfg.Listen, err)
		}
	}
	return nil
}

// now is the time since the server was made, in nanoseconds.
func (s *udpServer) now() int64 { return int64(time.Since(s.base)) }

func (s *udpServer) addr() netip.AddrPort { return s.cfg.Listen }
func (s *udpServer) drain()               { s.draining.Store(true) }
func (s *udpServer) active() int64        { return s.sessions.Load() }

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
