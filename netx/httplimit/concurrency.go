package httplimit

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ee4278a0/throttled/policy/limiter"
)

// ConcurrencyLimiterOptions configure a [ConcurrencyLimiter].
// MaxConcurrentRequests must be set.
type ConcurrencyLimiterOptions struct {
	// MaxConcurrentRequests is how many requests are served at a time; 1 or
	// more.
	MaxConcurrentRequests int
	// RequestQueueLimit is how many more may wait; 0 lets nobody.
	RequestQueueLimit int
	// Order is whom the queue serves first: limiter.OldestFirst makes it a
	// queue, in which a newcomer who finds it full is refused;
	// limiter.NewestFirst a stack, in which the oldest is refused instead.
	Order limiter.Order
	// MaxWait is how long a request waits before it is refused; 0 means as
	// long as its client does. Under steady overload a stack serves the oldest
	// never, so give it one.
	MaxWait time.Duration
	// OnRejected answers a request that is refused, in place of an empty
	// answer. If it writes no status, 503 is written. The ResponseWriter must
	// not be kept. nil means the empty answer.
	OnRejected func(http.ResponseWriter, *http.Request)
	// Registerer gets the metrics; nil means that there are none. Several
	// limiters need a label each, see prometheus.WrapRegistererWith.
	Registerer prometheus.Registerer
}

// ConcurrencyLimiter returns a handler that serves so many requests at a time
// with next and answers 503 Service Unavailable to those that find no place and
// no room in the queue. It is the older sibling of [Limits]: one limit for a
// whole server, about what the server can do and not about what a client may.
// When the client has gone nothing is written and no hook is called; where only
// the deadline of the request has passed it is answered 503 without the hook.
//
// The handler is an io.Closer too. Close refuses the requests that wait and all
// that come, and unregisters the metrics:
//
//	throttled_http_concurrency_rejected_total            counter: requests refused
//	throttled_http_concurrency_queue_length              gauge: requests that wait
//	throttled_http_concurrency_queue_duration_seconds    histogram: how long requests waited; 0 for those that did not have to
//
// It returns an error that names every option that is out of its range, where
// next is nil, and where the metrics cannot be registered.
func ConcurrencyLimiter(next http.Handler, o ConcurrencyLimiterOptions) (http.Handler, error) {
	if err := o.validate(next); err != nil {
		return nil, err
	}
	c, err := limiter.NewConcurrency(limiter.ConcurrencyOptions{
		PermitLimit: o.MaxConcurrentRequests,
		Queue:       limiter.Queue{Limit: o.RequestQueueLimit, Order: o.Order, MaxWait: o.MaxWait},
	})
	if err != nil {
		return nil, fmt.Errorf("httplimit: %w", err)
	}
	m, err := newConcurrencyMetrics(o.Registerer, c)
	if err != nil {
		return nil, err
	}
	return &concurrency{next: next, limiter: c, onRejected: o.OnRejected, metrics: m}, nil
}

func (o *ConcurrencyLimiterOptions) validate(next http.Handler) error {
	var problems []error
	if next == nil {
		problems = append(problems, errors.New("httplimit: ConcurrencyLimiter of no handler"))
	}
	if o.MaxConcurrentRequests < 1 {
		problems = append(problems, fmt.Errorf("httplimit: MaxConcurrentRequests: %d is outside 1..%d", o.MaxConcurrentRequests, math.MaxInt))
	}
	if o.RequestQueueLimit < 0 {
		problems = append(problems, fmt.Errorf("httplimit: RequestQueueLimit: %d is negative", o.RequestQueueLimit))
	}
	if o.Order > limiter.NewestFirst {
		problems = append(problems, fmt.Errorf("httplimit: Order: %d is neither OldestFirst nor NewestFirst", o.Order))
	}
	if o.MaxWait < 0 {
		problems = append(problems, fmt.Errorf("httplimit: MaxWait: %v is negative", o.MaxWait))
	}
	return errors.Join(problems...)
}

type concurrency struct {
	next       http.Handler
	limiter    *limiter.Concurrency
	onRejected func(http.ResponseWriter, *http.Request)
	metrics    *concurrencyMetrics
	attempts   attempts
	writers    statusWriters
	closed     atomic.Bool
}

func (c *concurrency) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := c.attempts.begin(r, nil)
	lease, err := c.limiter.Acquire(a, 1)
	c.metrics.waited(c.attempts.end(a, acquired))
	switch {
	case err == nil && lease.Acquired():
		defer lease.Release()
		c.next.ServeHTTP(w, r)
	case r.Context().Err() != nil:
		outOfTime(w, r)
	default: // the only other error is that of a closed limiter
		c.refuse(w, r)
	}
}

func (c *concurrency) refuse(w http.ResponseWriter, r *http.Request) {
	c.metrics.reject()
	if c.onRejected == nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	s := c.writers.wrap(w, http.StatusServiceUnavailable)
	defer c.writers.finish(s)
	c.onRejected(s, r)
}

// Close refuses everybody from here on and unregisters the metrics, once: they
// may be those of a successor by the second call.
func (c *concurrency) Close() error {
	if !c.closed.Swap(true) {
		c.metrics.unregister()
	}
	return c.limiter.Close()
}

// concurrencyMetrics are the collectors of a ConcurrencyLimiter; nil is none.
type concurrencyMetrics struct {
	registerer prometheus.Registerer
	rejected   prometheus.Counter
	length     prometheus.GaugeFunc
	duration   prometheus.Histogram
}

func newConcurrencyMetrics(r prometheus.Registerer, l *limiter.Concurrency) (*concurrencyMetrics, error) {
	if r == nil {
		return nil, nil
	}
	m := &concurrencyMetrics{
		registerer: r,
		rejected: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "throttled_http_concurrency_rejected_total",
			Help: "Requests that were refused.",
		}),
		length: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "throttled_http_concurrency_queue_length",
			Help: "Requests that wait for their turn.",
		}, func() float64 { return float64(l.Stats().Queued) }),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "throttled_http_concurrency_queue_duration_seconds",
			Help:    "How long requests waited for their turn or to be refused.",
			Buckets: prometheus.DefBuckets,
		}),
	}
	return m, register(r, m.rejected, m.length, m.duration)
}

func (m *concurrencyMetrics) waited(d time.Duration) {
	if m != nil {
		m.duration.Observe(d.Seconds())
	}
}

func (m *concurrencyMetrics) reject() {
	if m != nil {
		m.rejected.Inc()
	}
}

func (m *concurrencyMetrics) unregister() {
	if m != nil {
		unregister(m.registerer, m.rejected, m.length, m.duration)
	}
}
