package netx

import (
	"net/netip"
	"time"
)

const (
	// quarantine is how long the socket of an ended session stays open, unread.
	// Its port cannot be given to another session meanwhile, so that a late
	// reply does not reach the wrong client.
	quarantine = 3 * time.Second
	// sweepStep is how many sessions are looked at under one hold of the lock.
	sweepStep = 64
)

// A flow tells sessions apart: the client, the proxy that it sends through, if it
// does, and where it has sent to.
type flow struct {
	client netip.AddrPort
	peer   netip.AddrPort // who is answered: the client or its proxy
	to     netip.AddrPort // where a header says so and the upstream is told; else zero
	local  netip.Addr     // from which it is answered; zero where the listener has but one
}

// A session carries the datagrams of one client to the upstream through a
// socket, and so a port, of its own. The loop's mu guards what changes.
type session struct {
	flow
	conn   upstreamConn
	header []byte // before each datagram to the upstream; nil = none
	index  int    // in sessionTable.all, -1 once it has ended
	seen   int64  // when something last passed, either way

	answered bool // by the upstream
	proof    proof

	first, last int // in a batch: its datagrams, plus 1; 0 between batches
}

// ended is a socket in quarantine.
type ended struct {
	conn upstreamConn
	at   int64
}

// A sessionTable holds the sessions of one loop, guarded by the loop's mu.
type sessionTable struct {
	loop  *udpLoop
	all   []*session // in no order, so that a sweep can go in steps
	ended []ended    // oldest first

	// Most clients come through no proxy and send to the same address. They are
	// told by their own alone, at less than half the cost (BenchmarkSessionOf).
	usual    netip.Addr // the address
	byClient map[netip.AddrPort]*session
	byFlow   map[flow]*session // the others
}

func (t *sessionTable) init(l *udpLoop) {
	t.loop = l
	t.byClient = make(map[netip.AddrPort]*session)
	t.byFlow = make(map[flow]*session)
}

func (t *sessionTable) isUsual(f *flow) bool {
	return f.client == f.peer && f.local == t.usual && !f.to.IsValid()
}

// of is the session of a flow, nil where there is none.
func (t *sessionTable) of(f *flow) *session {
	if t.isUsual(f) {
		return t.byClient[f.client]
	}
	return t.byFlow[*f]
}

func (t *sessionTable) add(s *session) {
	if len(t.all) == 0 {
		t.usual = s.local
	}
	if t.isUsual(&s.flow) {
		t.byClient[s.client] = s
	} else {
		t.byFlow[s.flow] = s
	}
	s.index = len(t.all)
	t.all = append(t.all, s)
}

func (t *sessionTable) remove(s *session) {
	if t.isUsual(&s.flow) {
		delete(t.byClient, s.client)
	} else {
		delete(t.byFlow, s.flow)
	}
	last := len(t.all) - 1
	t.all[s.index] = t.all[last]
	t.all[s.index].index = s.index
	t.all[last] = nil
	t.all = t.all[:last]
	s.index = -1
}

// open gives a session its socket and takes it in.
func (t *sessionTable) open(s *session) (err error) {
	dial := func() (upstreamConn, error) { return t.loop.path.dial(s.header) }
	if s.conn, err = notToItself(dial); err != nil {
		return err
	}
	if err := t.loop.path.watch(s); err != nil {
		s.conn.close()
		return err
	}
	t.add(s)
	return nil
}

// notToItself dials once more where a socket has got the port of the upstream
// for its own, as can happen while no server on this machine holds that: it
// would answer itself, and the server could not come back.
func notToItself(dial func() (upstreamConn, error)) (upstreamConn, error) {
	c, err := dial()
	if err != nil || !c.talksToItself() {
		return c, err
	}
	defer c.close() // only now, so that the next one has another port
	return dial()
}

// sweep ends the sessions that have been idle for long enough, and the
// quarantine of the sockets that have been in it long enough.
func (t *sessionTable) sweep(now int64) {
	deadline := now - int64(t.loop.cfg.UDP.SessionIdle)
	for to := t.endIdle(-1, deadline, now); to > 0; {
		to = t.endIdle(to, deadline, now)
	}
	t.loop.mu.Lock()
	defer t.loop.mu.Unlock()
	for len(t.ended) > 0 && t.ended[0].at <= now-int64(quarantine) {
		t.closeOldest()
	}
}

// endIdle looks at the sessions just before to, or at the last ones where that
// is negative, and says where it has got to. Backwards, as the last one of all
// takes the place of one that ends.
func (t *sessionTable) endIdle(to int, deadline, now int64) int {
	t.loop.mu.Lock()
	defer t.loop.mu.Unlock()
	if to < 0 || to > len(t.all) {
		to = len(t.all)
	}
	from := max(0, to-sweepStep)
	for i := to - 1; i >= from; i-- {
		if s := t.all[i]; s.seen <= deadline {
			t.end(s, now)
		}
	}
	return from
}

// end takes a session out and puts its socket into quarantine.
func (t *sessionTable) end(s *session, now int64) {
	t.loop.path.unwatch(s)
	t.remove(s)
	if len(t.ended) >= t.quarantineCap() {
		t.closeOldest()
	}
	t.ended = append(t.ended, ended{s.conn, now})
	t.loop.count.sessionsActive.Add(-1)
	t.loop.sessions.Add(-1)
}

// quarantineCap is the loop's part of what all loops together may hold.
func (t *sessionTable) quarantineCap() int {
	return max(1, int(t.loop.most.Load())/quarantineShare/len(t.loop.loops))
}

func (t *sessionTable) closeOldest() {
	t.ended[0].conn.close()
	t.ended[0].conn = nil
	t.ended = t.ended[1:]
}

func (t *sessionTable) endAll(now int64) {
	t.loop.mu.Lock()
	defer t.loop.mu.Unlock()
	for len(t.all) > 0 {
		t.end(t.all[len(t.all)-1], now)
	}
}

func (t *sessionTable) inQuarantine() bool {
	t.loop.mu.Lock()
	defer t.loop.mu.Unlock()
	return len(t.ended) > 0
}

// close ends the quarantine of all.
func (t *sessionTable) close() {
	t.loop.mu.Lock()
	defer t.loop.mu.Unlock()
	for len(t.ended) > 0 {
		t.closeOldest()
	}
}
