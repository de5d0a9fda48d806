package netx

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ee4278a0/throttled/engine"
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
	proxies  *proxies
	filter   *kerneldrop.Filter // nil = off
	base     time.Time
	loops    []*udpLoop

	sessions atomic.Int64 // of all loops
	most     atomic.Int64 // sessions
	draining atomic.Bool

	retiring, closing sync.Once

	fullGate, headerGate, errorGate, ratioGate, bufferGate logGate

	warned int64 // ReceiveBufferDropped that the log has told of; for the sweep of the first loop

	// send passes datagrams to the upstream as upstreamConn.send does. Tests
	// put another one in to see what the kernel rarely answers.
	send func(c upstreamConn, ps [][]byte) (int, error)
}

func newUDPServer(cfg ListenerConfig, upstream netip.AddrPort, f *frame, lock *addrLock) server {
	s := &udpServer{
		frame:    f,
		cfg:      cfg,
		lock:     lock,
		upstream: upstream,
		proxies:  newProxies(cfg.Proxy.AcceptFrom),
		base:     time.Now(),
		send:     upstreamConn.send,
	}
	s.setCap(cfg.UDP.MaxSessions)
	return s
}

// bind binds the sockets of all loops before one of them reads, while the
// kernel's hash still changes.
func (s *udpServer) bind(before server) error {
	s.filter = s.kernelFilter(s.cfg)
	old, takesOver := before.(*udpServer)
	count := s.pathCount()
	if takesOver {
		count = len(old.loops)
	}
	for i := range count {
		l, err := newUDPLoop(s)
		if err != nil {
			return err
		}
		s.loops = append(s.loops, l)
		var from udpPath
		if takesOver {
			from = old.loops[i].path
		}
		if err := l.path.bind(from); err != nil {
			return fmt.Errorf("%v: %w", s.cfg.Listen, err)
		}
	}
	s.lock.bound()
	return nil
}

func (s *udpServer) begin() {
	for _, l := range s.loops {
		l.serve()
	}
}

// now is the time since the server was made, in nanoseconds.
func (s *udpServer) now() int64 { return int64(time.Since(s.base)) }

func (s *udpServer) setCap(n int)           { s.most.Store(int64(n)) }
func (s *udpServer) charge(engine.PolicyID) {} // no session outlives it
func (s *udpServer) drain()                 { s.draining.Store(true) }
func (s *udpServer) active() int64          { return s.sessions.Load() }

func (s *udpServer) report() ListenerReport {
	r := newReport(s.cfg)
	for _, l := range s.loops {
		l.path.countDrops()
		l.count.addTo(&r)
	}
	r.addKernelDrops(s.filter) // read last, so that none counts as one for want of room
	return r
}

// warnDropped logs what has been dropped in the receive buffers since it last did.
func (s *udpServer) warnDropped() {
	dropped := s.report().ReceiveBufferDropped
	if dropped <= s.warned {
		return
	}
	if _, ok := s.bufferGate.pass(); ok {
		s.log.Warn("the kernel has dropped datagrams before they were read: the receive buffer was full, or a checksum wrong",
			"listener", s.cfg.Name, "dropped", dropped-s.warned)
		s.warned = dropped
	}
}

// retire ends the sessions; their sockets stay in quarantine.
func (s *udpServer) retire() {
	s.retiring.Do(func() {
		var wg sync.WaitGroup
		for _, l := range s.loops {
			wg.Go(l.retire)
		}
		wg.Wait()
	})
}

func (s *udpServer) busy() bool {
	return slices.ContainsFunc(s.loops, func(l *udpLoop) bool { return l.table.inQuarantine() })
}

func (s *udpServer) close() (err error) {
	s.retire()
	s.closing.Do(func() {
		for _, l := range s.loops {
			l.close()
		}
		err = s.filter.Close()
	})
	return err
}
