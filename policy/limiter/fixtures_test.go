package limiter

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var errTest = errors.New("test")

// A kind is one of the four limiters. The timed ones are manual and have a
// period, or a segment, of a second.
type kind struct {
	name string
	make func(limit int, q Queue) (Limiter, error)
}

var kinds = []kind{
	{"token bucket", func(limit int, q Queue) (Limiter, error) {
		return NewTokenBucket(TokenBucketOptions{TokenLimit: limit, TokensPerPeriod: 1, Period: time.Second, Queue: q, Manual: true})
	}},
	{"fixed window", func(limit int, q Queue) (Limiter, error) {
		return NewFixedWindow(FixedWindowOptions{PermitLimit: limit, Window: time.Second, Queue: q, Manual: true})
	}},
	{"sliding window", func(limit int, q Queue) (Limiter, error) {
		return NewSlidingWindow(SlidingWindowOptions{PermitLimit: limit, Window: 3 * time.Second, Segments: 3, Queue: q, Manual: true})
	}},
	{"concurrency", func(limit int, q Queue) (Limiter, error) {
		return NewConcurrency(ConcurrencyOptions{PermitLimit: limit, Queue: q})
	}},
}

// each runs f in a bubble of its own for each kind.
func each(t *testing.T, limit int, q Queue, f func(t *testing.T, l *fixture)) {
	t.Helper()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, err := k.make(limit, q)
				require.NoError(t, err)
				defer func() { require.NoError(t, l.Close()) }()
				f(t, &fixture{Limiter: l, t: t})
			})
		})
	}
}

// A fixture is a limiter and the permits that a test has taken.
type fixture struct {
	Limiter
	t    testing.TB
	held []Lease
}

func (f *fixture) core() *core { return coreOf(f.Limiter) }

func coreOf(l Limiter) *core {
	switch l := l.(type) {
	case *TokenBucket:
		return &l.core
	case *FixedWindow:
		return &l.core
	case *SlidingWindow:
		return &l.core
	}
	return &l.(*Concurrency).core
}

// fill takes n permits, one at a time.
func (f *fixture) fill(n int) {
	f.t.Helper()
	for range n {
		f.held = append(f.held, granted(f.t, f.Limiter, 1))
	}
}

// bring makes n of them come back, in the way in which permits of the kind come
// back one by one.
func (f *fixture) bring(n int) {
	if r, ok := f.Limiter.(*TokenBucket); ok {
		time.Sleep(time.Duration(n) * time.Second)
		r.Replenish()
	} else {
		for _, l := range f.held[:n] {
			l.undo()
		}
		f.held = f.held[n:]
	}
	synctest.Wait()
}

func (f *fixture) acquire(n int) *call { return acquire(context.Background(), f.Limiter, n) }

func granted(t testing.TB, l Limiter, n int) Lease {
	t.Helper()
	lease, err := l.TryAcquire(n)
	require.NoError(t, err)
	require.True(t, lease.Acquired(), "of %d: %s", n, lease.Reason())
	require.Empty(t, lease.Reason())
	return lease
}

func denied(t testing.TB, l Limiter, n int) Lease {
	t.Helper()
	lease, err := l.TryAcquire(n)
	require.NoError(t, err)
	require.False(t, lease.Acquired(), "of %d", n)
	require.NotEmpty(t, lease.Reason())
	return lease
}

// A call is an Acquire that may be waiting.
type call struct {
	lease Lease
	err   error
	done  chan struct{}
}

// acquire calls Acquire and returns when it is answered or waits.
func acquire(ctx context.Context, l Limiter, n int) *call {
	return begin(func() (Lease, error) { return l.Acquire(ctx, n) })
}

func begin(f func() (Lease, error)) *call {
	c := &call{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.lease, c.err = f()
	}()
	synctest.Wait()
	return c
}

func (c *call) ended() bool {
	synctest.Wait()
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func (c *call) pending(t testing.TB) {
	t.Helper()
	require.False(t, c.ended(), "still waiting")
}

func (c *call) granted(t testing.TB) Lease {
	t.Helper()
	require.True(t, c.ended(), "answered")
	require.NoError(t, c.err)
	require.True(t, c.lease.Acquired(), c.lease.Reason())
	return c.lease
}

func (c *call) denied(t testing.TB, reason string) Lease {
	t.Helper()
	require.True(t, c.ended(), "answered")
	require.NoError(t, c.err)
	require.False(t, c.lease.Acquired())
	require.Equal(t, reason, c.lease.Reason())
	return c.lease
}

func (c *call) failed(t testing.TB, target error) {
	t.Helper()
	require.True(t, c.ended(), "answered")
	require.ErrorIs(t, c.err, target)
	require.Equal(t, Lease{}, c.lease)
}

// retryAfter requires that the lease has one.
func retryAfter(t testing.TB, want time.Duration, l Lease) {
	t.Helper()
	got, ok := l.RetryAfter()
	require.True(t, ok)
	require.Equal(t, want, got)
}

func noRetryAfter(t testing.TB, l Lease) {
	t.Helper()
	got, ok := l.RetryAfter()
	require.False(t, ok)
	require.Zero(t, got)
}

// limitReached is the reason for the want of permits.
func limitReached(l Limiter) string { return coreOf(l).reason.String() }

func idle(t testing.TB, want time.Duration, l Limiter) {
	t.Helper()
	got, ok := l.Idle()
	require.True(t, ok)
	require.Equal(t, want, got)
}

func inUse(t testing.TB, l Limiter) {
	t.Helper()
	got, ok := l.Idle()
	require.False(t, ok)
	require.Zero(t, got)
}

// must is for constructors that have to work.
func must[L any](l L, err error) L {
	if err != nil {
		panic(err)
	}
	return l
}
