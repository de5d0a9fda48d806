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

func TestAborts(t *testing.T) {
	t.Run("H216", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			hook := &hook{}
			policy, global := rateQueue(t, 1), slots(t, 2, 0)
			l := newLimits(t, Options{Global: global, OnRejected: hook.reject})
			h := l.Wrap(requirePolicy(t, l, Policy{Limiter: policy, OnRejected: hook.reject}, new(page)))
			require.Equal(t, http.StatusOK, get(h, "/").Code)
			e := begin(h, "/")
			require.False(t, e.done())
			e.abort()
			require.True(t, e.done())
			assert.Nil(t, e.panicked)
			assert.True(t, untouched(e.ResponseRecorder))
			assert.Zero(t, hook.called)
			assert.Equal(t, int64(2), global.stats().Available)
			assert.Zero(t, policy.stats().Queued)
		})
	})
	t.Run("while waiting for the global limiter the policy gets its permit back", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			policy, global := rate(t, 5), rateQueue(t, 1)
			l := newLimits(t, Options{Global: global})
			h := l.Wrap(requirePolicy(t, l, Policy{Limiter: policy}, new(page)))
			require.Equal(t, http.StatusOK, get(h, "/").Code)
			e := begin(h, "/")
			require.Equal(t, int64(3), policy.stats().Available)
			e.abort()
			assert.True(t, untouched(e.ResponseRecorder))
			assert.Equal(t, int64(4), policy.stats().Available)
		})
	})
	t.Run("gone before", func(t *testing.T) {
		hook := &hook{}
		for _, limiter := range []one{slots(t, 1, 0), spent(t)} {
			l := newLimits(t, Options{Global: limiter, OnRejected: hook.reject})
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			w := httptest.NewRecorder()
			l.Wrap(new(page)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
			assert.True(t, untouched(w))
			assert.Zero(t, hook.called)
		}
	})
	t.Run("a denial that nobody is there for any more", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			hook := &hook{}
			inner, err := limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1, Queue: limiter.Queue{Limit: 1}})
			require.NoError(t, err)
			l := newLimits(t, Options{Global: deaf{one{inner}}, OnRejected: hook.reject})
			held, err := inner.TryAcquire(1)
			require.NoError(t, err)
			e := begin(l.Wrap(new(page)), "/")
			e.abort()
			require.NoError(t, inner.Close())
			synctest.Wait()
			require.True(t, e.done())
			assert.True(t, untouched(e.ResponseRecorder))
			assert.Zero(t, hook.called)
			held.Release()
		})
	})
}

// A deadline that passes is not a client that has gone: it must not be told 200
// by a server that sees nothing written.
func TestDeadlines(t *testing.T) {
	for name, build := range map[string]func(t *testing.T, hook *hook) http.Handler{
		"Limits": func(t *testing.T, hook *hook) http.Handler {
			return newLimits(t, Options{Global: full(t), OnRejected: hook.reject}).Wrap(new(page))
		},
		"ConcurrencyLimiter": func(t *testing.T, hook *hook) http.Handler {
			h, err := ConcurrencyLimiter(new(page), ConcurrencyLimiterOptions{
				MaxConcurrentRequests: 1, RequestQueueLimit: 1,
				OnRejected: func(w http.ResponseWriter, r *http.Request) { hook.reject(w, r, limiter.Lease{}) },
			})
			require.NoError(t, err)
			_, err = h.(*concurrency).limiter.TryAcquire(1)
			require.NoError(t, err)
			return h
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hook := &hook{}
				h := build(t, hook)
				for _, timeout := range []time.Duration{0, time.Second} {
					w, start := httptest.NewRecorder(), time.Now()
					ctx, cancel := context.WithTimeout(context.Background(), timeout)
					h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
					cancel()
					assert.Equal(t, http.StatusServiceUnavailable, w.Code)
					assert.Equal(t, timeout, time.Since(start))
					assert.Zero(t, hook.called)
				}
				w := get(http.TimeoutHandler(h, time.Second, "late"), "/")
				assert.Equal(t, http.StatusServiceUnavailable, w.Code)
				assert.Zero(t, hook.called)
			})
		})
	}
}

// full has its one slot taken and room for one to wait.
func full(t testing.TB) one {
	l := slots(t, 1, 1)
	_, err := l.Limiter.TryAcquire(1)
	require.NoError(t, err)
	return l
}

// A deaf limiter does not look at the context.
type deaf struct{ one }

func (d deaf) Acquire(_ context.Context, r *http.Request, n int) (limiter.Lease, error) {
	return d.one.Acquire(context.Background(), r, n)
}

func TestConcurrencyLimiterAborts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		s := newStage(t, ConcurrencyLimiterOptions{
			MaxConcurrentRequests: 1, RequestQueueLimit: 1, Registerer: registry,
			OnRejected: func(http.ResponseWriter, *http.Request) { t.Error("nobody is there to be told") },
		})
		s.enter("holder")
		e := s.enter("a")["a"]
		e.abort()
		assert.True(t, e.done())
		assert.True(t, untouched(e.ResponseRecorder))
		assert.Zero(t, gather(t, registry)[queueLength])
		assert.Zero(t, gather(t, registry)[rejectedTotal])
		all := s.enter("b")
		s.is(all, map[string]int{"b": pending}) // there is room again
		s.empty()
	})
}
