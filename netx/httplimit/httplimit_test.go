package httplimit

import (
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/policy/limiter"
)

func TestConfiguration(t *testing.T) {
	l := newLimits(t, Options{})
	t.Run("H205 a policy with neither name nor limiter", func(t *testing.T) {
		_, err := l.Require("", new(page))
		assert.ErrorContains(t, err, `httplimit: there is no policy ""`)
		_, err = l.RequirePolicy(Policy{}, new(page))
		assert.ErrorContains(t, err, "httplimit: an unnamed policy has no limiter")
	})
	t.Run("H209", func(t *testing.T) {
		named(t, l, "twice", Policy{Limiter: rate(t, 1)})
		assert.ErrorContains(t, l.AddPolicy("twice", Policy{Limiter: rate(t, 1)}), `httplimit: there is a policy "twice" already`)
	})
	t.Run("AddPolicy", func(t *testing.T) {
		err := l.AddPolicy("", Policy{})
		assert.ErrorContains(t, err, "without a name")
		assert.ErrorContains(t, err, "no limiter")
		assert.ErrorContains(t, l.AddPolicy("\xff", Policy{Limiter: rate(t, 1)}), "not UTF-8")
	})
	t.Run("Require", func(t *testing.T) {
		_, err := l.Require("unknown", new(page))
		assert.ErrorContains(t, err, `httplimit: there is no policy "unknown"`)
		named(t, l, "p", Policy{Limiter: rate(t, 1)})
		_, err = l.Require("p", nil)
		assert.ErrorContains(t, err, "no handler")
		_, err = l.RequirePolicy(Policy{Limiter: rate(t, 1)}, nil)
		assert.ErrorContains(t, err, "no handler")
	})
	t.Run("no handler", func(t *testing.T) {
		assert.Panics(t, func() { l.Wrap(nil) })
		assert.Panics(t, func() { Disable(nil) })
	})
	t.Run("StatusCode", func(t *testing.T) {
		for _, code := range []int{-1, 1, 103, 199, 600} {
			_, err := New(Options{StatusCode: code})
			assert.ErrorContains(t, err, "httplimit: StatusCode", code)
		}
	})
	t.Run("Registerer", func(t *testing.T) {
		r := &fullRegistry{Registry: prometheus.NewPedanticRegistry(), room: 4}
		_, err := New(Options{Registerer: r})
		require.ErrorIs(t, err, errTest)
		require.ErrorContains(t, err, "httplimit: Registerer")
		assert.Equal(t, 4, r.room, "those that were registered are not any more")
		r.room = 10
		first := newLimits(t, Options{Registerer: r})
		_, err = New(Options{Registerer: r})
		require.ErrorAs(t, err, &prometheus.AlreadyRegisteredError{})
		require.NoError(t, first.Close())
		newLimits(t, Options{Registerer: r})
		several := prometheus.NewPedanticRegistry()
		for _, server := range []string{"1", "2"} {
			newLimits(t, Options{Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"server": server}, several)})
		}
	})
	t.Run("after Close", func(t *testing.T) {
		policy := spent(t)
		l := newLimits(t, Options{})
		named(t, l, "p", Policy{Limiter: policy})
		h := l.Wrap(mark(t, l, "p", new(page)))
		require.NoError(t, l.Close())
		require.NoError(t, l.Close())
		assert.ErrorIs(t, l.AddPolicy("q", Policy{Limiter: policy}), net.ErrClosed)
		_, err := l.Require("p", new(page))
		assert.ErrorIs(t, err, net.ErrClosed)
		_, err = l.Require("unknown", new(page))
		assert.ErrorIs(t, err, net.ErrClosed)
		_, err = l.RequirePolicy(Policy{Limiter: policy}, new(page))
		assert.ErrorIs(t, err, net.ErrClosed)
		assert.Equal(t, http.StatusTooManyRequests, get(h, "/").Code, "what is wrapped goes on limiting")
		_, err = policy.Limiter.TryAcquire(1)
		assert.NoError(t, err, "the limiters are not owned")
	})
}

// byHost is a limiter for each host, always the same key in tests.
func byHost(t testing.TB, limit int) limiter.Selective[*http.Request] {
	table, err := limiter.NewPartitioned(func(r *http.Request) limiter.Partition[string] {
		return limiter.Partition[string]{Key: r.Host, New: func(string) (limiter.Limiter, error) {
			return limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: limit, Window: time.Minute})
		}}
	}, limiter.PartitionedOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, table.Close()) })
	return table
}

func TestUnnamedPolicies(t *testing.T) {
	t.Run("H213", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newLimits(t, Options{})
			small, large := Policy{Limiter: byHost(t, 1)}, Policy{Limiter: byHost(t, 100)}
			mux := http.NewServeMux()
			mux.Handle("/small", requirePolicy(t, l, small, new(page)))
			mux.Handle("/large", requirePolicy(t, l, large, new(page)))
			h := l.Wrap(mux)
			for range 100 {
				require.Equal(t, http.StatusOK, get(h, "/large").Code)
			}
			assert.Equal(t, http.StatusOK, get(h, "/small").Code)
			assert.Equal(t, http.StatusTooManyRequests, get(h, "/small").Code)
			assert.Equal(t, http.StatusTooManyRequests, get(h, "/large").Code)
		})
	})
	t.Run("H214", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newLimits(t, Options{})
			p := Policy{Limiter: byHost(t, 3)}
			mux := http.NewServeMux()
			mux.Handle("/a", requirePolicy(t, l, p, new(page)))
			mux.Handle("/b", requirePolicy(t, l, p, new(page)))
			h := l.Wrap(mux)
			codes := []int{get(h, "/a").Code, get(h, "/b").Code, get(h, "/a").Code, get(h, "/b").Code}
			assert.Equal(t, []int{200, 200, 200, 429}, codes)
		})
	})
	t.Run("H208 the policy itself, whatever the names are", func(t *testing.T) {
		l := newLimits(t, Options{})
		named(t, l, "p", Policy{Limiter: spent(t)})
		mine := rate(t, 1)
		h := l.Wrap(requirePolicy(t, l, Policy{Limiter: mine}, new(page)))
		assert.Equal(t, http.StatusOK, get(h, "/").Code)
		assert.Zero(t, mine.stats().Available)
	})
}

func TestMiddlewareMadeAnew(t *testing.T) {
	t.Run("H233", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { // the bubble ends only without goroutines
			r := prometheus.NewPedanticRegistry()
			for range 100 {
				table := byHost(t, 1)
				l, err := New(Options{Global: table, Registerer: r})
				require.NoError(t, err)
				h := l.Wrap(new(page))
				require.Equal(t, http.StatusOK, get(h, "/").Code)
				require.Equal(t, http.StatusTooManyRequests, get(h, "/").Code)
				require.NoError(t, l.Close())
				require.NoError(t, table.Close())
				require.Equal(t, http.StatusServiceUnavailable, get(h, "/").Code)
			}
			assert.Empty(t, gather(t, r))
		})
	})
	t.Run("a late second Close leaves the successor's metrics", func(t *testing.T) {
		r := prometheus.NewPedanticRegistry()
		old := newLimits(t, Options{Registerer: r})
		require.NoError(t, old.Close())
		l := newLimits(t, Options{Registerer: r, Global: rate(t, 1)})
		require.NoError(t, old.Close())
		get(l.Wrap(new(page)), "/")
		assert.NotEmpty(t, gather(t, r))
	})
}
