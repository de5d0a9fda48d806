package limiter

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Sliding windows: section D.

func slidingRow(t *testing.T, id string, o SlidingWindowOptions, f func(t *testing.T, w *SlidingWindow)) {
	t.Helper()
	t.Run(id, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, err := NewSlidingWindow(o)
			require.NoError(t, err)
			defer func() { require.NoError(t, w.Close()) }()
			f(t, w)
		})
	})
}

func TestSlidingWindowManual(t *testing.T) {
	slidingRow(t, "D094", SlidingWindowOptions{PermitLimit: 1, Window: 2 * seconds, Segments: 2, Manual: true}, func(t *testing.T, w *SlidingWindow) {
		granted(t, w, 1)
		tick(w)
		denied(t, w, 1)
		tick(w)
		granted(t, w, 1)
	})
	slidingRow(t, "D096", SlidingWindowOptions{PermitLimit: 4, Window: 3 * seconds, Segments: 3, Queue: Queue{Limit: 4, Order: NewestFirst}, Manual: true}, func(t *testing.T, w *SlidingWindow) {
		granted(t, w, 2)
		a := acquire(ctx, w, 3)
		tick(w)
		b := acquire(ctx, w, 2)
		b.granted(t)
		a.pending(t)
		tick(w)
		c := acquire(ctx, w, 2)
		retryAfter(t, 2*seconds, a.denied(t, "evicted by a newer request"))
		c.pending(t)
		tick(w)
		c.granted(t)
		available(t, 0, w)
	})
	slidingRow(t, "D097", SlidingWindowOptions{PermitLimit: 2, Window: 2 * seconds, Segments: 2, Queue: Queue{Limit: 3}, Manual: true}, func(t *testing.T, w *SlidingWindow) {
		granted(t, w, 2)
		a, b := acquire(ctx, w, 1), acquire(ctx, w, 2)
		tick(w)
		a.pending(t)
		tick(w)
		a.granted(t)
		available(t, 1, w)
		tick(w)
		b.pending(t)
		tick(w)
		b.granted(t)
	})
	slidingRow(t, "D104", SlidingWindowOptions{PermitLimit: 3, Window: 3 * seconds, Segments: 3, Manual: true}, func(t *testing.T, w *SlidingWindow) {
		granted(t, w, 3)
		time.Sleep(900 * time.Millisecond)
		require.True(t, w.Replenish())
		available(t, 0, w)
		time.Sleep(2100 * time.Millisecond) // the call at 0.9 s has moved no boundary
		require.True(t, w.Replenish())
		available(t, 3, w)
	})
	slidingRow(t, "long gap", SlidingWindowOptions{PermitLimit: 3, Window: 3 * seconds, Segments: 3, Manual: true}, func(t *testing.T, w *SlidingWindow) {
		granted(t, w, 1)
		time.Sleep(1500 * time.Millisecond)
		granted(t, w, 1)
		time.Sleep(2 * seconds) // 3.5 s: the first has left, in one call for three segments
		w.Replenish()
		available(t, 2, w)
		time.Sleep(500 * time.Millisecond) // 4.0 s, not 3.5 s + 1 s
		w.Replenish()
		available(t, 3, w)
	})
	slidingRow(t, "D112", SlidingWindowOptions{PermitLimit: 3, Window: 3 * seconds, Segments: 3, Manual: true}, func(t *testing.T, w *SlidingWindow) {
		granted(t, w, 1)
		for range 3 {
			inUse(t, w)
			tick(w)
		}
		idle(t, 0, w)
		time.Sleep(2 * seconds)
		idle(t, 2*seconds, w)
	})
	slidingRow(t, "D113", SlidingWindowOptions{PermitLimit: 3, Window: 3 * seconds, Segments: 3, Manual: true}, func(t *testing.T, w *SlidingWindow) {
		granted(t, w, 1)
		tick(w)
		available(t, 2, w)
		inUse(t, w)
	})
}

// tick is a segment of a second that passes.
func tick(w *SlidingWindow) {
	time.Sleep(seconds)
	w.Replenish()
	synctest.Wait()
}

func TestSlidingWindowAuto(t *testing.T) {
	o := SlidingWindowOptions{PermitLimit: 10, Window: 10 * seconds, Segments: 5}
	slidingRow(t, "D099", o, func(t *testing.T, w *SlidingWindow) {
		time.Sleep(1 * seconds)
		granted(t, w, 4)
		time.Sleep(2 * seconds)
		granted(t, w, 6)
		time.Sleep(6900 * time.Millisecond)
		available(t, 0, w)
		time.Sleep(100 * time.Millisecond)
		available(t, 4, w)
		time.Sleep(2 * seconds)
		available(t, 10, w)
	})
	slidingRow(t, "D100", o, func(t *testing.T, w *SlidingWindow) {
		time.Sleep(1990 * time.Millisecond)
		granted(t, w, 10)
		time.Sleep(8010*time.Millisecond - 1)
		denied(t, w, 1)
		time.Sleep(time.Nanosecond)
		granted(t, w, 10)
	})
	slidingRow(t, "D105", SlidingWindowOptions{PermitLimit: 3, Window: 3 * seconds, Segments: 3, Queue: Queue{Limit: 3}}, func(t *testing.T, w *SlidingWindow) {
		// As with C080 no timer moves the segments, so none can be early.
		granted(t, w, 3)
		a := acquire(ctx, w, 3)
		time.Sleep(3*seconds - time.Millisecond)
		a.pending(t)
		time.Sleep(time.Millisecond)
		a.granted(t)
	})
	slidingRow(t, "idle", o, func(t *testing.T, w *SlidingWindow) {
		time.Sleep(3 * seconds)
		idle(t, 3*seconds, w)
		granted(t, w, 1)
		time.Sleep(9*seconds - 1)
		inUse(t, w)
		time.Sleep(time.Nanosecond)
		idle(t, 0, w)
		time.Sleep(100 * 365 * 24 * time.Hour)
		idle(t, 100*365*24*time.Hour, w)
		granted(t, w, 10)
	})
}

func TestSlidingWindowRetryAfter(t *testing.T) {
	o := SlidingWindowOptions{PermitLimit: 4, Window: 30 * seconds, Segments: 3}
	half := func(t *testing.T, w *SlidingWindow) { // 2 at T0, 2 at T10; now T12
		granted(t, w, 2)
		time.Sleep(10 * seconds)
		granted(t, w, 2)
		time.Sleep(2 * seconds)
	}
	slidingRow(t, "D106 D109", o, func(t *testing.T, w *SlidingWindow) {
		half(t, w)
		retryAfter(t, 18*seconds, denied(t, w, 1))
		retryAfter(t, 18*seconds, denied(t, w, 0))
		retryAfter(t, 28*seconds, denied(t, w, 3))
		time.Sleep(18*seconds - 1)
		denied(t, w, 1)
		time.Sleep(time.Nanosecond)
		granted(t, w, 1)
	})
	o.Queue.Limit = 2
	slidingRow(t, "D108 oldest first", o, func(t *testing.T, w *SlidingWindow) {
		half(t, w)
		acquire(ctx, w, 2).pending(t)
		retryAfter(t, 28*seconds, denied(t, w, 1))
		retryAfter(t, 48*seconds, denied(t, w, 3)) // the 2 at T40 and those that the waiter takes at T30
	})
	slidingRow(t, "D108 oldest first, of one each", o, func(t *testing.T, w *SlidingWindow) {
		half(t, w)
		acquire(ctx, w, 1).pending(t)
		acquire(ctx, w, 1).pending(t)
		retryAfter(t, 28*seconds, denied(t, w, 1))
		retryAfter(t, 48*seconds, denied(t, w, 3))
	})
	o.Queue.Order = NewestFirst
	slidingRow(t, "D108 newest first", o, func(t *testing.T, w *SlidingWindow) {
		half(t, w)
		acquire(ctx, w, 2).pending(t)
		retryAfter(t, 18*seconds, denied(t, w, 1))
	})
}

func TestSlidingWindowRounding(t *testing.T) { // D110
	o := SlidingWindowOptions{PermitLimit: 1, Window: 10 * seconds, Segments: 3}
	slidingRow(t, "D110", o, func(t *testing.T, w *SlidingWindow) {
		require.Equal(t, 3_333_333_333*time.Nanosecond, w.Period())
		granted(t, w, 1)
		retryAfter(t, 9_999_999_999, denied(t, w, 1))
		time.Sleep(9_999_999_999)
		granted(t, w, 1)
	})
}

func TestSlidingWindowOptions(t *testing.T) { // D115
	for name, change := range map[string]func(*SlidingWindowOptions){
		"PermitLimit: 0":    func(o *SlidingWindowOptions) { o.PermitLimit = 0 },
		"Segments: 0":       func(o *SlidingWindowOptions) { o.Segments = 0 },
		"Segments: -1":      func(o *SlidingWindowOptions) { o.Segments = -1 },
		"Segments: 1048577": func(o *SlidingWindowOptions) { o.Segments = MaxSegments + 1 },
		"Segments: 2 is more than one for each nanosecond": func(o *SlidingWindowOptions) { o.Segments, o.Window = 2, 1 },
		"Window: 0s":      func(o *SlidingWindowOptions) { o.Window = 0 },
		"Window: -1s":     func(o *SlidingWindowOptions) { o.Window = -1 * seconds },
		"Queue.Limit: -1": func(o *SlidingWindowOptions) { o.Queue.Limit = -1 },
	} {
		o := SlidingWindowOptions{PermitLimit: 1, Window: seconds, Segments: 1}
		change(&o)
		w, err := NewSlidingWindow(o)
		require.ErrorContains(t, err, "limiter: "+name)
		require.Nil(t, w)
	}
}
