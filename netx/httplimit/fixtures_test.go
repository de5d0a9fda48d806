package httplimit

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/policy/limiter"
)

var errTest = errors.New("test")

// one is a limiter of all requests alike.
type one struct{ limiter.Limiter }

func (o one) TryAcquire(_ *http.Request, n int) (limiter.Lease, error) {
	return o.Limiter.TryAcquire(n)
}

func (o one) Acquire(ctx context.Context, _ *http.Request, n int) (limiter.Lease, error) {
	return o.Limiter.Acquire(ctx, n)
}

func (o one) Stats(*http.Request) (limiter.Stats, error) { return o.Limiter.Stats(), nil }

func (o one) stats() limiter.Stats { return o.Limiter.Stats() }

// rate is a fixed window of 10 s.
func rate(t testing.TB, limit int) one {
	l, err := limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: limit, Window: 10 * time.Second})
	require.NoError(t, err)
	return one{l}
}

// rateQueue is a token bucket of one token every 10 s with a queue.
func rateQueue(t testing.TB, queue int) one {
	l, err := limiter.NewTokenBucket(limiter.TokenBucketOptions{
		TokenLimit: 1, TokensPerPeriod: 1, Period: 10 * time.Second, Queue: limiter.Queue{Limit: queue},
	})
	require.NoError(t, err)
	return one{l}
}

func slots(t testing.TB, limit, queue int) one {
	l, err := limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: limit, Queue: limiter.Queue{Limit: queue}})
	require.NoError(t, err)
	return one{l}
}

// spent is a limiter that denies everybody.
func spent(t testing.TB) one {
	l := rate(t, 1)
	lease, err := l.Limiter.TryAcquire(1)
	require.NoError(t, err)
	require.True(t, lease.Acquired())
	return l
}

// A broken limiter answers with an error, or panics.
type broken struct {
	one
	err   error
	panic any
}

func (b broken) Acquire(context.Context, *http.Request, int) (limiter.Lease, error) {
	if b.panic != nil {
		panic(b.panic)
	}
	return limiter.Lease{}, b.err
}

func newLimits(t testing.TB, o Options) *Limits {
	t.Helper()
	l, err := New(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

func named(t testing.TB, l *Limits, name string, p Policy) {
	t.Helper()
	require.NoError(t, l.AddPolicy(name, p))
}

func mark(t testing.TB, l *Limits, name string, h http.Handler) http.Handler {
	t.Helper()
	marked, err := l.Require(name, h)
	require.NoError(t, err)
	return marked
}

func requirePolicy(t testing.TB, l *Limits, p Policy, h http.Handler) http.Handler {
	t.Helper()
	marked, err := l.RequirePolicy(p, h)
	require.NoError(t, err)
	return marked
}

// A page is a handler that answers 200 and counts. Where it has a gate it stays
// until that is opened.
type page struct {
	served, inside atomic.Int64
	gate           chan struct{}
}

func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.served.Add(1)
	p.inside.Add(1)
	defer p.inside.Add(-1)
	if p.gate != nil {
		<-p.gate
	}
	_, _ = w.Write([]byte("page"))
}

func gated() *page { return &page{gate: make(chan struct{})} }

// A hook is an OnRejected that counts, and writes a status if it has one.
type hook struct {
	status int
	called int
	lease  limiter.Lease
}

func (h *hook) reject(w http.ResponseWriter, _ *http.Request, lease limiter.Lease) {
	h.called++
	h.lease = lease
	if h.status != 0 {
		w.WriteHeader(h.status)
	}
}

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

// An exchange is a request on its way. Use in a bubble.
type exchange struct {
	*httptest.ResponseRecorder
	cancel   context.CancelFunc
	ended    chan struct{}
	panicked any
}

func (e *exchange) done() bool {
	select {
	case <-e.ended:
		return true
	default:
		return false
	}
}

// begin sends a request and returns when it has ended or hangs.
func begin(h http.Handler, path string) *exchange {
	ctx, cancel := context.WithCancel(context.Background())
	e := &exchange{ResponseRecorder: httptest.NewRecorder(), cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(e.ended)
		defer cancel()
		defer func() { e.panicked = recover() }()
		h.ServeHTTP(e, httptest.NewRequest(http.MethodGet, path, nil).WithContext(ctx))
	}()
	synctest.Wait()
	return e
}

// abort is what the server does when the client has gone.
func (e *exchange) abort() {
	e.cancel()
	synctest.Wait()
}

// untouched reports whether nothing was written.
func untouched(w *httptest.ResponseRecorder) bool {
	return w.Code == http.StatusOK && w.Body.Len() == 0 && len(w.Result().Header) == 0 && !w.Flushed
}

// gather reads all the metrics: name{label values} and the value, or the number
// of observations.
func gather(t testing.TB, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	require.NoError(t, err)
	found := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := f.GetName() + "{"
			for i, label := range m.GetLabel() {
				if i > 0 {
					key += ","
				}
				key += label.GetName() + "=" + label.GetValue()
			}
			value := m.GetGauge().GetValue() + m.GetCounter().GetValue()
			if h := m.GetHistogram(); h != nil {
				value = float64(h.GetSampleCount())
				found[key+"}.sum"] = h.GetSampleSum()
			}
			found[key+"}"] = value
		}
	}
	return found
}

// A fullRegistry takes so many collectors and no more.
type fullRegistry struct {
	*prometheus.Registry
	room int
}

func (f *fullRegistry) Register(c prometheus.Collector) error {
	if f.room == 0 {
		return errTest
	}
	f.room--
	return f.Registry.Register(c)
}

func (f *fullRegistry) Unregister(c prometheus.Collector) bool {
	f.room++
	return f.Registry.Unregister(c)
}
