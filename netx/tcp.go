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
)

// A tcpServer is one TCP listener. gnet accepts, and OnOpen decides there and
// then: a connection is turned away, or it leaves the event loop as a
// net.TCPConn and a relay takes it to the upstream. So the loop never holds
// more than the one connection that it is deciding about, however many arrive.
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

	slots     *connSlots
	splices   chan struct{} // one for each relay that may hold a pipe right now
	buffers   sync.Pool     // of *[bufferSize]byte
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
	s := &tcpServer{
		cfg:     cfg,
		engine:  f.engine,
		log:     f.log.With("listener", cfg.Name),
		self:    &f.self[TCP],
		lock:    lock,
		slots:   newConnSlots(cfg.TCP.MaxConnections, cfg.TCP.MaxConnectionsPerIP),
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
func (s *tcpServer) drain()               { s.draining.Store(true) }
func (s *tcpServer) active() int64        { return s.connections.Load() }
func (s *tcpServer) restarts() int64      { return s.super.restarts() }

func (s *tcpServer) close() error {
	s.draining.Store(true)
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
	from := addrPort(c.RemoteAddr())
	if reason, ok := s.admit(from); !ok {
		s.drop(reason)
		prepareReject(c, c.Fd(), s.cfg.TCP.Reject)
		return nil, gnet.Close
	}
	client, err := adopt(c)
	if err != nil {
		s.release(from)
		s.drop(dropConnectionsFull)
		s.logFull(err)
		prepareReject(c, c.Fd(), s.cfg.TCP.Reject)
		return nil, gnet.Close
	}
	s.relays.Go(func() { s.serve(client, from) })
	return nil, gnet.Close
}

// admit asks the engine before it looks at the caps: who knocks too often is
// in violation whether there was a place for him or not.
func (s *tcpServer) admit(from netip.AddrPort) (dropReason, bool) {
	if s.draining.Load() {
		return dropDraining, false
	}
	if d := s.engine.EvaluatePolicy(from, s.cfg.Policy); !d.Allowed {
		return denied(d), false
	}
	if !s.slots.take(from.Addr()) {
		s.logFull(nil)
		return dropConnectionsFull, false
	}
	s.connections.Add(1)
	return 0, true
}

func (s *tcpServer) release(from netip.AddrPort) {
	s.slots.free(from.Addr())
	s.connections.Add(-1)
}

func (s *tcpServer) logFull(err error) {
	if n, ok := s.fullGate.pass(); ok {
		s.log.Warn("no room for a connection", "cap", s.cfg.TCP.MaxConnections, "error", err, "suppressed", n)
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

// serve takes an admitted connection from the dial to its end.
func (s *tcpServer) serve(client *net.TCPConn, from netip.AddrPort) {
	defer s.release(from)
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
		s.logFull(err)
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
