package netx

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy/limiter"
)

// A tcpServer is one TCP listener. gnet accepts, and OnOpen decides there and
// then: a connection is turned away, or it leaves the event loop as a
// net.TCPConn and a relay takes it to the upstream, at once or after it has
// waited for a place. So the loop never holds more than the one connection that
// it is deciding about, however many arrive.
//
// In the counters a packet is a connection. It ends as forwarded once the
// upstream has answered, or as dropped for one reason.
type tcpServer struct {
	gnet.BuiltinEventEngine
	counters

	cfg    ListenerConfig
	engine *engine.Engine
	log    *slog.Logger
	self   *selfAddrs
	lock   *addrLock
	super  *supervisor

	perIP     *ipSlots
	places    *limiter.Concurrency // one for each connection that is served; closed by drain
	waiting   chan struct{}        // one for each connection that waits for a place
	splices   chan struct{}        // one for each relay that may hold a pipe right now
	buffers   sync.Pool            // of *[bufferSize]byte
	lookEvery time.Duration
	draining  atomic.Bool

	ctx    context.Context // ends the dials and the relays
	cancel context.CancelFunc
	relays sync.WaitGroup

	fullGate, upstreamGate logGate
}

func newTCPServer(cfg ListenerConfig, f *frame, lock *addrLock) (server, error) {
	// A name is looked up for each connection, and judged then.
	if a, err := netip.ParseAddrPort(cfg.Upstream); err == nil && f.self[TCP].reaches(a) {
		return nil, errCircle(cfg.Upstream)
	}
	places, err := limiter.NewConcurrency(limiter.ConcurrencyOptions{
		PermitLimit: cfg.TCP.MaxConnections,
		Queue:       cfg.TCP.Queue,
	})
	if err != nil {
		return nil, err
	}
	s := &tcpServer{
		cfg:     cfg,
		engine:  f.engine,
		log:     f.log.With("listener", cfg.Name),
		self:    &f.self[TCP],
		lock:    lock,
		perIP:   newIPSlots(cfg.TCP.MaxConnectionsPerIP),
		places:  places,
		waiting: make(chan struct{}, cfg.TCP.Queue.Limit+1), // and one that comes while the oldest goes
		splices: make(chan struct{}, maxSplices(cfg.TCP.MaxConnections)),

		lookEvery: lookEvery,
	}
	s.buffers.New = func() any { return new([bufferSize]byte) }
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.super = newSupervisor("tcp://"+cfg.Listen.String(), s, s.log,
		// One loop that also reads its listening socket decides in the same
		// breath in which it accepts. With a separate acceptor a burst would
		// pile up open descriptors until accept fails and the engine ends.
		gnet.WithReusePort(true),
		gnet.WithNumEventLoop(1),
	)
	return s, nil
}

func (s *tcpServer) start() error         { return s.super.start() }
func (s *tcpServer) addr() netip.AddrPort { return s.cfg.Listen }
func (s *tcpServer) active() int64        { return s.connections.Load() + int64(len(s.waiting)) }
func (s *tcpServer) restarts() int64      { return s.super.restarts() }

// drain also ends those who wait: whoever is served goes on.
func (s *tcpServer) drain() {
	s.draining.Store(true)
	s.places.Close()
}

func (s *tcpServer) close() error {
	s.drain()
	s.super.stop() // after which OnOpen starts no relay
	s.cancel()
	s.relays.Wait()
	return nil
}

func (s *tcpServer) report() ListenerReport {
	r := newReport(s.cfg)
	s.counters.addTo(&r)
	return r
}

// OnBoot runs when the listening socket is bound.
func (s *tcpServer) OnBoot(gnet.Engine) gnet.Action {
	s.lock.bound()
	return gnet.None
}

// OnOpen decides. It always closes gnet's descriptor: what is admitted lives
// on in a duplicate, so the client sees nothing of that.
func (s *tcpServer) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	s.packets.Add(1)
	if reason, ok := s.admit(c, addrPort(c.RemoteAddr())); !ok {
		s.drop(reason)
		prepareReject(c, c.Fd(), s.cfg.TCP.Reject)
	}
	return nil, gnet.Close
}

// admit asks the engine before it looks at the caps: who knocks too often is
// in violation whether there was a place for him or not.
func (s *tcpServer) admit(c gnet.Conn, from netip.AddrPort) (dropReason, bool) {
	if s.draining.Load() {
		return dropDraining, false
	}
	if d := s.engine.EvaluatePolicy(from, s.cfg.Policy); !d.Allowed {
		return denied(d), false
	}
	if !s.perIP.take(from.Addr()) {
		s.logFull("max_connections_per_ip", s.cfg.TCP.MaxConnectionsPerIP, "address", from.Addr())
		return dropConnectionsFull, false
	}
	reason, ok := s.place(c, from)
	if !ok {
		s.perIP.free(from.Addr())
	}
	return reason, ok
}

// place sees to it that the connection is served, now or when its turn comes.
func (s *tcpServer) place(c gnet.Conn, from netip.AddrPort) (dropReason, bool) {
	place, err := s.places.TryAcquire(1)
	q := &s.cfg.TCP.Queue
	switch {
	case err != nil: // closed a moment ago
		return dropDraining, false
	case place.Acquired():
		return s.begin(c, from, place)
	case q.Limit == 0:
		s.logFull("max_connections", s.cfg.TCP.MaxConnections)
		return dropConnectionsFull, false
	case q.Order == limiter.OldestFirst && s.places.Stats().Queued >= int64(q.Limit):
		// What the queue would say, without the cost of getting there: only
		// this loop puts anybody into it.
		s.logFull("queue.limit", q.Limit)
		return dropQueueFull, false
	}
	return s.wait(c, from)
}

// begin starts the relay of a connection that has its place.
func (s *tcpServer) begin(c gnet.Conn, from netip.AddrPort, place limiter.Lease) (dropReason, bool) {
	client, err := adopt(c)
	if err != nil {
		place.Release()
		s.logFull("error", err)
		return dropConnectionsFull, false
	}
	s.connections.Add(1)
	s.relays.Go(func() { s.serve(client, from, place) })
	return 0, true
}

// logFull logs what it was that left no room: a cap, by its name in the
// configuration, or an error.
func (s *tcpServer) logFull(what ...any) {
	if n, ok := s.fullGate.pass(); ok {
		s.log.Warn("no room for a connection", append(what, "suppressed", n)...)
	}
}

// adopt makes a connection of package net from gnet's, sharing the socket.
func adopt(c gnet.Conn) (*net.TCPConn, error) {
	fd, err := c.Dup()
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	conn, err := net.FileConn(f) // with TCP_NODELAY and keep-alive, as net always sets them
	if err != nil {
		return nil, err
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		conn.Close()
		return nil, errors.New("netx: not a TCP connection")
	}
	return tcp, nil
}

// serve takes a connection that has its place from the dial to its end.
func (s *tcpServer) serve(client *net.TCPConn, from netip.AddrPort, place limiter.Lease) {
	defer func() {
		s.perIP.free(from.Addr())
		s.connections.Add(-1)
		place.Release() // last: whoever gets it counts from then on
	}()
	r := newRelay(s, client, from)
	upstream, err := s.dial()
	if err != nil {
		s.dialFailed(client, err)
		return
	}
	s.forwarded.Add(1)
	r.run(upstream)
}

func (s *tcpServer) dial() (*net.TCPConn, error) {
	d := net.Dialer{Timeout: s.cfg.TCP.DialTimeout, Control: s.noCircle}
	c, err := d.DialContext(s.ctx, "tcp", s.cfg.Upstream)
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// noCircle keeps a dial from an address that would bring the connection back
// here, and from there here again.
func (s *tcpServer) noCircle(_, address string, _ syscall.RawConn) error {
	if a, err := netip.ParseAddrPort(address); err == nil && s.self.reaches(a) {
		return errCircle(address)
	}
	return nil
}

func (s *tcpServer) dialFailed(client *net.TCPConn, err error) {
	switch {
	case s.ctx.Err() != nil:
		s.drop(dropDraining)
	case outOfDescriptors(err):
		s.drop(dropConnectionsFull)
		s.logFull("error", err)
	default:
		s.drop(dropUpstreamError)
		s.upstreamErrors.Add(1)
		if n, ok := s.upstreamGate.pass(); ok {
			s.log.Warn("upstream does not answer", "upstream", s.cfg.Upstream, "error", err, "suppressed", n)
		}
	}
	reject(client, s.cfg.TCP.Reject)
}

// reject turns away a connection that had been admitted.
func reject(c *net.TCPConn, how Reject) {
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { prepareReject(c, int(fd), how) })
	}
	c.Close()
}

// prepareReject makes the close that follows look to the client as configured.
// A plain close is a reset, too, where the client has sent something already.
func prepareReject(c interface{ SetLinger(int) error }, fd int, how Reject) {
	switch how {
	case RejectRST:
		_ = c.SetLinger(0)
	case RejectSilent:
		if muteClose(fd) != nil {
			_ = c.SetLinger(0)
		}
	}
}
