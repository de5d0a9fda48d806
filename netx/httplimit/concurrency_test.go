package httplimit

import (
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/policy/limiter"
)

const (
	rejectedTotal    = "throttled_http_concurrency_rejected_total{}"
	queueLength      = "throttled_http_concurrency_queue_length{}"
	queueSeconds     = "throttled_http_concurrency_queue_duration_seconds{}"
	queueSecondsSum  = queueSeconds + ".sum"
	oldest           = limiter.OldestFirst
	newest           = limiter.NewestFirst
	pending, refused = 0, http.StatusServiceUnavailable
	inside           = -1
)

// A stage is a ConcurrencyLimiter around a handler in which each request stays
// until it is told to leave: entering it and leaving it are enter and exit.
type stage struct {
	t       *testing.T
	handler http.Handler
	mu      sync.Mutex
	in      []chan struct{} // of those inside, in the order in which they came in
	paths   []string
}

func newStage(t *testing.T, o ConcurrencyLimiterOptions) *stage {
	t.Helper()
	s := &stage{t: t}
	h, err := ConcurrencyLimiter(http.HandlerFunc(s.serve), o)
	require.NoError(t, err)
	s.handler = h
	return s
}

func (s *stage) serve(_ http.ResponseWriter, r *http.Request) {
	leave := make(chan struct{})
	s.mu.Lock()
	s.in, s.paths = append(s.in, leave), append(s.paths, r.URL.Path)
	s.mu.Unlock()
	<-leave
}

// enter sends requests of these names, one after the other.
func (s *stage) enter(names ...string) map[string]*exchange {
	all := make(map[string]*exchange)
	for _, name := range names {
		all[name] = begin(s.handler, "/"+name)
	}
	return all
}

// exit lets the one leave that has been inside the longest.
func (s *stage) exit() {
	s.mu.Lock()
	require.NotEmpty(s.t, s.in)
	close(s.in[0])
	s.in = s.in[1:]
	s.mu.Unlock()
	synctest.Wait()
}

// state is what became of the requests.
func (s *stage) state(all map[string]*exchange) map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := make(map[string]int)
	for name, e := range all {
		switch {
		case e.done():
			state[name] = e.Code
		default:
			state[name] = pending
			for _, p := range s.paths {
				if p == "/"+name {
					state[name] = inside
				}
			}
		}
	}
	return state
}

func (s *stage) is(all map[string]*exchange, want map[string]int) {
	s.t.Helper()
	assert.Equal(s.t, want, s.state(all))
}

// empty lets everybody out.
func (s *stage) empty() {
	for {
		s.mu.Lock()
		n := len(s.in)
		s.mu.Unlock()
		if n == 0 {
			return
		}
		s.exit()
	}
}

func TestConcurrencyLimiterQueue(t *testing.T) {
	for _, tc := range []struct {
		name string
		o    ConcurrencyLimiterOptions
		run  func(t *testing.T, s *stage)
	}{
		{"I236", ConcurrencyLimiterOptions{MaxConcurrentRequests: 1, RequestQueueLimit: 1}, func(_ *testing.T, s *stage) {
			all := s.enter("a", "b")
			s.is(all, map[string]int{"a": inside, "b": pending})
			s.exit()
			s.is(all, map[string]int{"a": 200, "b": inside})
		}},
		{"I237", ConcurrencyLimiterOptions{MaxConcurrentRequests: 2, RequestQueueLimit: 1}, func(_ *testing.T, s *stage) {
			s.is(s.enter("a", "b", "c", "d"), map[string]int{"a": inside, "b": inside, "c": pending, "d": refused})
		}},
		{"I238", ConcurrencyLimiterOptions{MaxConcurrentRequests: 1}, func(t *testing.T, s *stage) {
			other := newStage(t, ConcurrencyLimiterOptions{MaxConcurrentRequests: 1})
			s.is(s.enter("a"), map[string]int{"a": inside})
			other.is(other.enter("a"), map[string]int{"a": inside})
			other.empty()
		}},
		// I241, a stack for nobody, was legal in one version only; here one
		// place is the least, and it is taken.
		{"I241", ConcurrencyLimiterOptions{MaxConcurrentRequests: 1, RequestQueueLimit: 3, Order: newest}, func(_ *testing.T, s *stage) {
			s.enter("holder")
			all := s.enter("1", "2", "3", "4")
			s.is(all, map[string]int{"1": refused, "2": pending, "3": pending, "4": pending})
		}},
		{"I242", ConcurrencyLimiterOptions{MaxConcurrentRequests: 2, RequestQueueLimit: 2, Order: newest}, func(_ *testing.T, s *stage) {
			s.is(s.enter("a", "b", "c"), map[string]int{"a": inside, "b": inside, "c": pending})
		}},
		{"I244", ConcurrencyLimiterOptions{MaxConcurrentRequests: 1, RequestQueueLimit: 3, Order: newest}, func(t *testing.T, s *stage) {
			s.enter("holder", "a", "b", "c")
			for range 3 {
				s.exit()
			}
			assert.Equal(t, []string{"/holder", "/c", "/b", "/a"}, s.paths)
		}},
		{"I246", ConcurrencyLimiterOptions{MaxConcurrentRequests: 1, RequestQueueLimit: 4, Order: newest}, func(_ *testing.T, s *stage) {
			s.enter("holder")
			for range 2 {
				all := s.enter("a", "b", "c", "d")
				s.exit()
				s.is(all, map[string]int{"a": pending, "b": pending, "c": pending, "d": inside})
				for range 4 {
					s.exit()
				}
				s.is(all, map[string]int{"a": 200, "b": 200, "c": 200, "d": 200})
				s.paths = nil
				s.enter("holder")
			}
		}},
		{"I247", ConcurrencyLimiterOptions{MaxConcurrentRequests: 1, Order: newest}, func(_ *testing.T, s *stage) {
			s.is(s.enter("a", "b"), map[string]int{"a": inside, "b": refused})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, tc.o)
				tc.run(t, s)
				s.empty()
			})
		})
	}
}

// An exit without an enter cannot be written: the permit is a lease of the
// request. What is left is that one lease may be released twice.
func TestExitWithoutEnter(t *testing.T) {
	t.Run("I248", func(t *testing.T) {
		s := newStage(t, ConcurrencyLimiterOptions{MaxConcurrentRequests: 1, Order: newest})
		l := s.handler.(*concurrency).limiter
		limiter.Lease{}.Release()
		lease, err := l.TryAcquire(1)
		require.NoError(t, err)
		lease.Release()
		lease.Release()
		assert.Equal(t, int64(1), l.Stats().Available)
	})
}

func TestConcurrencyLimiterOptions(t *testing.T) {
	t.Run("I239", func(t *testing.T) {
		for field, o := range map[string]ConcurrencyLimiterOptions{
			"MaxConcurrentRequests: 0":  {},
			"MaxConcurrentRequests: -1": {MaxConcurrentRequests: -1},
			"RequestQueueLimit: -1":     {MaxConcurrentRequests: 1, RequestQueueLimit: -1},
			"Order: 2":                  {MaxConcurrentRequests: 1, Order: 2},
			"MaxWait: -1ns":             {MaxConcurrentRequests: 1, MaxWait: -1},
		} {
			_, err := ConcurrencyLimiter(new(page), o)
			assert.ErrorContains(t, err, "httplimit: "+field)
		}
		_, err := ConcurrencyLimiter(nil, ConcurrencyLimiterOptions{RequestQueueLimit: -1})
		for _, want := range []string{"no handler", "MaxConcurrentRequests", "RequestQueueLimit"} {
			assert.ErrorContains(t, err, want, "every one at once")
		}
		_, err = ConcurrencyLimiter(new(page), ConcurrencyLimiterOptions{MaxConcurrentRequests: 1, RequestQueueLimit: 0})
		assert.NoError(t, err)
	})
	t.Run("Registerer", func(t *testing.T) {
		r := &fullRegistry{Registry: prometheus.NewPedanticRegistry(), room: 2}
		_, err := ConcurrencyLimiter(new(page), ConcurrencyLimiterOptions{MaxConcurrentRequests: 1, Registerer: r})
		assert.ErrorIs(t, err, errTest)
		assert.Equal(t, 2, r.room)
	})
}

func TestConcurrencyLimiterRejects(t *testing.T) {
	for _, tc := range []struct {
		name string
		hook func(w http.ResponseWriter, r *http.Request)
		code int
		body string
	}{
		{"I250", func(http.ResponseWriter, *http.Request) {}, 503, ""},
		{"without a hook", nil, 503, ""},
		{"a body", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "full") }, 503, "full"},
		{"a status", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) }, 429, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				called := 0
				registry := prometheus.NewPedanticRegistry()
				o := ConcurrencyLimiterOptions{MaxConcurrentRequests: 1, Registerer: registry}
				if tc.hook != nil {
					o.OnRejected = func(w http.ResponseWriter, r *http.Request) {
						called++
						tc.hook(w, r)
					}
				}
				s := newStage(t, o)
				all := s.enter("a", "b")
				s.is(all, map[string]int{"a": inside, "b": tc.code})
				assert.Equal(t, tc.body, all["b"].Body.String())
				assert.Equal(t, tc.hook != nil, called == 1)
				assert.Equal(t, 1.0, gather(t, registry)[rejectedTotal])
				s.empty()
			})
		})
	}
}

func TestConcurrencyLimiterPanics(t *testing.T) {
	t.Run("I251", func(t *testing.T) {
		for _, value := range []any{errTest, http.ErrAbortHandler} {
			h, err := ConcurrencyLimiter(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(value) }),
				ConcurrencyLimiterOptions{MaxConcurrentRequests: 2})
			require.NoError(t, err)
			assert.PanicsWithValue(t, value, func() { get(h, "/") })
			assert.Equal(t, int64(2), h.(*concurrency).limiter.Stats().Available)
		}
	})
	t.Run("in the hook", func(t *testing.T) {
		h, err := ConcurrencyLimiter(new(page), ConcurrencyLimiterOptions{
			MaxConcurrentRequests: 1,
			OnRejected:            func(http.ResponseWriter, *http.Request) { panic(errTest) },
		})
		require.NoError(t, err)
		l := h.(*concurrency).limiter
		held, err := l.TryAcquire(1)
		require.NoError(t, err)
		assert.PanicsWithValue(t, errTest, func() { get(h, "/") })
		held.Release()
		assert.Equal(t, http.StatusOK, get(h, "/").Code)
	})
}

// I256 in real time: who does not wait has waited 0, to the nanosecond.
func TestConcurrencyLimiterNoWaitIsNone(t *testing.T) {
	t.Run("I256", func(t *testing.T) {
		r := prometheus.NewPedanticRegistry()
		h, err := ConcurrencyLimiter(new(page), ConcurrencyLimiterOptions{MaxConcurrentRequests: 1, RequestQueueLimit: 1, Registerer: r})
		require.NoError(t, err)
		for range 100 {
			get(h, "/")
		}
		found := gather(t, r)
		assert.Equal(t, 100.0, found[queueSeconds])
		assert.Zero(t, found[queueSecondsSum])
	})
}

func TestConcurrencyLimiterMetrics(t *testing.T) {
	run := func(name string, f func(t *testing.T, s *stage, read func() map[string]float64)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := prometheus.NewPedanticRegistry()
				s := newStage(t, ConcurrencyLimiterOptions{MaxConcurrentRequests: 1, RequestQueueLimit: 5, Registerer: r})
				f(t, s, func() map[string]float64 { return gather(t, r) })
				s.empty()
			})
		})
	}
	run("I253", func(t *testing.T, s *stage, read func() map[string]float64) {
		s.enter("holder")
		for i, name := range []string{"a", "b"} {
			s.enter(name)
			assert.Equal(t, float64(i+1), read()[queueLength])
		}
		s.empty()
		assert.Zero(t, read()[queueLength])
	})
	// I255: the names; the event of a refusal is the counter.
	run("I255", func(t *testing.T, _ *stage, read func() map[string]float64) {
		assert.Equal(t, map[string]float64{rejectedTotal: 0, queueLength: 0, queueSeconds: 0, queueSecondsSum: 0}, read())
	})
	run("I256", func(t *testing.T, s *stage, read func() map[string]float64) {
		s.enter("a")
		assert.Equal(t, 1.0, read()[queueSeconds])
		assert.Zero(t, read()[queueSecondsSum])
		s.enter("b")
		time.Sleep(250 * time.Millisecond)
		s.exit()
		assert.Equal(t, 2.0, read()[queueSeconds])
		assert.Equal(t, 0.25, read()[queueSecondsSum])
	})
}

// I257: a stack that is always full serves the newest, so the others need a
// MaxWait. Clients that come again and again keep it full for a minute.
func TestStackUnderOverload(t *testing.T) {
	t.Run("I257", func(t *testing.T) {
		for _, tc := range []struct {
			maxWait time.Duration
			longest time.Duration // how long somebody hangs
		}{{0, time.Minute}, {3 * time.Second, 3 * time.Second}} {
			synctest.Test(t, func(t *testing.T) {
				const work = 100 * time.Millisecond
				h, err := ConcurrencyLimiter(
					http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(work) }),
					ConcurrencyLimiterOptions{MaxConcurrentRequests: 2, RequestQueueLimit: 10, Order: newest, MaxWait: tc.maxWait})
				require.NoError(t, err)
				start := time.Now()
				var mu sync.Mutex
				var longest time.Duration
				var clients sync.WaitGroup
				for range 10 {
					clients.Go(func() {
						for time.Since(start) < time.Minute {
							sent := time.Now()
							get(h, "/")
							mu.Lock()
							longest = max(longest, time.Since(sent))
							mu.Unlock()
						}
					})
				}
				clients.Wait()
				if tc.maxWait == 0 {
					assert.GreaterOrEqual(t, longest, tc.longest-time.Second, "the oldest wait as long as the overload lasts")
				} else {
					assert.LessOrEqual(t, longest, tc.longest+work)
				}
			})
		}
	})
}

func TestConcurrencyLimiterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		o := ConcurrencyLimiterOptions{MaxConcurrentRequests: 1, RequestQueueLimit: 1, Registerer: registry}
		s := newStage(t, o)
		all := s.enter("a", "b")
		closer := s.handler.(io.Closer)
		require.NoError(t, closer.Close())
		synctest.Wait()
		s.is(all, map[string]int{"a": inside, "b": refused})
		s.is(s.enter("c"), map[string]int{"c": refused})
		assert.Empty(t, gather(t, registry))
		s.empty()

		newStage(t, o)
		require.NoError(t, closer.Close())
		assert.NotEmpty(t, gather(t, registry), "the metrics of the successor stay")
	})
}
