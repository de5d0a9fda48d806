package replay

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/config"
	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/netx"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/shard"
)

// peakWindow is what an endpoint's peak rate is taken over: time is cut into such
// windows from the first packet of the capture on.
const peakWindow = 10 * time.Second

// A trial is the judge that decides as the gateway would.
type trial struct {
	config *config.Config
	engine *engine.Replay
	start  time.Time
	now    time.Time
	known  map[shard.Key]*standing
	own    func(netx.Protocol, netip.AddrPort) bool // whether it is a listener's
	names  map[engine.PolicyID]string

	sessions sessions
}

// A standing is what has happened to an endpoint under a policy.
type standing struct {
	policy   string
	tracked  bool // has had a bucket of its own
	packets  peak
	bytes    peak
	denied   int64
	short    bool // a stream of it was without tokens
	lockouts int64
	locked   time.Duration
	lowest   float64

	// Times since the start.
	firstDenied, firstLockout, lockedUntil, lowestAt time.Duration
}

// A peak counts, and knows the most in one window.
type peak struct {
	total, most, now int64
	window           int64
}

func (p *peak) add(n, window int64) {
	if p.window != window {
		p.window, p.now = window, 0
	}
	p.total += n
	p.now += n
	p.most = max(p.most, p.now)
}

func newTrial(c *config.Config) *trial {
	return &trial{config: c, known: map[shard.Key]*standing{}, sessions: sessions{open: map[flow]*session{}}}
}

func (t *trial) begin(start time.Time, ls *listeners) (err error) {
	t.start, t.now, t.own, t.names = start, start, ls.own, ls.policies
	c := t.config
	if t.engine, err = engine.NewReplay(c.Engine, start); err != nil {
		return err
	}
	if err := errors.Join(t.engine.Exempt(c.Exempt...), t.engine.Deny(c.Deny...)); err != nil {
		return err
	}
	return ls.under(t.engine.Engine, c)
}

func (t *trial) close() {
	if t.engine != nil {
		t.engine.Close()
	}
}

func (t *trial) tick(at time.Time) {
	t.now = at
	t.engine.Advance(at)
	t.sessions.sweep(t.since())
}

func (t *trial) since() time.Duration { return t.now.Sub(t.start) }

func (t *trial) window() int64 { return int64(t.since() / peakWindow) }

func (t *trial) datagram(l *listener, s *segment) {
	r := &l.report
	r.Packets++
	r.Bytes += int64(s.bytes)
	switch {
	case netx.Bogon(s.src):
		r.Dropped["bogon"]++
	case t.own(l.Protocol, s.src) || s.src == s.dst:
		r.Dropped["self"]++
	case s.heard && !t.unlisted(l, s.src, l.PolicyOf(s.payload), &s.passed):
	case s.headless:
		r.Dropped[proxyHeader]++
	case !t.decide(l, t.request(l, s), &s.passed):
	case s.forged:
		r.Dropped[proxyHeader]++
	case s.bytes > l.MaxPayload(s.header):
		r.Dropped["oversize"]++
	default:
		r.Forwarded++
		if l.UDP.LockoutRequires == netx.LockoutEstablished {
			t.sessions.pass(flow{s.src, s.dst}, t.since(), cmp.Or(l.UDP.SessionIdle, netx.DefaultSessionIdle))
		}
	}
}

func (t *trial) request(l *listener, s *segment) engine.Request {
	q := engine.Request{Endpoint: s.header.Source, Policy: l.policyFor(s), Bytes: s.bytes}
	if l.UDP.LockoutRequires == netx.LockoutEstablished {
		session := t.sessions.find(flow{s.src, s.dst}, t.since())
		q.NoLockout = session == nil || !session.answered
	}
	return q
}

func (t *trial) answer(s *segment) { t.sessions.answer(flow{s.dst, s.src}, t.since()) }

func (t *trial) open(l *listener, c *connection) bool {
	l.report.Packets++
	allowed := t.decide(l, engine.Request{Endpoint: c.from, Policy: l.Policy}, &c.passed)
	if allowed {
		l.report.Forwarded++
	}
	return allowed
}

// decide asks the engine, and counts what it denies. It says whether the packet
// passes.
func (t *trial) decide(l *listener, q engine.Request, passed *bool) bool {
	d := t.engine.Decide(q)
	key := t.engine.Key(q.Endpoint, q.Policy)
	s := t.standing(key)
	s.packets.add(1, t.window())
	s.bytes.add(int64(q.Bytes), t.window())
	left, tracked := t.engine.Left(key)
	s.tracked = s.tracked || tracked
	switch {
	case d.Allowed:
		s.lower(left, t.since())
	case s.denied == 0:
		s.firstDenied = t.since()
	}
	if d.Allowed {
		return true
	}
	s.denied++
	reason := netx.Denial(t.engine.Engine, q.Endpoint, d)
	if tracked && reason == policy.HardLockout.String() && t.since() >= s.lockedUntil {
		s.lockouts++
		s.locked += d.RetryAfter
		s.lockedUntil = t.since() + d.RetryAfter
		if s.lockouts == 1 {
			s.firstLockout = t.since()
		}
	}
	return t.deny(l, q.Policy, reason, passed)
}

func (t *trial) lets(l *listener, c *connection) bool {
	return t.unlisted(l, c.from, l.Policy, &c.passed)
}

// unlisted says whether the lists let a proxy in.
func (t *trial) unlisted(l *listener, proxy netip.AddrPort, id engine.PolicyID, passed *bool) bool {
	d, listed := t.engine.ListDecision(proxy.Addr())
	if !listed || d.Allowed {
		return true
	}
	return t.deny(l, id, netx.Denial(t.engine.Engine, proxy, d), passed)
}

// deny counts the first denial of a packet, and says whether a dry run lets it pass.
func (t *trial) deny(l *listener, id engine.PolicyID, reason string, passed *bool) bool {
	if t.dryRun(l, id) {
		if !*passed {
			l.report.WouldDrop[reason]++
		}
		*passed = true
		return true
	}
	l.report.Dropped[reason]++
	return false
}

func (t *trial) dryRun(l *listener, id engine.PolicyID) bool { return l.DryRun || t.engine.DryRun(id) }

// data charges the bytes of a stream. A client that is paused slows down, which a
// capture cannot show: what there are no tokens for is counted and not charged.
func (t *trial) data(l *listener, c *connection, n int) bool {
	l.report.Bytes += int64(n)
	key := t.engine.Key(c.from, l.Policy)
	s := t.standing(key)
	s.bytes.add(int64(n), t.window())
	if t.dryRun(l, l.Policy) {
		return true
	}
	took, _ := t.engine.TakeBytes(c.from, l.Policy, n)
	left, tracked := t.engine.Left(key)
	s.tracked = s.tracked || tracked
	s.lower(left, t.since())
	if took == n {
		return true
	}
	s.short = true
	if l.TCP.OnLimit == netx.CloseConn {
		l.report.Closed++
		return false
	}
	l.report.LateBytes += int64(n - took)
	if !c.paused {
		c.paused = true
		l.report.Paused++
	}
	return true
}

func (t *trial) standing(key shard.Key) *standing {
	s := t.known[key]
	if s == nil {
		s = &standing{policy: t.names[engine.PolicyID(key.Policy)], lowest: 1, lowestAt: t.since()}
		t.known[key] = s
	}
	return s
}

func (s *standing) lower(left float64, at time.Duration) {
	if left < s.lowest {
		s.lowest, s.lowestAt = left, at
	}
}

// report fills in who was denied, and who came near to that.
func (t *trial) report(r *Result, limit int) {
	var denied, near []shard.Key
	for key, s := range t.known {
		r.Endpoints.Seen++
		if s.denied > 0 {
			r.Endpoints.Denied++
			denied = append(denied, key)
		} else if s.tracked && !s.short {
			near = append(near, key)
		}
		if s.lockouts > 0 {
			r.Endpoints.LockedOut++
		}
	}
	r.Denied = t.list(denied, limit, func(a, b *standing) int {
		return cmp.Or(cmp.Compare(min(b.lockouts, 1), min(a.lockouts, 1)), cmp.Compare(b.denied, a.denied))
	})
	r.Nearest = t.list(near, limit, func(a, b *standing) int {
		return cmp.Or(cmp.Compare(a.lowest, b.lowest), cmp.Compare(b.packets.total, a.packets.total))
	})
}

// list gives the first of the keys in an order, as many as limit.
func (t *trial) list(keys []shard.Key, limit int, order func(a, b *standing) int) []Endpoint {
	slices.SortFunc(keys, func(a, b shard.Key) int {
		return cmp.Or(order(t.known[a], t.known[b]), cmp.Compare(a.Hi, b.Hi), cmp.Compare(a.Lo, b.Lo),
			cmp.Compare(a.Port, b.Port), cmp.Compare(a.Policy, b.Policy))
	})
	if limit > 0 {
		keys = keys[:min(limit, len(keys))]
	}
	list := make([]Endpoint, len(keys))
	for i, key := range keys {
		list[i] = t.endpoint(key)
	}
	return list
}

func (t *trial) endpoint(key shard.Key) Endpoint {
	s := t.known[key]
	e := Endpoint{
		Endpoint: t.engine.Endpoint(key), Policy: s.policy,
		Packets: s.packets.total, Bytes: s.bytes.total, Denied: s.denied,
		Lockouts: s.lockouts, LockedFor: s.locked.Seconds(),
		LowestTokens: s.lowest * 100, LowestAt: t.at(s.lowestAt),
		PeakPerSecond: float64(s.packets.most) / peakWindow.Seconds(),
	}
	if s.denied > 0 {
		e.FirstDenied = t.at(s.firstDenied)
	}
	if s.lockouts > 0 {
		e.FirstLockout = t.at(s.firstLockout)
	}
	return e
}

func (t *trial) at(d time.Duration) time.Time { return t.start.Add(d).UTC() }
