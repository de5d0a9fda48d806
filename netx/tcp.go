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

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/policy/limiter"
)

// acceptRetry is how long a listener waits after an accept that failed.
const acceptRetry = 10 * time.Millisecond

// A tcpServer is one TCP listener. One goroutine accepts and decides there and
// then: a connection is turned away, or a goroutine of its own relays it to the
// upstream, at once or after it has waited for a place. So no more than one
// connection is ever undecided, however many arrive, those of proxies aside, which
// are first heard, each in a goroutine of its own.
//
// It runs on package net and not on gnet, which can neither pause reading nor
// bound what it buffers: a connection would have to leave its loop, and what
// that costs is more than all of the rest that a short one costs here.
//
// In the counters a packet is a connection. It ends as forwarded once the
// upstream has answered, or as dropped for one reason.
type tcpServer struct {
	counters

	cfg      ListenerConfig
	engine   *engine.Engine
	charged  atomic.Uint32 // the PolicyID
	log      *slog.Logger
	self     *selfSet
	lock     *addrLock
	looksUp  bool                      // the upstream is a name
	listener *shared[*net.TCPListener] // nil until it is bound

	proxies   *proxies
	perIP     *ipSlots
	places    *limiter.Concurrency // one for each connection that is served; closed by drain
	most      atomic.Int64         // how many
	waiting   chan struct{}        // one for each connection that waits for a place
	unheard   atomic.Int64         // connections whose PROXY header is to come
	placing   sync.Mutex           // held while a connection is admitted, and where they are counted
	pipes     *pipes
	buffers   sync.Pool // of *[bufferSize]byte
	lookEvery time.Duration
	draining  atomic.Bool

	watch watch

	ctx    context.Context // ends the dials and the relays
	cancel context.CancelFunc
	taking context.Context // ends with drain
	stop   context.CancelFunc
	relays sync.WaitGroup // and the watch

	accepting sync.WaitGroup

	begun             bool
	retiring, closing sync.Once

	fullGate, headerGate, upstreamGate logGate
}

func newTCPServer(cfg ListenerConfig, f *frame, lock *addrLock) (server, error) {
	_, notAddr := netip.ParseAddrPort(cfg.Upstream)
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
		self:    &f.self,
		looksUp: notAddr != nil,
		lock:    lock,
		proxies: newProxies(cfg.Proxy.AcceptFrom),
		perIP:   newIPSlots(cfg.TCP.MaxConnectionsPerIP),
		places:  places,
		waiting: make(chan struct{}, cfg.TCP.Queue.Limit+1), // and one that comes while the oldest goes
		pipes:   newPipes(),

		lookEvery: lookEvery,
	}
	s.most.Store(int64(cfg.TCP.MaxConnections))
	s.charge(cfg.Policy)
	s.watch.relays = make(map[*relay]struct{})
	s.buffers.New = func() any { return new([bufferSize]byte) }
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.taking, s.stop = context.WithCancel(s.ctx)
	return s, nil
}

func (s *tcpServer) bind(before server) error {
	if old, takesOver := before.(*tcpServer); takesOver {
		s.listener = old.listener.share()
		return nil
	}
	l, err := s.listen()
	if err != nil {
		return err
	}
	s.lock.bound()
	s.listener = newShared(l)
	return nil
}

func (s *tcpServer) begin() {
	s.begun = true
	_ = s.listener.socket.SetDeadline(time.Time{})
	s.accepting.Go(s.accept)
	s.relays.Go(s.watchRelays)
}

func (s *tcpServer) setCap(n int) {
	s.most.Store(int64(n))
	_ = s.places.SetPermitLimit(n) // closed, it needs none
}

func (s *tcpServer) charge(p engine.PolicyID) { s.charged.Store(uint32(p)) }
func (s *tcpServer) policy() engine.PolicyID  { return engine.PolicyID(s.charged.Load()) }

func (s *tcpServer) active() int64 {
	return s.unheard.Load() + int64(len(s.waiting)) + s.connections.Load()
}

// drain also ends those who wait: whoever is served goes on.
func (s *tcpServer) drain() {
	s.draining.Store(true)
	s.stop()
	s.places.Close()
}

// retire leaves those alone who are here, those who wait for a place too. One that
// has not begun leaves the socket alone, from which another one may still accept.
func (s *tcpServer) retire() {
	s.retiring.Do(func() {
		if s.begun {
			_ = s.listener.socket.SetDeadline(time.Unix(1, 0))
			s.accepting.Wait()
		}
		if s.listener != nil {
			s.listener.close()
		}
	})
}

func (s *tcpServer) busy() bool { return s.active() > 0 }

func (s *tcpServer) close() error {
	s.drain()
	s.retire()
	s.cancel()
	s.relays.Wait()
	s.closing.Do(s.pipes.close)
	return nil
}

func (s *tcpServer) report() ListenerReport {
	r := newReport(s.cfg)
	s.counters.addTo(&r)
	return r
}

// accept decides about each connection that arrives, until retire.
func (s *tcpServer) accept() {
	for {
		c, err := s.listener.socket.AcceptTCP()
		switch {
		case err == nil:
			s.decide(c)
		case errors.Is(err, os.ErrDeadlineExceeded):
			return
		default:
			// Out of descriptors, accept would fail again at once. The clients
			// wait in the kernel's queue.
			s.logFull("error", err)
			select {
			case <-s.ctx.Done():
			case <-time.After(acceptRetry):
			}
		}
	}
}

func (s *tcpServer) decide(conn *net.TCPConn) {
	s.packets.Add(1)
	c := caller{client: conn, from: addrPort(conn.RemoteAddr())}
	if s.proxies != nil {
		if s.proxies.has(c.from.Addr()) {
			s.identify(c)
			return
		}
		c.unproven = true
	}
	s.placing.Lock()
	reason, ok := s.admit(&c)
	s.placing.Unlock()
	if !ok {
		s.turnAway(conn, reason)
	}
}

func (s *tcpServer) turnAway(c *net.TCPConn, reason dropReason) {
	s.drop(reason)
	reject(c, s.cfg.TCP.Reject)
}

// admit asks the engine before it looks at the caps: who knocks too often is
// in violation whether there was a place for him or not.
func (s *tcpServer) admit(c *caller) (dropReason, bool) {
	from := c.from
	if s.draining.Load() {
		return dropDraining, false
	}
	if d := s.engine.EvaluatePolicy(from, s.policy()); !d.Allowed {
		if reason, ok := s.refuse(c, d); ok {
			return reason, false
		}
	}
	if !s.perIP.take(from.Addr()) {
		s.logFull("max_connections_per_ip", s.cfg.TCP.MaxConnectionsPerIP, "address", from.Addr())
		return dropConnectionsFull, false
	}
	reason, ok := s.place(*c)
	if !ok {
		s.perIP.free(from.Addr())
	}
	return reason, ok
}

// refuse says for what reason a denial drops, and whether it is one in earnest. In
// a dry run it counts the first one of a connection.
func (s *tcpServer) refuse(c *caller, d policy.Decision) (dropReason, bool) {
	reason := denial(s.engine, c.from, d)
	if s.dryRun() {
		if !c.passed {
			s.wouldDrop[reason].Add(1)
		}
		c.passed = true
		return 0, false
	}
	return reason, true
}

// dryRun says whether what the engine denies is let through, and bytes cost
// nothing.
func (s *tcpServer) dryRun() bool { return s.cfg.DryRun || s.engine.DryRun(s.policy()) }

// place sees to it that the connection is served, now or when its turn comes.
func (s *tcpServer) place(c caller) (dropReason, bool) {
	place, err := s.places.TryAcquire(1)
	q := &s.cfg.TCP.Queue
	switch {
	case err != nil: // closed a moment ago
		return dropDraining, false
	case place.Acquired():
		s.connections.Add(1)
		s.relays.Go(func() { s.serve(c, place) })
		return 0, true
	case q.Limit == 0:
		s.logFull("max_connections", s.most.Load())
		return dropConnectionsFull, false
	case q.Order == limiter.OldestFirst && s.places.Stats().Queued >= int64(q.Limit):
		// What the queue would say, without the cost of getting there: nobody
		// else puts anybody into it now.
		s.logFull("queue.limit", q.Limit)
		return dropQueueFull, false
	}
	s.wait(c)
	return 0, true
}

// logFull logs what it was that left no room: a cap, by its name in the
// configuration, or an error.
func (s *tcpServer) logFull(what ...any) {
	if n, ok := s.fullGate.pass(); ok {
		s.log.Warn("no room for a connection", append(what, "suppressed", n)...)
	}
}

// serve takes a connection that has its place from the dial to its end.
func (s *tcpServer) serve(c caller, place limiter.Lease) {
	defer func() {
		s.perIP.free(c.from.Addr())
		s.connections.Add(-1)
		place.Release() // last: whoever gets it counts from then on
	}()
	r := newRelay(s, c)
	upstream, err := s.dial()
	if err == nil {
		if err = s.announce(c, upstream); err != nil {
			upstream.Close()
		}
	}
	if err != nil {
		s.dialFailed(c.client, err)
		return
	}
	if !c.unproven {
		r.forwarded()
	}
	r.run(upstream)
	r.forwarded()
}

// listen speaks TCP alone, whatever the default of package net is. What it
// accepts inherits its buffers.
func (s *tcpServer) listen() (*net.TCPListener, error) {
	lc := net.ListenConfig{KeepAlive: -1, Control: func(_, _ string, raw syscall.RawConn) error {
		return errors.Join(clientBuffers.set(raw), s.lock.letIn(raw))
	}}
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(s.ctx, tcpNetwork(s.cfg.Listen), s.cfg.Listen.String())
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil
}

func tcpNetwork(a netip.AddrPort) string {
	if a.Addr().Is4() {
		return "tcp4"
	}
	return "tcp6"
}

func (s *tcpServer) dial() (*net.TCPConn, error) {
	d := net.Dialer{KeepAlive: -1, Control: s.prepareDial}
	var ctx context.Context = dialContext{s.ctx, time.Now().Add(s.cfg.TCP.DialTimeout)}
	if s.looksUp {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(s.ctx, s.cfg.TCP.DialTimeout)
		defer cancel()
	}
	c, err := d.DialContext(ctx, "tcp", s.cfg.Upstream)
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// A dialContext has a deadline, which a socket keeps by itself though a look-up
// does not, and no timer.
type dialContext struct {
	context.Context
	deadline time.Time
}

func (c dialContext) Deadline() (time.Time, bool) { return c.deadline, true }

// prepareDial keeps a dial from an address that would bring the connection back
// here, and from there here again.
func (s *tcpServer) prepareDial(_, address string, raw syscall.RawConn) error {
	if a, err := netip.ParseAddrPort(address); err == nil && s.self.of(TCP).reaches(a) {
		return errCircle(address)
	}
	return upstreamBuffers.set(raw)
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

// reject ends a connection in the way that the client is to see. A plain close
// is a reset, too, where the client has sent something already.
func reject(c *net.TCPConn, how Reject) {
	if how == RejectRST || how == RejectSilent && muteClose(c) != nil {
		_ = c.SetLinger(0)
	}
	c.Close()
}
