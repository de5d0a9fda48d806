package netx

import (
	"errors"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
)

const (
	// batchSize is how many datagrams are decided on together.
	batchSize = 64
	// readBuffer takes the longest datagram there is.
	readBuffer = 64 << 10
	// socketBuffer absorbs bursts; the kernel lowers it to what it allows.
	socketBuffer = 4 << 20
	// Idle sessions are looked for four times in the idle time.
	sweepMost  = time.Second
	sweepLeast = 5 * time.Millisecond
)

// A udpLoop has one listening socket, and the sessions of the clients that the
// kernel sends there. The rules are here: what is dropped, who gets a session,
// what is counted. The path moves the datagrams.
type udpLoop struct {
	*udpServer
	path  udpPath
	count counters
	quit  chan struct{}
	done  sync.WaitGroup

	mu    sync.Mutex // guards what follows; the path holds it while it relays
	table sessionTable
	batch batch
}

// A udpPath is a way of moving datagrams between the sockets of a loop. There
// is a fast one for Linux and a plain one for every system.
type udpPath interface {
	// bind binds the listening socket, or takes part in that of another path,
	// which is to stop reading it before serve begins to.
	bind(from udpPath) error
	serve()
	// stop ends all that calls the loop. close frees the rest, once the
	// sessions are gone.
	stop()
	close()
	// dial makes the socket of a session, which begins each datagram with a
	// header. Replies are carried from watch on and no longer after unwatch. They
	// want the loop's mu.
	dial(header []byte) (upstreamConn, error)
	watch(*session) error
	unwatch(*session)
	// countDrops brings counters.socketDropped up to date, on systems that say.
	countDrops()
}

// An upstreamConn is the socket of a session to the upstream.
type upstreamConn interface {
	// send passes on datagrams from the first one on and says how many; where
	// that is none, why. Where it is not all of them, something was in the way,
	// and the next call finds out whether it still is.
	send(ps [][]byte) (int, error)
	talksToItself() bool
	close()
}

// A datagram is what a client has sent.
type datagram struct {
	src     netip.AddrPort // unmapped
	local   netip.Addr     // where to, on a wildcard, if it is known
	payload []byte
	size    int // of the payload; more than there is where the kernel has cut it

	// From here on it is for known to say.
	client netip.AddrPort // src, or whom a PROXY header names
	to     netip.AddrPort // where the client has sent to, where a header says so and the upstream is told
	forged bool           // begins with a header, which is not src's to send
	passed bool           // a dry run has let it pass, and counted that
}

func (d *datagram) flow() flow { return flow{client: d.client, peer: d.src, to: d.to, local: d.local} }

// A batch is what it takes to relay the datagrams of one read. It is reused.
type batch struct {
	tally
	requests  [batchSize]engine.Request
	decisions [batchSize]policy.Decision
	touched   [batchSize]*session // those that have datagrams, in order of their first
	next      [batchSize]int      // the next one of the same session, plus 1
	out       [batchSize][]byte
}

func newUDPLoop(s *udpServer) (*udpLoop, error) {
	l := &udpLoop{udpServer: s, quit: make(chan struct{})}
	l.table.init(l)
	var err error
	l.path, err = s.newPath(l)
	return l, err
}

func (l *udpLoop) serve() {
	l.done.Go(l.sweep)
	l.path.serve()
}

// retire ends both directions and all sessions, and lets go of the listening
// socket.
func (l *udpLoop) retire() {
	l.path.stop()
	l.table.endAll(l.now())
	l.path.close()
}

// close closes the sockets that are left, after retire.
func (l *udpLoop) close() {
	close(l.quit)
	l.done.Wait()
	l.table.close()
}

func (l *udpLoop) sweep() {
	tick := time.NewTicker(min(max(l.cfg.UDP.SessionIdle/4, sweepLeast), sweepMost))
	defer tick.Stop()
	for {
		select {
		case <-l.quit:
			return
		case <-tick.C:
			l.table.sweep(l.now())
			l.self.of(UDP).refresh()
			if l == l.loops[0] { // speaks for all
				l.warnDropped()
			}
		}
	}
}

// relay counts what clients have sent, at most batchSize datagrams, decides on
// it, and forwards or drops it. It makes use of ds. It wants mu.
func (l *udpLoop) relay(ds []datagram) {
	l.batch.tally = tally{}
	l.forward(l.admit(l.known(ds)))
	l.count.add(&l.batch.tally)
}

// known drops what shows by itself that there is nobody to answer to.
func (l *udpLoop) known(ds []datagram) []datagram {
	t, self := &l.batch.tally, l.self.of(UDP)
	rest := ds[:0]
	for i := range ds {
		d := &ds[i]
		d.client = d.src
		t.packets++
		switch {
		case Bogon(d.src):
			t.dropped[dropBogon]++
		case self.has(d.src) || d.src == netip.AddrPortFrom(d.local, l.cfg.Listen.Port()):
			t.dropped[dropSelf]++
		case l.proxies != nil && !l.unwrap(d):
		default:
			rest = append(rest, *d)
		}
		t.bytes += int64(d.size)
	}
	return rest
}

// admit drops what the engine denies, and what is too long.
func (l *udpLoop) admit(ds []datagram) []datagram {
	b := &l.batch
	for i := range ds {
		b.requests[i] = l.request(&ds[i])
	}
	l.engine.EvaluateBatch(b.requests[:len(ds)], b.decisions[:len(ds)])
	rest := ds[:0]
	for i := range ds {
		switch {
		case !b.decisions[i].Allowed && l.refuse(&ds[i], &b.requests[i], b.decisions[i]):
		case ds[i].forged:
			b.dropped[dropProxyHeader]++
		case l.tooLong(&ds[i]):
			b.dropped[dropOversize]++
		default:
			rest = append(rest, ds[i])
		}
	}
	return rest
}

// request is what the engine is asked about a datagram.
func (l *udpLoop) request(d *datagram) engine.Request {
	r := engine.Request{Endpoint: d.client, Policy: l.cfg.PolicyOf(d.payload), Bytes: d.size}
	if l.cfg.UDP.LockoutRequires == LockoutEstablished {
		f := d.flow()
		s := l.table.of(&f)
		r.NoLockout = s == nil || !s.answered
	}
	return r
}

// refuse counts the first denial of a datagram, and says whether it is one in
// earnest.
func (l *udpLoop) refuse(d *datagram, r *engine.Request, no policy.Decision) bool {
	reason := denial(l.engine, r.Endpoint, no)
	if l.cfg.DryRun || l.engine.DryRun(r.Policy) {
		if !d.passed {
			l.batch.wouldDrop[reason]++
		}
		d.passed = true
		return false
	}
	l.batch.dropped[reason]++
	if reason == dropHardLockout {
		l.filter.Locked(r.Endpoint)
	}
	return true
}

// Bogon is a source that no answer can be sent to.
func Bogon(src netip.AddrPort) bool {
	a := src.Addr()
	return src.Port() == 0 || a.IsUnspecified() || a.IsMulticast() || a == broadcast
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// forward sends each session's datagrams together and in their order.
func (l *udpLoop) forward(ds []datagram) {
	if len(ds) == 0 {
		return
	}
	b, now := &l.batch, l.now()
	touched := b.touched[:0]
	for i := range ds {
		s, reason := l.sessionOf(&ds[i], now)
		if s == nil {
			b.dropped[reason]++
			continue
		}
		s.seen = now
		s.proof.received(ds[i].size)
		b.next[i] = 0
		if s.first == 0 {
			s.first = i + 1
			touched = append(touched, s)
		} else {
			b.next[s.last-1] = i + 1
		}
		s.last = i + 1
	}
	for i, s := range touched {
		out := b.out[:0]
		for at := s.first; at != 0; at = b.next[at-1] {
			out = append(out, ds[at-1].payload)
		}
		s.first = 0
		l.sendAll(s.conn, out)
		touched[i] = nil
	}
}

// sendAll counts each datagram once: as forwarded, or as dropped when it could
// not be sent at once.
func (l *udpLoop) sendAll(c upstreamConn, ps [][]byte) {
	// stopped: the kernel has passed on what is before ps[0], and kept why it
	// went no further to itself.
	stopped, again := false, false
	for len(ps) > 0 {
		n, err := l.send(c, ps)
		if n > 0 {
			if stopped { // so it was nothing about ps[0]
				l.upstreamError(syscall.ECONNREFUSED)
			}
			l.batch.forwarded += int64(n)
			ps = ps[n:]
			stopped, again = true, false
			continue
		}
		l.upstreamError(err)
		stopped = false
		if !again && errors.Is(err, syscall.ECONNREFUSED) {
			// The kernel kept this from an earlier datagram, which an ICMP
			// message answered; this one has not been sent yet.
			again = true
			continue
		}
		l.batch.dropped[dropUpstreamError]++
		ps, again = ps[1:], false
	}
}

// sessionOf is the session of a datagram, a new one where there is none and
// may be one more, or nil and why there is none.
func (l *udpLoop) sessionOf(d *datagram, now int64) (*session, dropReason) {
	f := d.flow()
	if s := l.table.of(&f); s != nil {
		return s, 0
	}
	if l.draining.Load() {
		return nil, dropDraining
	}
	if most := l.most.Load(); l.sessions.Add(1) > most {
		l.sessions.Add(-1)
		l.count.sessionsRejected.Add(1)
		if n, ok := l.fullGate.pass(); ok {
			l.log.Warn("session table full", "listener", l.cfg.Name,
				"max_sessions", most, "suppressed", n)
		}
		return nil, dropSessionsFull
	}
	s := &session{flow: f, header: l.header(d), seen: now}
	if err := l.table.open(s); err != nil {
		l.sessions.Add(-1)
		l.upstreamError(err)
		return nil, dropUpstreamError
	}
	l.count.sessionsActive.Add(1)
	return s, 0
}

// mayReply says whether a reply goes to the client of its session. One that does
// not keeps no session alive.
func (l *udpLoop) mayReply(s *session, size int, now int64) bool {
	s.answered = true
	if s.proof.allows(size, l.cfg.UDP.MaxReplyRatio) {
		s.seen = now
		return true
	}
	l.count.repliesSuppressed.Add(1)
	if n, ok := l.ratioGate.pass(); ok {
		l.log.Warn("replies to clients that have not answered yet are over udp.max_reply_ratio",
			"listener", l.cfg.Name, "max_reply_ratio", l.cfg.UDP.MaxReplyRatio, "suppressed", n)
	}
	return false
}

// upstreamError counts what went wrong on the way to or from the upstream, or
// back to a client.
func (l *udpLoop) upstreamError(err error) {
	l.count.upstreamErrors.Add(1)
	if n, ok := l.errorGate.pass(); ok {
		l.log.Warn("udp relay", "listener", l.cfg.Name, "upstream", l.cfg.Upstream,
			"error", err, "suppressed", n)
	}
}
