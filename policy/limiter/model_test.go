package limiter

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A model is a limiter as somebody would write it who has all the time in the
// world: it goes from one nanosecond to the next, keeps every permit on a list
// and finds a RetryAfter by waiting.
type model struct {
	limit int64
	q     Queue
	now   int64

	free   func(m *model) int64
	manual bool
	// token bucket: units, of which a token is period and a nanosecond brings rate
	units, period, rate int64
	credited            int64 // manual: until when
	// windows: what was taken in which segment and has not come back
	taken             map[int64]int64
	segment, segments int64
	// concurrency
	out int64

	waiters []modelWaiter // oldest first
	stats   Stats
}

type modelWaiter struct {
	id       int
	n        int64
	deadline int64
}

func (m *model) clone() *model {
	c := *m
	c.taken = make(map[int64]int64)
	for k, v := range m.taken {
		c.taken[k] = v
	}
	c.waiters = slices.Clone(m.waiters)
	return &c
}

func (m *model) take(n int64) bool {
	if m.free(m) < max(n, 1) {
		return false
	}
	switch {
	case m.rate > 0:
		if m.units == m.limit*m.period {
			m.credited = m.now
		}
		m.units -= n * m.period
	case m.segment > 0:
		m.taken[m.now/m.segment] += n
	default:
		m.out += n
	}
	return true
}

// An outcome is what became of a call: granted, or denied for a reason.
type outcome struct {
	id     int
	reason string // "" = granted
	retry  int64  // -1 = none
	slack  int64  // how much longer it may be: a nanosecond for each who waits ahead
}

// pass lets a nanosecond pass.
func (m *model) pass() []outcome {
	m.now++
	if m.manual {
		return m.settle()
	}
	return m.replenish()
}

// replenish brings what is due.
func (m *model) replenish() []outcome {
	m.units = min(m.units+(m.now-m.credited)*m.rate, m.limit*m.period)
	m.credited = m.now
	for segment := range m.taken {
		if segment <= m.now/m.segment-m.segments {
			delete(m.taken, segment)
		}
	}
	return m.settle()
}

// settle serves and denies waiters.
func (m *model) settle() (settled []outcome) {
	for len(m.waiters) > 0 {
		next := 0
		if m.q.Order == NewestFirst {
			next = len(m.waiters) - 1
		}
		w := m.waiters[next]
		switch {
		case m.take(w.n):
			m.waiters = slices.Delete(m.waiters, next, next+1)
			m.stats.Successful++
			settled = append(settled, outcome{id: w.id, retry: -1})
		case m.waiters[0].deadline <= m.now:
			w := m.waiters[0]
			m.waiters = m.waiters[1:]
			settled = append(settled, m.deny(w.id, w.n, "waited too long"))
		default:
			return settled
		}
	}
	return settled
}

func (m *model) may(n int64) bool {
	return (len(m.waiters) == 0 || m.q.Order == NewestFirst) && m.take(n)
}

func (m *model) deny(id int, n int64, reason string) outcome {
	m.stats.Failed++
	o := outcome{id: id, reason: reason, retry: m.retryAfter(n)}
	if m.rate > 1 && m.q.Order == OldestFirst {
		o.slack = int64(len(m.waiters))
	}
	return o
}

// retryAfter is found by waiting. Without a MaxWait nobody leaves the queue
// meanwhile but those who are served.
func (m *model) retryAfter(n int64) int64 {
	if m.rate == 0 && m.segment == 0 {
		return -1
	}
	c := m.clone()
	for i := range c.waiters {
		c.waiters[i].deadline = 1 << 62
	}
	if c.q.Order == NewestFirst {
		c.waiters = nil
	}
	for c.replenish(); !c.may(n); c.replenish() {
		c.now++
	}
	return c.now - m.now
}

func (m *model) queued() (permits int64) {
	for _, w := range m.waiters {
		permits += w.n
	}
	return permits
}

// acquire returns what became of the call and of others; nobody is settled
// where it waits.
func (m *model) acquire(id int, n int64, wait bool) (settled []outcome) {
	limit := int64(m.q.Limit)
	switch {
	case m.may(n):
		m.stats.Successful++
		return []outcome{{id: id, retry: -1}}
	case !wait || limit == 0:
		return []outcome{m.deny(id, n, "limit")}
	case n > limit || m.q.Order == OldestFirst && m.queued()+n > limit:
		return []outcome{m.deny(id, n, "queue limit reached")}
	}
	for m.queued()+n > limit {
		w := m.waiters[0]
		m.waiters = m.waiters[1:]
		settled = append(settled, m.deny(w.id, w.n, "evicted by a newer request"))
	}
	w := modelWaiter{id: id, n: n, deadline: 1 << 62}
	if m.q.MaxWait > 0 {
		w.deadline = m.now + int64(m.q.MaxWait)
	}
	m.waiters = append(m.waiters, w)
	return settled
}

// A modelLease is a lease and the permits that the model took for it.
type modelLease struct {
	Lease
	n int64
}

// A pair is a model and the limiter that has to do as it says.
type pair struct {
	t       *testing.T
	r       *rand.Rand
	m       *model
	l       Limiter
	calls   map[int]*call // those that wait
	cancels map[int]context.CancelFunc
	asked   map[int]int64
	held    []modelLease
	trace   []string
}

func newPair(t *testing.T, r *rand.Rand) *pair {
	q := Queue{Limit: r.IntN(8), Order: Order(r.IntN(2)), MaxWait: time.Duration(r.IntN(3) * 20)}
	limit := 1 + r.IntN(6)
	p := &pair{t: t, r: r, calls: map[int]*call{}, cancels: map[int]context.CancelFunc{}, asked: map[int]int64{}}
	p.m = &model{limit: int64(limit), q: q, taken: map[int64]int64{}, manual: r.IntN(3) == 0}
	var err error
	switch r.IntN(4) {
	case 0:
		p.m.period, p.m.rate = 1+r.Int64N(20), 1+r.Int64N(4)
		p.m.units = p.m.limit * p.m.period
		p.m.free = func(m *model) int64 { return m.units / m.period }
		p.l, err = NewTokenBucket(TokenBucketOptions{TokenLimit: limit, TokensPerPeriod: int(p.m.rate), Period: time.Duration(p.m.period), Queue: q, Manual: p.m.manual})
	case 1:
		p.m.segment, p.m.segments = 1+r.Int64N(20), 1
		p.m.free = (*model).inWindow
		p.l, err = NewFixedWindow(FixedWindowOptions{PermitLimit: limit, Window: time.Duration(p.m.segment), Queue: q, Manual: p.m.manual})
	case 2:
		p.m.segment, p.m.segments = 1+r.Int64N(10), 1+r.Int64N(5)
		p.m.free = (*model).inWindow
		p.l, err = NewSlidingWindow(SlidingWindowOptions{PermitLimit: limit, Window: time.Duration(p.m.segment * p.m.segments), Segments: int(p.m.segments), Queue: q, Manual: p.m.manual})
	default:
		p.m.free = func(m *model) int64 { return m.limit - m.out }
		p.l, err = NewConcurrency(ConcurrencyOptions{PermitLimit: limit, Queue: q})
	}
	require.NoError(t, err)
	p.log("%T manual %t limit %d queue %+v period %d rate %d segment %d x %d", p.l, p.m.manual, limit, q, p.m.period, p.m.rate, p.m.segment, p.m.segments)
	return p
}

func (m *model) inWindow() int64 {
	free := m.limit
	for _, n := range m.taken {
		free -= n
	}
	return free
}

func (p *pair) log(format string, args ...any) {
	p.trace = append(p.trace, fmt.Sprintf("%d: "+format, append([]any{p.m.now}, args...)...))
}

// step does something to both and compares.
func (p *pair) step(id int) {
	n := p.r.Int64N(p.m.limit + 1)
	p.asked[id] = n
	var settled []outcome
	switch p.r.IntN(11) {
	case 0, 1, 2:
		p.log("try %d of %d", id, n)
		settled = p.m.acquire(id, n, false)
		p.calls[id] = begin(func() (Lease, error) { return p.l.TryAcquire(int(n)) })
	case 3, 4, 5:
		p.log("acquire %d of %d", id, n)
		ctx, cancel := context.WithCancel(context.Background())
		settled = p.m.acquire(id, n, true)
		p.calls[id], p.cancels[id] = acquire(ctx, p.l, int(n)), cancel
	case 6:
		settled = p.cancel()
	case 7:
		if len(p.held) > 0 {
			lease := p.held[0]
			p.held = p.held[1:]
			lease.Release()
			if _, ok := p.l.(*Concurrency); ok {
				p.log("release %d", lease.n)
				p.m.out -= lease.n
				settled = p.m.settle()
			}
		}
	case 8:
		if l, ok := p.l.(Replenisher); ok && l.Replenish() {
			p.log("replenish")
			settled = p.m.replenish()
		}
	default:
		for range p.r.IntN(12) {
			settled = append(settled, p.m.pass()...)
			time.Sleep(time.Nanosecond)
		}
	}
	p.compare(settled)
}

func (p *pair) cancel() []outcome {
	if len(p.m.waiters) == 0 {
		return nil
	}
	i := p.r.IntN(len(p.m.waiters))
	id := p.m.waiters[i].id
	p.log("cancel %d", id)
	p.m.waiters = slices.Delete(p.m.waiters, i, i+1)
	p.cancels[id]()
	p.calls[id].failed(p.t, context.Canceled)
	delete(p.calls, id)
	return p.m.settle()
}

func (p *pair) compare(settled []outcome) {
	defer func() {
		if p.t.Failed() {
			for _, line := range p.trace {
				p.t.Log(line)
			}
		}
	}()
	for _, o := range settled {
		p.log("%+v", o)
		c := p.calls[o.id]
		delete(p.calls, o.id)
		require.True(p.t, c.ended(), "%d is settled", o.id)
		require.NoError(p.t, c.err)
		reason := c.lease.Reason()
		if o.reason == "limit" {
			o.reason = limitReached(p.l)
		}
		require.Equal(p.t, o.reason, reason, "%d", o.id)
		require.Equal(p.t, o.reason == "", c.lease.Acquired())
		retry, known := c.lease.RetryAfter()
		require.Equal(p.t, o.retry >= 0, known)
		require.GreaterOrEqual(p.t, int64(retry), max(0, o.retry), "RetryAfter of %d", o.id)
		require.LessOrEqual(p.t, int64(retry), max(0, o.retry)+o.slack, "RetryAfter of %d", o.id)
		if o.reason == "" {
			p.held = append(p.held, modelLease{c.lease, p.asked[o.id]})
		}
	}
	for id, c := range p.calls {
		require.False(p.t, c.ended(), "%d waits", id)
	}
	p.m.stats.Available, p.m.stats.Queued = p.m.free(p.m), p.m.queued()
	require.Equal(p.t, p.m.stats, p.l.Stats())
	if _, ok := p.l.Idle(); ok {
		require.Equal(p.t, p.m.limit, p.m.stats.Available)
		require.Empty(p.t, p.m.waiters)
	}
}

// Every limiter does what the model does, in any sequence of calls: who is
// granted and denied when and why, the order of the queue, every RetryAfter and
// the statistics.
func TestModel(t *testing.T) {
	seed := rand.Uint64()
	runs := 300
	if testing.Short() {
		runs = 30
	}
	for i := range runs {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			p := newPair(t, r)
			defer func() {
				require.NoError(t, p.l.Close())
				if t.Failed() {
					t.Logf("seed %d, run %d", seed, i)
				}
			}()
			for id := range 200 {
				p.step(id)
			}
		})
	}
}
