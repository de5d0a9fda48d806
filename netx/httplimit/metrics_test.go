package httplimit

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/policy/limiter"
)

const (
	requestsTotal = "throttled_http_requests_total"
	active        = "throttled_http_active_requests"
	queued        = "throttled_http_queued_requests"
	duration      = "throttled_http_request_duration_seconds"
	queueDuration = "throttled_http_queue_duration_seconds"
)

func TestMetricsOfDenials(t *testing.T) {
	for _, tc := range []struct {
		name           string
		global, policy func(testing.TB) one
		unnamed        bool
		want           map[string]float64
	}{
		{name: "H226", global: spent, want: map[string]float64{requestsTotal + "{policy=,result=global_limiter}": 1}},
		{name: "H226 on a route", global: spent, policy: ample, want: map[string]float64{requestsTotal + "{policy=p,result=global_limiter}": 1}},
		{name: "H227", global: ample, policy: spent, want: map[string]float64{requestsTotal + "{policy=p,result=endpoint_limiter}": 1}},
		{name: "H230", policy: spent, unnamed: true, want: map[string]float64{requestsTotal + "{policy=,result=endpoint_limiter}": 1}},
		{name: "a limiter that fails", policy: shut, want: map[string]float64{requestsTotal + "{policy=p,result=endpoint_limiter}": 1}},
		{name: "a global limiter that fails", global: shut, policy: ample, want: map[string]float64{requestsTotal + "{policy=p,result=global_limiter}": 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := prometheus.NewPedanticRegistry()
				o := Options{Registerer: r}
				if tc.global != nil {
					o.Global = tc.global(t)
				}
				l := newLimits(t, o)
				var h http.Handler = new(page)
				if tc.policy != nil {
					p := Policy{Limiter: tc.policy(t)}
					if tc.unnamed {
						h = requirePolicy(t, l, p, h)
					} else {
						named(t, l, "p", p)
						h = mark(t, l, "p", h)
					}
				}
				require.NotEqual(t, http.StatusOK, get(l.Wrap(h), "/").Code)
				assert.Equal(t, tc.want, gather(t, r))
			})
		})
	}
}

// ample grants all, shut is closed.
func ample(t testing.TB) one { return slots(t, 100, 0) }

func shut(t testing.TB) one {
	l := slots(t, 1, 0)
	require.NoError(t, l.Close())
	return l
}

func TestMetricsOfAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := prometheus.NewPedanticRegistry()
		l := newLimits(t, Options{Registerer: r, Global: ample(t)})
		named(t, l, "p", Policy{Limiter: rateQueue(t, 2)})
		site := gated()
		h := l.Wrap(mark(t, l, "p", site))

		first := begin(h, "/")
		assert.Equal(t, map[string]float64{ // counted when granted, and never in the queue
			requestsTotal + "{policy=p,result=acquired}": 1,
			active + "{policy=p}":                        1,
		}, gather(t, r))

		second := begin(h, "/")
		third := begin(h, "/")
		assert.Equal(t, 2.0, gather(t, r)[queued+"{policy=p}"])
		require.Equal(t, http.StatusTooManyRequests, begin(h, "/").Code, "the queue is full")

		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.Equal(t, 1.0, gather(t, r)[queued+"{policy=p}"])
		time.Sleep(2 * time.Second)
		third.abort() // H227
		close(site.gate)
		synctest.Wait()
		require.True(t, first.done() && second.done() && third.done())
		assert.Equal(t, map[string]float64{
			requestsTotal + "{policy=p,result=acquired}":             2,
			requestsTotal + "{policy=p,result=endpoint_limiter}":     1,
			requestsTotal + "{policy=p,result=request_canceled}":     1,
			active + "{policy=p}":                                    0,
			queued + "{policy=p}":                                    0,
			duration + "{policy=p}":                                  2,
			duration + "{policy=p}.sum":                              12 + 2,
			queueDuration + "{policy=p,result=acquired}":             1,
			queueDuration + "{policy=p,result=acquired}.sum":         10,
			queueDuration + "{policy=p,result=request_canceled}":     1,
			queueDuration + "{policy=p,result=request_canceled}.sum": 12,
		}, gather(t, r))
	})
}

// A wait that ends in a denial tells whose.
func TestMetricsOfAWaitInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := prometheus.NewPedanticRegistry()
		global, err := limiter.NewConcurrency(limiter.ConcurrencyOptions{
			PermitLimit: 1, Queue: limiter.Queue{Limit: 1, MaxWait: 3 * time.Second},
		})
		require.NoError(t, err)
		l := newLimits(t, Options{Registerer: r, Global: one{global}})
		named(t, l, "p", Policy{Limiter: ample(t)})
		site := gated()
		h := l.Wrap(mark(t, l, "p", site))
		begin(h, "/")
		second := begin(h, "/")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.Equal(t, http.StatusTooManyRequests, second.Code)
		found := gather(t, r)
		assert.Equal(t, 3.0, found[queueDuration+"{policy=p,result=global_limiter}.sum"])
		assert.Equal(t, 1.0, found[requestsTotal+"{policy=p,result=global_limiter}"])
		assert.Zero(t, found[queued+"{policy=p}"])
		close(site.gate)
		synctest.Wait()
	})
}

// A limiter that panics while a request waits leaves nobody in the queue.
func TestMetricsOfAPanicInAWait(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	l := newLimits(t, Options{Registerer: r, Global: tripping{one: rate(t, 1)}})
	assert.PanicsWithValue(t, errTest, func() { get(l.Wrap(new(page)), "/") })
	assert.Equal(t, map[string]float64{queued + "{policy=}": 0}, gather(t, r))
}

// A tripping limiter panics as soon as it waits, and keeps the context.
type tripping struct{ one }

func (tripping) Acquire(ctx context.Context, _ *http.Request, _ int) (limiter.Lease, error) {
	ctx.Done()
	panic(errTest)
}

// A context that a limiter keeps too long counts nobody as waiting.
func TestAttemptIsOver(t *testing.T) {
	m, err := newMetrics(prometheus.NewPedanticRegistry())
	require.NoError(t, err)
	var as attempts
	w := httptest.NewRequest(http.MethodGet, "/", nil)
	a := as.begin(w, m.unnamed)
	a.Done()
	as.end(a, acquired)
	a.Done()
	assert.NoError(t, a.Err())
	found := gather(t, m.registerer.(*prometheus.Registry))
	assert.Zero(t, found[queued+"{policy=}"])
	assert.NotSame(t, a, as.begin(w, nil), "one that was waited on is not used again")

	b := as.begin(w, nil)
	b.Done()
	as.end(b, acquired)
	assert.NoError(t, b.Err())
	assert.NotSame(t, b, as.begin(w, nil), "without metrics neither")
}

// Labels are what AddPolicy was given, whatever comes in requests.
func TestMetricsAreBounded(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	l := newLimits(t, Options{Registerer: r, Global: ample(t)})
	named(t, l, "p", Policy{Limiter: ample(t)})
	mux := http.NewServeMux()
	mux.Handle("/p/{id}", mark(t, l, "p", new(page)))
	h := l.Wrap(mux)
	get(h, "/p/1")
	get(h, "/q")
	before := len(gather(t, r))
	for _, path := range []string{"/p/2", "/p/3", "/q/1", "/q/2", "/"} {
		get(h, path)
	}
	assert.Len(t, gather(t, r), before)
}
