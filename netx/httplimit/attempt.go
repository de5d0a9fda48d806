package httplimit

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ee4278a0/throttled/policy/limiter"
)

// A result is how the attempt for a request ended.
type result uint8

const (
	acquired result = iota
	endpointLimiter
	globalLimiter
	requestCanceled
	resultCount
	panicked // is in no metric
)

var resultLabels = [resultCount]string{
	acquired:        "acquired",
	endpointLimiter: "endpoint_limiter",
	globalLimiter:   "global_limiter",
	requestCanceled: "request_canceled",
}

// A route is what applies to a request: its policy and the global limiter.
type route struct {
	name    string
	limiter limiter.Selective[*attempt] // the policy's first, then the global one; nil = no limits
	hooks   [resultCount]func(http.ResponseWriter, *http.Request, limiter.Lease)
	series  *series // nil without metrics
}

// newRoute makes the route of a policy, or without a limiter that of the
// requests that only the global one applies to.
func (l *Limits) newRoute(name string, p Policy) (*route, error) {
	rt := &route{name: name, series: l.metrics.of(name)}
	rt.hooks[globalLimiter] = l.options.OnRejected
	rt.hooks[endpointLimiter] = p.OnRejected
	if p.OnRejected == nil {
		rt.hooks[endpointLimiter] = l.options.OnRejected
	}
	var members []limiter.Selective[*attempt]
	if p.Limiter != nil {
		members = append(members, member{p.Limiter, endpointLimiter})
	}
	if l.options.Global != nil {
		members = append(members, member{l.options.Global, globalLimiter})
	}
	var err error
	switch len(members) {
	case 0:
	case 1:
		rt.limiter = members[0]
	default:
		rt.limiter, err = limiter.ChainSelective(members...) // it gives back what the first granted where the second does not
	}
	return rt, err
}

// A member is a limiter that leaves a note in the attempt that it was asked.
type member struct {
	limiter.Selective[*http.Request]
	stage result // what a denial by it is
}

func (m member) TryAcquire(a *attempt, n int) (limiter.Lease, error) {
	a.stage = m.stage
	return m.Selective.TryAcquire(a.request, n)
}

func (m member) Acquire(ctx context.Context, a *attempt, n int) (limiter.Lease, error) {
	a.stage = m.stage
	return m.Selective.Acquire(ctx, a.request, n)
}

func (m member) Stats(a *attempt) (limiter.Stats, error) { return m.Selective.Stats(a.request) }

// An attempt is the one try to get what a request needs. It is also the context
// of that try, the request's own, in which it sees whether the request has to
// wait: a limiter asks for Done only then.
type attempt struct {
	context.Context
	request *http.Request
	series  *series // nil without metrics
	base    time.Time
	stage   result       // that of the limiter asked last
	since   atomic.Int64 // when the wait began, in nanoseconds since base; or one of the following
}

const (
	notWaiting = -1
	attempted  = -2 // the attempt is over, and Done no longer the beginning of a wait
)

// Done tells when the request has ended.
func (a *attempt) Done() <-chan struct{} {
	if a.since.CompareAndSwap(notWaiting, int64(time.Since(a.base))) && a.series != nil {
		a.series.queued().Inc()
	}
	return a.Context.Done()
}

// finish ends the attempt and tells how long it had to wait, if it had to.
func (a *attempt) finish(end result) (wait time.Duration, waited bool) {
	since := a.since.Swap(attempted)
	if since < 0 {
		return 0, false
	}
	wait = time.Since(a.base) - time.Duration(since)
	if a.series != nil {
		a.series.queued().Dec()
		a.series.waited(end, wait)
	}
	return wait, true
}

// attempts keeps those that were not waited on for later ones.
type attempts struct{ pool sync.Pool }

func (as *attempts) begin(r *http.Request, s *series) *attempt {
	a, _ := as.pool.Get().(*attempt)
	if a == nil {
		a = &attempt{base: time.Now()}
	}
	a.Context, a.request, a.series = r.Context(), r, s
	a.since.Store(notWaiting)
	return a
}

// end ends the attempt and tells how long it had to wait. One that was waited
// on somebody may still look at, so it is left to the garbage collector.
func (as *attempts) end(a *attempt, end result) time.Duration {
	wait, waited := a.finish(end)
	if !waited && end != panicked {
		a.Context, a.request, a.series = nil, nil, nil
		as.pool.Put(a)
	}
	return wait
}

// ask makes the attempt. The lease and the error are those of the limiter asked
// last.
func (l *Limits) ask(rt *route, r *http.Request) (lease limiter.Lease, end result, err error) {
	a := l.attempts.begin(r, rt.series)
	end = panicked
	defer func() { l.attempts.end(a, end) }()
	lease, err = rt.limiter.Acquire(a, a, 1)
	switch {
	case err == nil && lease.Acquired():
		end = acquired
	case r.Context().Err() != nil:
		end = requestCanceled
	default:
		end = a.stage
	}
	rt.series.count(end)
	return lease, end, err
}
