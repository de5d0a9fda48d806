package limiter

import (
	"context"
	"math"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
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

func TestQueueOrder(t *testing.T) {
	each(t, 2, Queue{Limit: 2}, func(t *testing.T, l *fixture) { // A011
		l.fill(2)
		a, b := l.acquire(1), l.acquire(1)
		l.bring(1)
		a.granted(t)
		b.pending(t)
		l.bring(1)
		b.granted(t)
	})
	each(t, 2, Queue{Limit: 3, Order: NewestFirst}, func(t *testing.T, l *fixture) { // A012
		l.fill(2)
		a, b := l.acquire(2), l.acquire(1)
		l.bring(1)
		b.granted(t)
		a.pending(t)
	})
	each(t, 2, Queue{Limit: 3, Order: NewestFirst}, func(t *testing.T, l *fixture) { // A019
		l.fill(1)
		a := l.acquire(2)
		granted(t, l, 1)
		a.pending(t)
	})
	each(t, 2, Queue{Limit: 3}, func(t *testing.T, l *fixture) { // A021
		l.fill(1)
		a := l.acquire(2)
		require.Equal(t, limitReached(l.Limiter), denied(t, l, 1).Reason())
		require.Equal(t, Stats{Available: 1, Queued: 2, Successful: 1, Failed: 1}, l.Stats())
		a.pending(t)
	})
	each(t, 2, Queue{Limit: 3}, func(t *testing.T, l *fixture) { // A022
		l.fill(1)
		a, b := l.acquire(2), l.acquire(1)
		b.pending(t)
		l.bring(1)
		a.granted(t)
		b.pending(t)
	})
	each(t, 5, Queue{Limit: 10, Order: NewestFirst}, func(t *testing.T, l *fixture) { // A024
		l.fill(5)
		a, b := l.acquire(1), l.acquire(5)
		l.bring(3)
		a.pending(t)
		b.pending(t)
		require.Equal(t, Stats{Available: 3, Queued: 6, Successful: 5}, l.Stats())
	})
}

func TestQueueFull(t *testing.T) {
	each(t, 1, Queue{Limit: 1}, func(t *testing.T, l *fixture) { // A013
		l.fill(1)
		a := l.acquire(1)
		b := l.acquire(1)
		b.denied(t, "queue limit reached")
		a.pending(t)
		require.Equal(t, Stats{Queued: 1, Successful: 1, Failed: 1}, l.Stats())
	})
	each(t, 2, Queue{Limit: 1, Order: NewestFirst}, func(t *testing.T, l *fixture) { // A016
		l.fill(2)
		a := l.acquire(1)
		l.acquire(2).denied(t, "queue limit reached")
		a.pending(t)
	})
	each(t, 1, Queue{Limit: 1}, func(t *testing.T, l *fixture) { // A017
		l.fill(1)
		a := l.acquire(1)
		l.acquire(1).denied(t, "queue limit reached")
		l.bring(1)
		l.held = append(l.held, a.granted(t))
		c := l.acquire(1)
		c.pending(t)
		l.bring(1)
		c.granted(t)
	})
	each(t, 1, Queue{}, func(t *testing.T, l *fixture) { // no queue: nobody waits
		l.fill(1)
		l.acquire(1).denied(t, limitReached(l.Limiter))
		l.acquire(0).denied(t, limitReached(l.Limiter))
	})
	each(t, 1, Queue{Limit: 5}, func(t *testing.T, l *fixture) { // probes weigh nothing, and are bounded
		l.fill(1)
		probes := make([]*call, minWaiters)
		for i := range probes {
			probes[i] = l.acquire(0)
		}
		l.acquire(0).denied(t, "queue limit reached")
		l.bring(1)
		for _, p := range probes {
			p.granted(t)
		}
	})
	each(t, math.MaxInt, Queue{Limit: math.MaxInt}, func(t *testing.T, l *fixture) { // sums do not overflow
		granted(t, l, math.MaxInt)
		a, b := l.acquire(math.MaxInt-1), l.acquire(1)
		l.acquire(1).denied(t, "queue limit reached")
		require.EqualValues(t, math.MaxInt, l.Stats().Queued)
		a.pending(t)
		b.pending(t)
	})
}

func TestEviction(t *testing.T) {
	each(t, 2, Queue{Limit: 2, Order: NewestFirst}, func(t *testing.T, l *fixture) { // A015
		l.fill(2)
		waiters := l.waiters(1, 1)
		c := l.acquire(2)
		c.pending(t)
		require.Same(t, waiters[1], waiters[0].next, "a is told before b")
		for _, w := range waiters {
			<-w.ready
			require.False(t, w.granted)
			require.Equal(t, "evicted by a newer request", w.denial.Reason())
		}
		require.Equal(t, Stats{Queued: 2, Successful: 2, Failed: 2}, l.Stats())
	})
	each(t, 2, Queue{Limit: 2, Order: NewestFirst}, func(t *testing.T, l *fixture) { // A015, as callers see it
		l.fill(2)
		a, b := l.acquire(1), l.acquire(1)
		l.acquire(2).pending(t)
		a.denied(t, "evicted by a newer request")
		b.denied(t, "evicted by a newer request")
	})
}

// waiters puts waiters into the queue without goroutines that take them out of
// circulation, so that a test can see in which order they are told.
func (f *fixture) waiters(weights ...int64) []*waiter {
	c := f.core()
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*waiter
	for _, n := range weights {
		var woken settled
		w, _ := c.enqueue(c.now(), n, &woken)
		require.NotNil(f.t, w)
		all = append(all, w)
	}
	return all
}

func TestCancel(t *testing.T) {
	each(t, 1, Queue{Limit: 1}, func(t *testing.T, l *fixture) { // A026
		l.fill(1)
		ctx, cancel := context.WithCancelCause(context.Background())
		a := acquire(ctx, l, 1)
		a.pending(t)
		cancel(errTest)
		a.failed(t, context.Canceled)
		a.failed(t, errTest)
		require.Equal(t, Stats{Successful: 1}, l.Stats(), "nobody waits, and a cancel is no denial")
		l.bring(1)
		require.EqualValues(t, 1, l.Stats().Available)
	})
	each(t, 1, Queue{Limit: 1}, func(t *testing.T, l *fixture) { // A027
		l.fill(1)
		ctx, cancel := context.WithCancel(context.Background())
		a := acquire(ctx, l, 1)
		cancel()
		a.failed(t, context.Canceled)
		require.Equal(t, context.Canceled, a.err)
		b := l.acquire(1)
		b.pending(t)
		l.bring(1)
		b.granted(t)
	})
	each(t, 2, Queue{Limit: 4}, func(t *testing.T, l *fixture) { // A029
		l.fill(2)
		ctx, cancel := context.WithCancel(context.Background())
		a := acquire(ctx, l, 2)
		cancel()
		a.failed(t, context.Canceled)
		b := l.acquire(1)
		l.bring(1)
		b.granted(t)
	})
	each(t, 2, Queue{Limit: 4}, func(t *testing.T, l *fixture) { // A029, cancelled when others could go
		l.fill(2)
		ctx, cancel := context.WithCancel(context.Background())
		a := acquire(ctx, l, 2)
		b := l.acquire(1)
		l.bring(1)
		b.pending(t)
		cancel()
		a.failed(t, context.Canceled)
		b.granted(t)
	})
	each(t, 1, Queue{Limit: 2}, func(t *testing.T, l *fixture) { // A030
		l.fill(1)
		ctx, cancel := context.WithCancel(context.Background())
		a := acquire(ctx, l, 1)
		cancel()
		a.failed(t, context.Canceled)
		require.NoError(t, l.Close())
		require.Zero(t, l.Stats().Failed)
	})
	each(t, 1, Queue{}, func(t *testing.T, l *fixture) { // a context that is done takes nothing
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		<-ctx.Done()
		acquire(ctx, l, 1).failed(t, context.DeadlineExceeded)
		require.Equal(t, Stats{Available: 1}, l.Stats())
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

// A034: whoever takes a waiter out counts it, once.
func TestCancelMeetsEviction(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			l := must(k.make(2, Queue{Limit: 3, Order: NewestFirst}))
			granted(t, l, 2)
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for i := range 2000 {
						ctx, cancel := context.WithCancel(context.Background())
						if i%2 == 0 {
							go cancel()
						} else {
							cancel()
						}
						if _, err := l.Acquire(ctx, 1+i%2); err != nil {
							assert.ErrorIs(t, err, context.Canceled)
						}
						cancel()
					}
				})
			}
			wg.Wait()
			q := coreOf(l).lobby.queue
			require.Zero(t, q.count)
			require.Zero(t, q.permits)
			require.Nil(t, q.first)
			require.Nil(t, q.last)
		})
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
	synctest.Test(t, func(t *testing.T) {
		o := ConcurrencyOptions{PermitLimit: 1, Queue: Queue{Limit: 1}}
		l := must(NewConcurrency(o))
		o.PermitLimit, o.Queue = 5, Queue{Limit: 3, Order: NewestFirst}
		lease := granted(t, l, 1)
		denied(t, l, 1)
		a := acquire(context.Background(), l, 1)
		acquire(context.Background(), l, 1).denied(t, "queue limit reached")
		lease.Release()
		a.granted(t)
	})
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

func TestMaxWait(t *testing.T) {
	for _, order := range []Order{OldestFirst, NewestFirst} {
		each(t, 2, Queue{Limit: 4, Order: order, MaxWait: 300 * time.Millisecond}, func(t *testing.T, l *fixture) {
			l.fill(2)
			a := l.acquire(1)
			time.Sleep(100 * time.Millisecond)
			b := l.acquire(1)
			time.Sleep(199 * time.Millisecond)
			a.pending(t)
			time.Sleep(time.Millisecond)
			a.denied(t, "waited too long")
			_, known := a.lease.RetryAfter()
			_, timed := l.Limiter.(Replenisher)
			require.Equal(t, timed, known)
			b.pending(t)
			time.Sleep(100 * time.Millisecond)
			b.denied(t, "waited too long")
			require.Equal(t, Stats{Successful: 2, Failed: 2}, l.Stats())
			require.Equal(t, int64(math.MaxInt64), timerOf(l.core()), "no timer without waiters")
		})
	}
	each(t, 2, Queue{Limit: 4, MaxWait: time.Minute}, func(t *testing.T, l *fixture) { // the one behind can go then
		l.fill(2)
		start := time.Now()
		a := l.acquire(2)
		time.Sleep(time.Second - time.Nanosecond)
		b := l.acquire(1)
		l.bring(1)
		b.pending(t)
		time.Sleep(time.Minute - time.Since(start))
		a.denied(t, "waited too long")
		b.granted(t)
	})
}

// Nobody overtakes a waiter whose time has come, even before the timer has run.
func TestWaiterBeforeTimer(t *testing.T) {
	for _, order := range []Order{OldestFirst, NewestFirst} {
		synctest.Test(t, func(t *testing.T) {
			for range 100 {
				l := must(NewFixedWindow(FixedWindowOptions{PermitLimit: 2, Window: time.Second, Queue: Queue{Limit: 1, Order: order}}))
				granted(t, l, 2)
				a := acquire(context.Background(), l, 1)
				time.Sleep(time.Second)
				retryAfter(t, time.Second, denied(t, l, 2))
				granted(t, l, 1)
				a.granted(t)
			}
		})
	}
}

// A timer runs only while somebody waits for time to pass.
func TestTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(NewTokenBucket(TokenBucketOptions{TokenLimit: 1, TokensPerPeriod: 1, Period: time.Second, Queue: Queue{Limit: 2}}))
		granted(t, l, 1)
		require.Nil(t, l.lobby.timer)
		ctx, cancel := context.WithCancel(context.Background())
		a, b := acquire(ctx, l, 1), acquire(ctx, l, 1)
		require.EqualValues(t, time.Second, timerOf(&l.core))
		time.Sleep(time.Second)
		a.granted(t)
		require.EqualValues(t, 2*time.Second, timerOf(&l.core))
		cancel()
		b.failed(t, context.Canceled)
		require.Equal(t, int64(math.MaxInt64), timerOf(&l.core))
		require.False(t, l.lobby.timer.Stop(), "has been stopped")
	})
}

// timerOf is what the timer is set to, MaxInt64 where it does not run.
func timerOf(c *core) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lobby.due
}
