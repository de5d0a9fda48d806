package httplimit

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/policy/limiter"
)

// perHost is a table of limiters for each host, with the factory made once.
func perHost(t testing.TB, permits int) limiter.Selective[*http.Request] {
	factory := func(string) (limiter.Limiter, error) {
		return limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: permits, Window: 24 * time.Hour})
	}
	table, err := limiter.NewPartitioned(func(r *http.Request) limiter.Partition[string] {
		return limiter.Partition[string]{Key: r.Host, New: factory}
	}, limiter.PartitionedOptions{IdleAfter: 48 * time.Hour})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, table.Close()) })
	return table
}

type shape struct {
	name string
	make func(t testing.TB, permits int) http.Handler
}

// shapes are the ways in which a request can meet a limiter with so many
// permits.
var shapes = []shape{
	{"global", func(t testing.TB, permits int) http.Handler {
		return newLimits(t, Options{Global: perHost(t, permits)}).Wrap(new(page))
	}},
	{"global with metrics", func(t testing.TB, permits int) http.Handler {
		return newLimits(t, Options{Global: perHost(t, permits), Registerer: prometheus.NewRegistry()}).Wrap(new(page))
	}},
	{"hook", func(t testing.TB, permits int) http.Handler {
		return newLimits(t, Options{
			Global:     perHost(t, permits),
			OnRejected: func(w http.ResponseWriter, _ *http.Request, _ limiter.Lease) { _, _ = w.Write(nil) },
		}).Wrap(new(page))
	}},
	{"route in a mux, metrics", func(t testing.TB, permits int) http.Handler {
		l := newLimits(t, Options{Global: perHost(t, 1<<30), Registerer: prometheus.NewRegistry()})
		named(t, l, "p", Policy{Limiter: perHost(t, permits)})
		mux := http.NewServeMux()
		mux.Handle("GET /a", mark(t, l, "p", new(page)))
		return l.Wrap(mux)
	}},
	{"global denies a route in a mux, metrics", func(t testing.TB, permits int) http.Handler {
		l := newLimits(t, Options{Global: perHost(t, permits), Registerer: prometheus.NewRegistry()})
		named(t, l, "p", Policy{Limiter: perHost(t, 1<<30)})
		mux := http.NewServeMux()
		mux.Handle("GET /a", mark(t, l, "p", new(page)))
		return l.Wrap(mux)
	}},
	{"concurrency limiter, metrics", func(t testing.TB, permits int) http.Handler {
		h, err := ConcurrencyLimiter(new(page), ConcurrencyLimiterOptions{MaxConcurrentRequests: 1, Registerer: prometheus.NewRegistry()})
		require.NoError(t, err)
		if permits == 1 { // which is gone for good
			_, err = h.(*concurrency).limiter.TryAcquire(1)
			require.NoError(t, err)
		}
		return h
	}},
}

// H224: turning requests away allocates nothing.
func TestDeniedAllocatesNothing(t *testing.T) {
	for _, s := range shapes {
		t.Run("H224 "+s.name, func(t *testing.T) {
			h := s.make(t, 1)
			w, r := &bare{header: http.Header{}}, httptest.NewRequest(http.MethodGet, "/a", nil)
			h.ServeHTTP(w, r)
			w.status = 0
			allocs := testing.AllocsPerRun(1000, func() { h.ServeHTTP(w, r) })
			assert.GreaterOrEqual(t, w.status, 429)
			if !raceEnabled { // sync.Pool drops some on purpose there
				assert.Zero(t, allocs)
			}
		})
	}
}

func BenchmarkDenied(b *testing.B) { benchmark(b, 1) }

func BenchmarkGranted(b *testing.B) { benchmark(b, 1<<30) }

func benchmark(b *testing.B, permits int) {
	for _, s := range shapes {
		b.Run(s.name, func(b *testing.B) {
			h := s.make(b, permits)
			w, r := &bare{header: http.Header{}}, httptest.NewRequest(http.MethodGet, "/a", nil)
			h.ServeHTTP(w, r)
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(w, r)
			}
		})
	}
}
