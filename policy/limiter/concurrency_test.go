package limiter

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Concurrency limiters: section E.

func concurrencyRow(t *testing.T, id string, limit int, q Queue, f func(t *testing.T, l *Concurrency)) {
	t.Helper()
	t.Run(id, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l, err := NewConcurrency(ConcurrencyOptions{PermitLimit: limit, Queue: q})
			require.NoError(t, err)
			defer func() { require.NoError(t, l.Close()) }()
			f(t, l)
		})
	})
}

func TestConcurrency(t *testing.T) {
	concurrencyRow(t, "E116", 1, Queue{}, func(t *testing.T, l *Concurrency) {
		first := granted(t, l, 1)
		require.Equal(t, "concurrency limit reached", denied(t, l, 1).Reason())
		first.Release()
		granted(t, l, 1)
	})
	concurrencyRow(t, "E118", 2, Queue{}, func(t *testing.T, l *Concurrency) {
		probe := granted(t, l, 0)
		probe.Release()
		probe.Release()
		available(t, 2, l)
		lease := granted(t, l, 1)
		held := granted(t, l, 1)
		again := lease
		lease.Release()
		again.Release()
		lease.Release()
		available(t, 1, l)
		held.Release()
		available(t, 2, l)
	})
	concurrencyRow(t, "another limit", 2, Queue{Limit: 9}, func(t *testing.T, l *Concurrency) {
		a, b := granted(t, l, 1), granted(t, l, 1)
		require.NoError(t, l.SetPermitLimit(1))
		available(t, 0, l)
		c := acquire(ctx, l, 1)
		a.Release()
		c.pending(t)
		b.Release()
		c.granted(t).Release()
		available(t, 1, l)
		granted(t, l, 1)
		d, e := acquire(ctx, l, 1), acquire(ctx, l, 2)
		require.NoError(t, l.SetPermitLimit(2))
		d.granted(t)
		e.pending(t)
		require.NoError(t, l.SetPermitLimit(4))
		e.granted(t)
		available(t, 0, l)
		require.ErrorContains(t, l.SetPermitLimit(0), "PermitLimit")
		require.NoError(t, l.Close())
		require.ErrorIs(t, l.SetPermitLimit(1), ErrClosed)
	})
	concurrencyRow(t, "E119", 2, Queue{Limit: 1}, func(t *testing.T, l *Concurrency) {
		granted(t, l, 2)
		noRetryAfter(t, acquire(ctx, l, 2).denied(t, "queue limit reached"))
	})
	concurrencyRow(t, "E121", 1, Queue{Limit: 1, Order: NewestFirst}, func(t *testing.T, l *Concurrency) {
		granted(t, l, 1)
		a := acquire(ctx, l, 1)
		acquire(ctx, l, 1).pending(t)
		noRetryAfter(t, a.denied(t, "evicted by a newer request"))
		noRetryAfter(t, denied(t, l, 1))
	})
	concurrencyRow(t, "E123", 3, Queue{Limit: 3}, func(t *testing.T, l *Concurrency) {
		two, one := granted(t, l, 2), granted(t, l, 1)
		a := acquire(ctx, l, 2)
		one.Release()
		a.pending(t)
		available(t, 1, l)
		two.Release()
		a.granted(t)
		available(t, 1, l)
	})
	concurrencyRow(t, "E124", 1, Queue{Limit: 3}, func(t *testing.T, l *Concurrency) {
		held := granted(t, l, 1)
		waiters := []*call{acquire(ctx, l, 1), acquire(ctx, l, 1), acquire(ctx, l, 1)}
		require.NoError(t, l.Close())
		held.Release()
		for _, w := range waiters {
			w.denied(t, "limiter closed")
		}
		require.Equal(t, Stats{Successful: 1, Failed: 3}, l.Stats())
	})
	concurrencyRow(t, "E126", 1, Queue{}, func(t *testing.T, l *Concurrency) {
		lease := granted(t, l, 1)
		time.Sleep(time.Second)
		inUse(t, l)
		lease.Release()
		idle(t, 0, l)
		time.Sleep(time.Second)
		idle(t, time.Second, l)
	})
	concurrencyRow(t, "E128", 100, Queue{Limit: 50}, func(t *testing.T, l *Concurrency) {
		all := granted(t, l, 100)
		a := acquire(ctx, l, 50)
		acquire(ctx, l, 1).denied(t, "queue limit reached")
		require.Equal(t, Stats{Queued: 50, Successful: 1, Failed: 1}, l.Stats())
		all.Release()
		a.granted(t)
		require.Equal(t, Stats{Available: 50, Successful: 2, Failed: 1}, l.Stats())
	})
	concurrencyRow(t, "E130", 1, Queue{}, func(t *testing.T, l *Concurrency) {
		func() { granted(t, l, 1) }() // and lost
		runtime.GC()
		runtime.GC()
		time.Sleep(time.Hour)
		denied(t, l, 1)
	})
}

func TestConcurrencyUnderLoad(t *testing.T) { // E129
	l := must(NewConcurrency(ConcurrencyOptions{PermitLimit: 5, Queue: Queue{Limit: 10}}))
	var out, most atomic.Int64
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			for range 10_000 {
				lease, err := l.Acquire(ctx, 1)
				if !assert.NoError(t, err) || !assert.True(t, lease.Acquired(), lease.Reason()) {
					return
				}
				for n := out.Add(1); ; {
					m := most.Load()
					if n <= m || most.CompareAndSwap(m, n) {
						break
					}
				}
				out.Add(-1)
				lease.Release()
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, most.Load(), int64(5))
	require.Equal(t, Stats{Available: 5, Successful: 100_000}, l.Stats())
	_, ok := l.Idle()
	require.True(t, ok)
}

// Copies of a lease released at the same time give back once.
func TestReleaseOnce(t *testing.T) {
	l := must(NewConcurrency(ConcurrencyOptions{PermitLimit: 3}))
	for range 1000 {
		held, lease := granted(t, l, 1), granted(t, l, 2)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(lease.Release)
		}
		wg.Wait()
		require.EqualValues(t, 2, l.Stats().Available)
		held.Release()
	}
}

func TestConcurrencyOptions(t *testing.T) {
	_, err := NewConcurrency(ConcurrencyOptions{PermitLimit: 0, Queue: Queue{Limit: -1}})
	require.ErrorContains(t, err, "limiter: PermitLimit: 0")
	require.ErrorContains(t, err, "limiter: Queue.Limit: -1")
}
