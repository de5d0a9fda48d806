package limiter

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Waiting and its ends, on each limiter: section A.

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

// undone is a context that cannot be waited for.
type undone struct{ context.Context }

func (undone) Done() <-chan struct{} { panic("nobody has to wait") }

// Only a call that has to wait asks for Done, which allocates in some contexts.
func TestDoneIsAskedWhenWaiting(t *testing.T) {
	each(t, 1, Queue{Limit: 1}, func(t *testing.T, l *fixture) {
		ctx := undone{context.Background()}
		granted := func(l Limiter, n int) {
			lease, err := l.Acquire(ctx, n)
			require.NoError(t, err)
			require.True(t, lease.Acquired())
		}
		granted(l, 0)
		granted(must(Chain(Managed(l.Limiter), Unlimited())), 1)
		l.waiters(1)
		lease, err := l.Acquire(ctx, 1)
		require.NoError(t, err)
		require.Equal(t, "queue limit reached", lease.Reason())

		table := newTable(t, PartitionedOptions{}, oneSlot)
		granted(table.of("k"), 1)
	})
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
