package limiter

import (
	"context"
	"math"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// What all four limiters have in common, tested on each: section A.

func TestArguments(t *testing.T) {
	each(t, 1, Queue{Limit: 1}, func(t *testing.T, l *fixture) {
		cancelled, cancel := context.WithCancel(context.Background())
		cancel()
		check := func(name string, n int) {
			_, err := l.TryAcquire(n)
			require.Equal(t, PermitError{Asked: n, Limit: 1}, err, name)
			_, err = l.Acquire(context.Background(), n)
			require.Equal(t, PermitError{Asked: n, Limit: 1}, err, name)
			_, err = l.Acquire(cancelled, n)
			require.Equal(t, PermitError{Asked: n, Limit: 1}, err, name)
			var p *PermitError
			require.ErrorAs(t, err, &p)
			require.Equal(t, PermitError{Asked: n, Limit: 1}, *p)
			require.ErrorContains(t, err, "0..1")
		}
		check("A001", -1)
		check("A002", 2)
		check("A002", math.MaxInt)
		require.Equal(t, Stats{Available: 1}, l.Stats(), "A001, A002: no counter moves")

		l.fill(1)
		check("A006: before the context", -1)
		require.NoError(t, l.Close())
		check("before closed", -1)
		_, err := l.Acquire(cancelled, 1)
		require.ErrorIs(t, err, ErrClosed, "before the context")
	})
}

func TestClosed(t *testing.T) {
	each(t, 1, Queue{Limit: 1}, func(t *testing.T, l *fixture) { // A004
		require.NoError(t, l.Close())
		for n := range 2 {
			_, err := l.TryAcquire(n)
			require.ErrorIs(t, err, ErrClosed)
			require.ErrorIs(t, err, net.ErrClosed)
			_, err = l.Acquire(context.Background(), n)
			require.ErrorIs(t, err, ErrClosed)
		}
		require.Equal(t, Stats{}, l.Stats())
		idle(t, Never, l)
		if r, ok := l.Limiter.(Replenisher); ok {
			require.False(t, r.Replenish())
		}
	})
}

func TestProbe(t *testing.T) {
	each(t, 1, Queue{}, func(t *testing.T, l *fixture) { // A007
		granted(t, l, 0)
		l.acquire(0).granted(t)
		require.Equal(t, Stats{Available: 1, Successful: 2}, l.Stats())
	})
	each(t, 1, Queue{Limit: 1}, func(t *testing.T, l *fixture) { // A009
		l.fill(1)
		probe := l.acquire(0)
		probe.pending(t)
		require.Zero(t, l.Stats().Queued)
		l.bring(1)
		probe.granted(t)
		require.Equal(t, Stats{Available: 1, Successful: 2}, l.Stats())
	})
	each(t, 100, Queue{}, func(t *testing.T, l *fixture) { // A037
		granted(t, l, 0)
		require.Equal(t, Stats{Available: 100, Successful: 1}, l.Stats())
		l.acquire(0).granted(t)
		require.Equal(t, Stats{Available: 100, Successful: 2}, l.Stats())
		granted(t, l, 100)
		require.Equal(t, Stats{Successful: 3}, l.Stats())
		denied(t, l, 0)
		require.Equal(t, Stats{Successful: 3, Failed: 1}, l.Stats())
	})
	each(t, 2, Queue{Limit: 2}, func(t *testing.T, l *fixture) { // a probe says what asking for one would
		l.fill(1)
		waiter := l.acquire(2)
		denied(t, l, 0)
		l.bring(1)
		waiter.granted(t)
	})
}

func TestClose(t *testing.T) {
	each(t, 1, Queue{Limit: 3}, func(t *testing.T, l *fixture) { // A031
		l.fill(1)
		waiters := l.waiters(1, 1, 1)
		require.NoError(t, l.Close())
		requireOrder(t, waiters[0], waiters[1], waiters[2])
	})
	each(t, 1, Queue{Limit: 3, Order: NewestFirst}, func(t *testing.T, l *fixture) { // A032
		l.fill(1)
		waiters := l.waiters(1, 1, 1)
		require.NoError(t, l.Close())
		requireOrder(t, waiters[2], waiters[1], waiters[0])
	})
	each(t, 1, Queue{Limit: 3}, func(t *testing.T, l *fixture) { // A031, as callers see it
		l.fill(1)
		calls := []*call{l.acquire(1), l.acquire(1), l.acquire(1)}
		require.NoError(t, l.Close())
		for _, c := range calls {
			noRetryAfter(t, c.denied(t, "limiter closed"))
		}
		require.Equal(t, Stats{Successful: 1, Failed: 3}, l.Stats())
		_, err := l.TryAcquire(1)
		require.ErrorIs(t, err, ErrClosed)
		require.NoError(t, l.Close())
		require.Equal(t, Stats{Successful: 1, Failed: 3}, l.Stats())
	})
}

// requireOrder requires that the waiters were denied one after the other.
func requireOrder(t *testing.T, order ...*waiter) {
	t.Helper()
	for i, w := range order {
		<-w.ready
		require.Equal(t, denial(limiterClosed, 0, false), w.denial)
		if i > 0 {
			require.Same(t, w, order[i-1].next)
		}
	}
}

// A035: a waiter is woken outside of the lock, and may call the limiter at once.
func TestReenter(t *testing.T) {
	each(t, 1, Queue{Limit: 2}, func(t *testing.T, l *fixture) {
		l.fill(1)
		reentered := begin(func() (Lease, error) {
			lease, err := l.Acquire(context.Background(), 1)
			if err != nil || !lease.Acquired() {
				return lease, err
			}
			return l.TryAcquire(1)
		})
		l.bring(1)
		reentered.denied(t, limitReached(l.Limiter))
	})
}

// A039: options are copied.
func TestOptionsAreCopied(t *testing.T) {
	q, other := Queue{Limit: 1}, Queue{Limit: 3, Order: NewestFirst}
	for name, construct := range map[string]func() (Limiter, error){
		"token bucket": func() (Limiter, error) {
			o := TokenBucketOptions{TokenLimit: 1, TokensPerPeriod: 1, Period: time.Second, Queue: q}
			defer func() { o.TokenLimit, o.TokensPerPeriod, o.Period, o.Queue = 5, 5, 1, other }()
			return NewTokenBucket(o)
		},
		"fixed window": func() (Limiter, error) {
			o := FixedWindowOptions{PermitLimit: 1, Window: time.Second, Queue: q}
			defer func() { o.PermitLimit, o.Window, o.Queue = 5, 1, other }()
			return NewFixedWindow(o)
		},
		"sliding window": func() (Limiter, error) {
			o := SlidingWindowOptions{PermitLimit: 1, Window: time.Second, Segments: 1, Queue: q}
			defer func() { o.PermitLimit, o.Window, o.Segments, o.Queue = 5, 2, 2, other }()
			return NewSlidingWindow(o)
		},
		"concurrency": func() (Limiter, error) {
			o := ConcurrencyOptions{PermitLimit: 1, Queue: q}
			defer func() { o.PermitLimit, o.Queue = 5, other }()
			return NewConcurrency(o)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := must(construct())
				lease := granted(t, l, 1)
				denied(t, l, 1)
				a := acquire(context.Background(), l, 1)
				acquire(context.Background(), l, 1).denied(t, "queue limit reached")
				lease.Release()
				time.Sleep(time.Second)
				a.granted(t)
			})
		})
	}
}

func TestIdle(t *testing.T) {
	each(t, 1, Queue{Limit: 1}, func(t *testing.T, l *fixture) { // A040
		idle(t, 0, l)
		time.Sleep(15 * time.Millisecond)
		idle(t, 15*time.Millisecond, l)
		granted(t, l, 0)
		idle(t, 15*time.Millisecond, l)
		l.fill(1)
		inUse(t, l)
		l.bring(1)
		idle(t, 0, l)
		time.Sleep(time.Second)
		idle(t, time.Second, l)
		if r, ok := l.Limiter.(Replenisher); ok {
			r.Replenish()
			idle(t, time.Second, l)
		}
	})
}

func TestLease(t *testing.T) {
	each(t, 1, Queue{}, func(t *testing.T, l *fixture) { // A041
		lease := granted(t, l, 1)
		noRetryAfter(t, lease)
		require.Empty(t, lease.Reason())
		none := denied(t, l, 1)
		none.Release() // holds nothing
		require.Zero(t, l.Stats().Available)
	})
	var zero Lease
	zero.Release()
	require.False(t, zero.Acquired())
	require.Empty(t, zero.Reason())
	noRetryAfter(t, zero)
}
