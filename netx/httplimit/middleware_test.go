package httplimit

import (
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

// What the other system has only because of its language or its container:
//
//	H211  a policy added by type, built by the container: a policy is a value
//	H231  middleware without registered services: Wrap is a method of what New made;
//	      its nearest kin, a mark without the middleware, is J270
//	H232  options passed or from a container: there is no container; a nil app or
//	      nil options cannot be written
func TestNothingApplies(t *testing.T) {
	t.Run("H193", func(t *testing.T) {
		r := prometheus.NewPedanticRegistry()
		l := newLimits(t, Options{Registerer: r})
		named(t, l, "p", Policy{Limiter: spent(t)})
		assert.Equal(t, http.StatusOK, get(l.Wrap(new(page)), "/").Code)
		assert.Empty(t, gather(t, r))
	})
}

// denials are the ways in which a request that is denied is answered.
func TestDenials(t *testing.T) {
	teapot, gone := http.StatusTeapot, http.StatusNotFound
	for _, tc := range []struct {
		name             string
		status           int
		global, policy   bool // deny
		unnamed          bool
		hook, ownHook    *hook
		want             int
		called, own      int
		globalN, policyN int64 // denials of the limiters
	}{
		{name: "H195 the status is there with a hook that writes none", global: true, hook: &hook{}, want: 429, called: 1, globalN: 1},
		{name: "a hook's own status wins", global: true, hook: &hook{status: teapot}, want: teapot, called: 1, globalN: 1},
		{name: "H196", global: true, want: 429, globalN: 1},
		{name: "another status", status: 503, global: true, want: 503, globalN: 1},
		{name: "H198", policy: true, hook: &hook{}, ownHook: &hook{status: gone}, want: gone, own: 1, policyN: 1},
		{name: "a named policy without a hook falls back", policy: true, hook: &hook{status: teapot}, want: teapot, called: 1, policyN: 1},
		{name: "H200", policy: true, unnamed: true, hook: &hook{status: teapot}, want: teapot, called: 1, policyN: 1},
		{name: "H201", global: true, hook: &hook{}, ownHook: &hook{status: gone}, want: 429, called: 1, globalN: 1},
		{name: "H202", policy: true, hook: &hook{}, ownHook: &hook{status: gone}, want: gone, own: 1, policyN: 1},
		// H203 the other way round: the route comes first here, so the global
		// limiter is never asked.
		{name: "H203", global: true, policy: true, hook: &hook{status: teapot}, ownHook: &hook{status: gone}, want: gone, own: 1, policyN: 1},
		{name: "both grant", hook: &hook{}, ownHook: &hook{}, want: 200},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				global, policy := slots(t, 5, 0), slots(t, 5, 0)
				if tc.global {
					global = spent(t)
				}
				if tc.policy {
					policy = spent(t)
				}
				o := Options{Global: global, StatusCode: tc.status}
				if tc.hook != nil {
					o.OnRejected = tc.hook.reject
				}
				l := newLimits(t, o)
				p := Policy{Limiter: policy}
				if tc.ownHook != nil {
					p.OnRejected = tc.ownHook.reject
				}
				site := new(page)
				named(t, l, "p", p)
				marked := mark(t, l, "p", site)
				if tc.unnamed {
					marked = requirePolicy(t, l, p, site)
				}

				w := get(l.Wrap(marked), "/")
				assert.Equal(t, tc.want, w.Code)
				if tc.want == http.StatusOK {
					assert.Equal(t, int64(1), site.served.Load())
				} else {
					assert.Empty(t, w.Body.String())
					assert.Zero(t, site.served.Load())
				}
				for h, want := range map[*hook]int{tc.hook: tc.called, tc.ownHook: tc.own} {
					if h != nil {
						assert.Equal(t, want, h.called)
						assert.False(t, h.lease.Acquired())
					}
				}
				assert.Equal(t, tc.globalN, global.stats().Failed)
				assert.Equal(t, tc.policyN, policy.stats().Failed)
				if !tc.global { // H202: whatever was granted is back
					assert.Equal(t, int64(5), global.stats().Available)
				}
				if !tc.policy {
					assert.Equal(t, int64(5), policy.stats().Available)
				}
			})
		})
	}
}

// A denial by the global limiter costs the policy nothing, rate permits
// neither.
func TestGlobalDenialIsNotCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := rate(t, 3)
		l := newLimits(t, Options{Global: spent(t)})
		h := l.Wrap(requirePolicy(t, l, Policy{Limiter: policy}, new(page)))
		for range 10 {
			require.Equal(t, http.StatusTooManyRequests, get(h, "/").Code)
		}
		assert.Equal(t, int64(3), policy.stats().Available)
	})
}

func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimits(t, Options{Global: spent(t)})
		h := l.Wrap(new(page))
		for _, step := range []struct {
			at   time.Duration
			want string
		}{
			{0, "10"},
			{time.Nanosecond, "10"},
			{time.Second, "9"},
			{time.Second + time.Millisecond, "9"},
			{9*time.Second + 999*time.Millisecond, "1"},
		} {
			time.Sleep(time.Until(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(step.at)))
			w := get(h, "/")
			assert.Equal(t, http.StatusTooManyRequests, w.Code)
			assert.Equal(t, []string{step.want}, w.Header()["Retry-After"], "at %v", step.at)
		}
		time.Sleep(time.Millisecond)
		w := get(h, "/")
		assert.Equal(t, http.StatusOK, w.Code)
		assert.NotContains(t, w.Header(), "Retry-After")
	})
	t.Run("without one", func(t *testing.T) {
		l := newLimits(t, Options{Global: slots(t, 1, 0)})
		var inner *httptest.ResponseRecorder
		var h http.Handler
		h = l.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { inner = get(h, "/") }))
		get(h, "/")
		assert.Equal(t, http.StatusTooManyRequests, inner.Code)
		assert.NotContains(t, inner.Header(), "Retry-After")
	})
	t.Run("a hook sees and may delete it", func(t *testing.T) {
		l := newLimits(t, Options{Global: spent(t), OnRejected: func(w http.ResponseWriter, _ *http.Request, _ limiter.Lease) {
			assert.Equal(t, "10", w.Header().Get("Retry-After"))
			w.Header().Del("Retry-After")
		}})
		assert.NotContains(t, get(l.Wrap(new(page)), "/").Result().Header, "Retry-After")
	})
	t.Run("values are shared and not spoilt by Add", func(t *testing.T) {
		var values retryValues
		a, b := http.Header{}, http.Header{}
		values.set(a, 3*time.Second)
		a.Add("Retry-After", "x")
		a.Set("Retry-After", "y")
		values.set(b, 3*time.Second)
		assert.Equal(t, []string{"3"}, b["Retry-After"])
		for _, step := range []struct {
			wait time.Duration
			want string
		}{
			{limiter.Never, "9223372037"},
			{259 * time.Second, "259"},
			{3 * time.Second, "3"}, // in one slot with 259
			{0, "0"},
		} {
			values.set(b, step.wait)
			assert.Equal(t, []string{step.want}, b["Retry-After"])
		}
	})
}

func TestErrors(t *testing.T) {
	t.Run("H218", func(t *testing.T) {
		policy, hook := slots(t, 1, 0), &hook{}
		l := newLimits(t, Options{Global: broken{one: rate(t, 1), err: errTest}, OnRejected: hook.reject})
		site := new(page)
		w := get(l.Wrap(requirePolicy(t, l, Policy{Limiter: policy}, site)), "/")
		assert.Equal(t, http.StatusInternalServerError, w.Code)
		assert.NotContains(t, w.Body.String(), errTest.Error())
		assert.Zero(t, hook.called)
		assert.Zero(t, site.served.Load())
		assert.Equal(t, int64(1), policy.stats().Available)
	})
	t.Run("a closed limiter", func(t *testing.T) {
		policy, hook := slots(t, 1, 0), &hook{}
		require.NoError(t, policy.Close())
		l := newLimits(t, Options{OnRejected: hook.reject})
		w := get(l.Wrap(requirePolicy(t, l, Policy{Limiter: policy}, new(page))), "/")
		assert.Equal(t, http.StatusServiceUnavailable, w.Code)
		assert.Zero(t, hook.called)
	})
	t.Run("closed while a request waits", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			policy, hook := rateQueue(t, 1), &hook{}
			l := newLimits(t, Options{OnRejected: hook.reject})
			h := l.Wrap(requirePolicy(t, l, Policy{Limiter: policy}, new(page)))
			get(h, "/")
			e := begin(h, "/")
			require.NoError(t, policy.Close())
			synctest.Wait()
			assert.Equal(t, http.StatusTooManyRequests, e.Code, "those who wait are denied")
			assert.Equal(t, "limiter closed", hook.lease.Reason())
		})
	})
	t.Run("a limiter that panics", func(t *testing.T) {
		policy := slots(t, 1, 0)
		r := prometheus.NewPedanticRegistry()
		l := newLimits(t, Options{Global: broken{one: rate(t, 1), panic: errTest}, Registerer: r})
		h := l.Wrap(requirePolicy(t, l, Policy{Limiter: policy}, new(page)))
		assert.PanicsWithValue(t, errTest, func() { get(h, "/") })
		assert.Equal(t, int64(1), policy.stats().Available)
		assert.Empty(t, gather(t, r))
	})
}

func TestHandlerPanics(t *testing.T) {
	for _, value := range []any{errTest, http.ErrAbortHandler} {
		policy, global := slots(t, 1, 0), slots(t, 1, 0)
		r := prometheus.NewPedanticRegistry()
		l := newLimits(t, Options{Global: global, Registerer: r})
		mux := http.NewServeMux()
		mux.Handle("/", requirePolicy(t, l, Policy{Limiter: policy}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(value) })))
		assert.PanicsWithValue(t, value, func() { get(l.Wrap(mux), "/") })
		assert.Equal(t, int64(1), policy.stats().Available)
		assert.Equal(t, int64(1), global.stats().Available)
		assert.Zero(t, gather(t, r)["throttled_http_active_requests{policy=}"])
		assert.Equal(t, 1.0, gather(t, r)["throttled_http_requests_total{policy=,result=acquired}"])
		l.passing.requests.Range(func(any, any) bool { t.Error("a request is still passing"); return false })
	}
}

func TestHookPanics(t *testing.T) {
	t.Run("H223", func(t *testing.T) {
		policy := slots(t, 1, 0)
		r := prometheus.NewPedanticRegistry()
		l := newLimits(t, Options{
			Global: spent(t), Registerer: r,
			OnRejected: func(http.ResponseWriter, *http.Request, limiter.Lease) { panic(errTest) },
		})
		h := l.Wrap(requirePolicy(t, l, Policy{Limiter: policy}, new(page)))
		w := httptest.NewRecorder()
		assert.PanicsWithValue(t, errTest, func() { h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil)) })
		assert.Equal(t, http.StatusTooManyRequests, w.Code)
		assert.Equal(t, int64(1), policy.stats().Available)
		assert.Equal(t, map[string]float64{"throttled_http_requests_total{policy=,result=global_limiter}": 1}, gather(t, r))
	})
}

// H219: who waits for a route holds no global permit.
func TestQueueFirstGlobalLast(t *testing.T) {
	t.Run("H219", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			global := slots(t, 2, 0)
			l := newLimits(t, Options{Global: global})
			mux := http.NewServeMux()
			mux.Handle("/slow", requirePolicy(t, l, Policy{Limiter: rateQueue(t, 10)}, new(page)))
			mux.Handle("/", new(page))
			h := l.Wrap(mux)
			require.Equal(t, http.StatusOK, get(h, "/slow").Code)
			first, second := begin(h, "/slow"), begin(h, "/slow")
			assert.False(t, first.done())
			assert.False(t, second.done())
			assert.Equal(t, int64(2), global.stats().Available)
			assert.Equal(t, http.StatusOK, get(h, "/").Code)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			assert.True(t, first.done())
			assert.False(t, second.done())
			assert.Equal(t, http.StatusOK, first.Code)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			assert.Equal(t, http.StatusOK, second.Code)
			assert.True(t, second.done())
			assert.Equal(t, int64(2), global.stats().Available)
		})
	})
}

func TestOneAttempt(t *testing.T) {
	t.Run("H221", func(t *testing.T) {
		policy := spent(t)
		l := newLimits(t, Options{Global: slots(t, 1, 1)})
		h := l.Wrap(requirePolicy(t, l, Policy{Limiter: policy}, new(page)))
		require.Equal(t, http.StatusTooManyRequests, get(h, "/").Code)
		assert.Equal(t, limiter.Stats{Successful: 1, Failed: 1}, policy.stats())
	})
	// There is no second attempt whose lease could get lost: all that the first
	// one got comes back.
	t.Run("H222", func(t *testing.T) {
		policy, global := slots(t, 3, 0), spent(t)
		l := newLimits(t, Options{Global: global})
		h := l.Wrap(requirePolicy(t, l, Policy{Limiter: policy}, new(page)))
		for range 10 {
			get(h, "/")
		}
		assert.Equal(t, limiter.Stats{Available: 3, Successful: 10}, policy.stats())
		assert.Equal(t, int64(10), global.stats().Failed)
	})
}
