package httplimit

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/policy/limiter"
)

// byUser is a limiter for each user, who is the query.
func byUser(t testing.TB, factory func(string) (limiter.Limiter, error)) *limiter.Partitioned[*http.Request, string] {
	table, err := limiter.NewPartitioned(func(r *http.Request) limiter.Partition[string] {
		return limiter.Partition[string]{Key: r.URL.RawQuery, New: factory}
	}, limiter.PartitionedOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, table.Close()) })
	return table
}

func minutely(string) (limiter.Limiter, error) {
	return limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 10, Window: time.Minute})
}

func three(string) (limiter.Limiter, error) {
	return limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 3})
}

// Both of a policy's rules apply together on a route, however they are put
// together: 10 a minute for each user and 3 at once.
func TestTenAMinuteAndThreeAtOnce(t *testing.T) {
	for name, combined := range map[string]func(t *testing.T) limiter.Selective[*http.Request]{
		"J271 a chain of tables": func(t *testing.T) limiter.Selective[*http.Request] {
			both, err := limiter.ChainSelective[*http.Request](byUser(t, minutely), byUser(t, three))
			require.NoError(t, err)
			return both
		},
		"J271 a table of chains": func(t *testing.T) limiter.Selective[*http.Request] {
			return byUser(t, func(user string) (limiter.Limiter, error) {
				window, err := minutely(user)
				require.NoError(t, err)
				slots, err := three(user)
				require.NoError(t, err)
				return limiter.Chain(window, slots)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimits(t, Options{})
				site := new(page)
				site.gate = make(chan struct{})
				reasons := &hook{}
				mux := http.NewServeMux()
				mux.Handle("/", requirePolicy(t, l, Policy{Limiter: combined(t), OnRejected: reasons.reject}, site))
				h := l.Wrap(mux)

				parallel := []*exchange{begin(h, "/?ann"), begin(h, "/?ann"), begin(h, "/?ann"), begin(h, "/?ann")}
				assert.Equal(t, int64(3), site.inside.Load())
				assert.Equal(t, http.StatusTooManyRequests, parallel[3].Code)
				assert.Equal(t, "concurrency limit reached", reasons.lease.Reason())
				assert.NotContains(t, parallel[3].Header(), "Retry-After")
				assert.False(t, begin(h, "/?bob").done(), "another user is served")
				close(site.gate)
				synctest.Wait()

				for i := range 7 { // the fourth in parallel cost nothing
					require.Equal(t, http.StatusOK, get(h, "/?ann").Code, i)
				}
				w := get(h, "/?ann")
				assert.Equal(t, http.StatusTooManyRequests, w.Code)
				assert.Equal(t, "rate limit reached", reasons.lease.Reason())
				assert.Equal(t, "60", w.Header().Get("Retry-After"))
				time.Sleep(time.Minute)
				var codes []int
				for range 12 {
					codes = append(codes, get(h, "/?ann").Code)
				}
				assert.Equal(t, []int{200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 429, 429}, codes)
			})
		})
	}
}

// A policy whose partitions are single requests leaves nothing behind.
func TestPartitionOfARequest(t *testing.T) {
	t.Run("J272", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			const sweep = 100 * time.Millisecond
			table, err := limiter.NewPartitioned(func(r *http.Request) limiter.Partition[*http.Request] {
				return limiter.Partition[*http.Request]{Key: r, New: func(*http.Request) (limiter.Limiter, error) { return three("") }}
			}, limiter.PartitionedOptions{IdleAfter: time.Nanosecond, Sweep: sweep})
			require.NoError(t, err)
			defer table.Close()
			l := newLimits(t, Options{})
			site := gated()
			h := l.Wrap(requirePolicy(t, l, Policy{Limiter: table}, site))

			e := begin(h, "/")
			time.Sleep(time.Second)
			assert.Equal(t, 1, table.Len(), "while the request is served")
			close(site.gate)
			synctest.Wait()
			require.True(t, e.done())
			time.Sleep(2 * sweep)
			synctest.Wait()
			assert.Zero(t, table.Len())

			for i := range 10_000 {
				h.ServeHTTP(&bare{header: http.Header{}}, httptest.NewRequest(http.MethodGet, "/?"+strconv.Itoa(i), nil))
			}
			assert.Equal(t, int64(10_001), site.served.Load())
			time.Sleep(time.Second) // a sweep looks at a bounded number
			table.SweepNow()
			assert.Zero(t, table.Len())
		})
	})
}
