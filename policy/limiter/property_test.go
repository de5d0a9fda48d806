package limiter

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What holds for every limiter whatever its callers do, with several of them at
// the same time.

const (
	propertyCallers = 4
	propertySteps   = 50_000 / propertyCallers // and for each order
	propertyLimit   = 7
)

// A subject is a limiter with its bound: what may be granted within each time.
type subject struct {
	name string
	make func(q Queue) (Limiter, error)
	// bound checks the grants in the order of their times.
	bound func(t *testing.T, grants []grant)
}

type grant struct{ at, n int64 }

const (
	propertyWindow  = 60
	propertySegment = 20
	propertyTokens  = 3
	propertyPeriod  = 17
)

var subjects = []subject{
	{"token bucket", func(q Queue) (Limiter, error) {
		return NewTokenBucket(TokenBucketOptions{TokenLimit: propertyLimit, TokensPerPeriod: propertyTokens, Period: propertyPeriod, Queue: q})
	}, boundOfBucket},
	{"fixed window", func(q Queue) (Limiter, error) {
		return NewFixedWindow(FixedWindowOptions{PermitLimit: propertyLimit, Window: propertyWindow, Queue: q})
	}, func(t *testing.T, grants []grant) {
		windows := map[int64]int64{}
		for _, g := range grants {
			windows[g.at/propertyWindow] += g.n
			require.LessOrEqual(t, windows[g.at/propertyWindow], int64(propertyLimit), "in window %d", g.at/propertyWindow)
		}
	}},
	{"sliding window", func(q Queue) (Limiter, error) {
		return NewSlidingWindow(SlidingWindowOptions{PermitLimit: propertyLimit, Window: propertyWindow, Segments: propertyWindow / propertySegment, Queue: q})
	}, func(t *testing.T, grants []grant) {
		sum, first := int64(0), 0
		for i, g := range grants { // within any time shorter than the window less a segment, and in any whole segments
			sum += g.n
			for grants[first].at/propertySegment <= grants[i].at/propertySegment-propertyWindow/propertySegment {
				sum -= grants[first].n
				first++
			}
			require.LessOrEqual(t, sum, int64(propertyLimit), "before %d", g.at)
		}
	}},
	{"concurrency", func(q Queue) (Limiter, error) {
		return NewConcurrency(ConcurrencyOptions{PermitLimit: propertyLimit, Queue: q})
	}, func(*testing.T, []grant) {}},
}

// boundOfBucket holds the grants to TokenLimit + T*TokensPerPeriod/Period for
// each time T from one to another.
func boundOfBucket(t *testing.T, grants []grant) {
	level := int64(propertyLimit * propertyPeriod) // in units, of which a nanosecond brings TokensPerPeriod
	last := int64(0)
	for _, g := range grants {
		level = min(level+(g.at-last)*propertyTokens, propertyLimit*propertyPeriod)
		last = g.at
		level -= g.n * propertyPeriod
		require.GreaterOrEqual(t, level, int64(0), "at %d", g.at)
	}
}

// A crowd is callers of one limiter and what they have seen.
type crowd struct {
	t     *testing.T
	l     Limiter
	start time.Time
	out   atomic.Int64 // permits of leases that have not been released

	granted, denied, ended, closed atomic.Int64

	mu     sync.Mutex
	grants []grant
}

func (c *crowd) call(r *rand.Rand, hold func(Lease, int64)) {
	n := r.Int64N(propertyLimit/2 + 1)
	var lease Lease
	var err error
	if r.IntN(2) == 0 {
		lease, err = c.l.TryAcquire(int(n))
	} else {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+r.IntN(40)))
		if r.IntN(8) == 0 {
			go cancel()
		}
		lease, err = c.l.Acquire(ctx, int(n))
		cancel()
	}
	switch {
	case errors.Is(err, ErrClosed):
		c.closed.Add(1)
	case err != nil:
		c.ended.Add(1)
	case lease.Acquired():
		c.granted.Add(1)
		if _, ok := c.l.(*Concurrency); ok {
			assert.LessOrEqual(c.t, c.out.Add(n), int64(propertyLimit))
		}
		c.mu.Lock()
		c.grants = append(c.grants, grant{int64(time.Since(c.start)), n})
		c.mu.Unlock()
		hold(lease, n)
	default:
		c.denied.Add(1)
	}
}

// run makes calls, releases some of the leases, twice too, and lets time pass.
func (c *crowd) run(seed uint64, steps int) {
	r := rand.New(rand.NewPCG(seed, 0))
	type held struct {
		Lease
		n int64
	}
	var leases []held
	release := func() {
		l := leases[len(leases)-1]
		leases = leases[:len(leases)-1]
		c.out.Add(-l.n)
		l.Release()
		if r.IntN(4) == 0 {
			l.Release()
		}
	}
	for range steps {
		c.call(r, func(l Lease, n int64) { leases = append(leases, held{l, n}) })
		if len(leases) > 2 || len(leases) > 0 && r.IntN(2) == 0 {
			release()
		}
		if r.IntN(4) == 0 {
			time.Sleep(time.Duration(r.IntN(10)))
		}
	}
	for len(leases) > 0 {
		release()
	}
}

// Permits are conserved and bounds held under any mix of calls, cancels,
// releases and, at last, Close in the middle of calls.
func TestConservation(t *testing.T) {
	for _, s := range subjects {
		for _, order := range []Order{OldestFirst, NewestFirst} {
			t.Run(s.name+" "+order.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					seed := rand.Uint64()
					t.Logf("seed %d", seed)
					l := must(s.make(Queue{Limit: 9, Order: order, MaxWait: 50}))
					c := &crowd{t: t, l: l, start: time.Now()}
					c.all(seed, propertySteps/2)
					c.check()
					slices.SortStableFunc(c.grants, func(a, b grant) int { return int(a.at - b.at) })
					s.bound(t, c.grants)
					time.Sleep(time.Second)
					require.EqualValues(t, propertyLimit, l.Stats().Available)
					_, ok := l.Idle()
					require.True(t, ok)

					go func() {
						time.Sleep(100 * time.Nanosecond)
						assert.NoError(t, l.Close())
					}()
					c.all(seed+100, propertySteps/2)
					c.check()
					require.NotZero(t, c.closed.Load())
					require.Zero(t, coreOf(l).lobby.count)
				})
			})
		}
	}
}

func (c *crowd) all(seed uint64, steps int) {
	var wg sync.WaitGroup
	for i := range uint64(propertyCallers) {
		wg.Go(func() { c.run(seed+i, steps) })
	}
	wg.Wait()
}

// check compares the statistics with what the callers have seen.
func (c *crowd) check() {
	c.t.Helper()
	s := c.l.Stats()
	require.Equal(c.t, c.granted.Load(), s.Successful)
	require.Equal(c.t, c.denied.Load(), s.Failed)
	require.Zero(c.t, s.Queued)
	require.NotZero(c.t, c.granted.Load())
	require.NotZero(c.t, c.denied.Load())
	require.NotZero(c.t, c.ended.Load())
}

// A chain of all four that is cancelled and denied all the time takes no permit
// from anybody for good.
func TestChainConservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var members []Limiter
		for i, s := range subjects {
			members = append(members, must(s.make(Queue{Limit: 5 + i, MaxWait: 30})))
		}
		outer := must(Chain(must(Chain(members[0], members[1])), members[2], members[3]))
		c := &crowd{t: t, l: outer, start: time.Now()}
		c.all(rand.Uint64(), propertySteps/4)
		slices.SortStableFunc(c.grants, func(a, b grant) int { return int(a.at - b.at) })
		require.NotZero(t, c.granted.Load())
		require.NotZero(t, c.denied.Load())
		time.Sleep(time.Second)
		for _, m := range members {
			s := m.Stats()
			require.EqualValues(t, propertyLimit, s.Available)
			require.Zero(t, s.Queued)
			require.GreaterOrEqual(t, s.Successful, c.granted.Load())
			_, ok := m.Idle()
			require.True(t, ok)
		}
	})
}

// No goroutine is left, whatever ended how.
func TestNoGoroutineIsLeft(t *testing.T) {
	before := runtime.NumGoroutine()
	for _, s := range subjects {
		table := must(NewPartitioned(func(key int) Partition[int] {
			return Partition[int]{Key: key, New: func(int) (Limiter, error) { return s.make(Queue{Limit: 5}) }}
		}, PartitionedOptions{Sweep: time.Millisecond}))
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Millisecond)
				defer cancel()
				for range 10 {
					_, err := table.Acquire(ctx, i%3, propertyLimit)
					assert.True(t, err == nil || errors.Is(err, context.DeadlineExceeded), "%v", err)
				}
			})
		}
		wg.Wait()
		require.NoError(t, table.Close())
	}
	deadline := time.Now().Add(10 * time.Second)
	for runtime.NumGoroutine() > before {
		require.True(t, time.Now().Before(deadline), "%d goroutines, %d before", runtime.NumGoroutine(), before)
		time.Sleep(time.Millisecond)
	}
}
