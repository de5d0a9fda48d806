package limiter

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// What fixed windows, section C, and sliding windows, section D, have in common.

const seconds = time.Second

// D102: a window of one segment is a fixed one.
func TestOneSegmentIsFixedWindow(t *testing.T) {
	q := Queue{Limit: 1}
	for _, make := range []func() (Limiter, error){
		func() (Limiter, error) {
			return NewFixedWindow(FixedWindowOptions{PermitLimit: 1, Window: 2 * seconds, Queue: q})
		},
		func() (Limiter, error) {
			return NewSlidingWindow(SlidingWindowOptions{PermitLimit: 1, Window: 2 * seconds, Segments: 1, Queue: q})
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := must(make())
			time.Sleep(500 * time.Millisecond)
			granted(t, l, 1)
			a := acquire(ctx, l, 1)
			retryAfter(t, 3500*time.Millisecond, acquire(ctx, l, 1).denied(t, "queue limit reached"))
			time.Sleep(1500 * time.Millisecond)
			a.granted(t)
			time.Sleep(2 * seconds)
			granted(t, l, 1)
			require.Equal(t, Stats{Successful: 3, Failed: 1}, l.Stats())
			require.Equal(t, 2*seconds, l.(Replenisher).Period())
		})
	}
}

// Permits of a window that has passed do not come back twice.
func TestWindowGiveBack(t *testing.T) {
	slidingRow(t, "sliding", SlidingWindowOptions{PermitLimit: 5, Window: 4 * seconds, Segments: 2}, func(t *testing.T, w *SlidingWindow) {
		early, late := granted(t, w, 2), Lease{}
		time.Sleep(2 * seconds)
		late = granted(t, w, 3)
		early.undo()
		available(t, 2, w)
		time.Sleep(2 * seconds)
		available(t, 2, w)
		late.undo()
		available(t, 5, w)
		idle(t, 0, w)
	})
	// Those of a manual one that have left and wait for Replenish come at once.
	slidingRow(t, "manual", SlidingWindowOptions{PermitLimit: 9, Window: 4 * seconds, Segments: 2, Manual: true}, func(t *testing.T, w *SlidingWindow) {
		one, two := granted(t, w, 1), granted(t, w, 2)
		time.Sleep(2 * seconds)
		four := granted(t, w, 4)
		time.Sleep(2 * seconds)
		one.undo()
		available(t, 3, w)
		w.Replenish()
		available(t, 5, w)
		two.undo()
		available(t, 5, w)
		inUse(t, w)
		time.Sleep(20 * seconds)
		four.undo()
		available(t, 9, w)
		idle(t, 0, w)
		w.Replenish()
		available(t, 9, w)
	})
	fixedRow(t, "fixed", FixedWindowOptions{PermitLimit: 2, Window: seconds}, func(t *testing.T, w *FixedWindow) {
		early := granted(t, w, 1)
		time.Sleep(seconds)
		granted(t, w, 1)
		early.undo()
		available(t, 1, w)
	})
}
