package limiter

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// Who waits, who is served next and who is denied, on each limiter: section A.

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
