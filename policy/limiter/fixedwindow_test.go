package limiter

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Fixed windows: section C.

func fixedRow(t *testing.T, id string, o FixedWindowOptions, f func(t *testing.T, w *FixedWindow)) {
	t.Helper()
	t.Run(id, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, err := NewFixedWindow(o)
			require.NoError(t, err)
			defer func() { require.NoError(t, w.Close()) }()
			f(t, w)
		})
	})
}

func TestFixedWindowManual(t *testing.T) {
	fixedRow(t, "C077", FixedWindowOptions{PermitLimit: 3, Window: 10 * seconds, Manual: true}, func(t *testing.T, w *FixedWindow) {
		granted(t, w, 3)
		time.Sleep(35 * seconds)
		available(t, 0, w)
		require.True(t, w.Replenish())
		available(t, 3, w)
	})
	fixedRow(t, "C078", FixedWindowOptions{PermitLimit: 1, Window: 10 * seconds, Manual: true}, func(t *testing.T, w *FixedWindow) {
		granted(t, w, 1)
		time.Sleep(14 * seconds)
		w.Replenish()
		granted(t, w, 1)
		time.Sleep(6*seconds - 1)
		w.Replenish()
		denied(t, w, 1)
		time.Sleep(time.Nanosecond)
		w.Replenish()
		granted(t, w, 1)
	})
	fixedRow(t, "C089", FixedWindowOptions{PermitLimit: 3, Window: 10 * seconds, Manual: true}, func(t *testing.T, w *FixedWindow) {
		granted(t, w, 1)
		time.Sleep(10 * seconds)
		inUse(t, w)
		w.Replenish()
		time.Sleep(2 * seconds)
		idle(t, 2*seconds, w)
		w.Replenish()
		idle(t, 2*seconds, w)
	})
	fixedRow(t, "C090", FixedWindowOptions{PermitLimit: 3, Window: 10 * seconds, Manual: true}, func(t *testing.T, w *FixedWindow) {
		time.Sleep(10 * seconds)
		require.True(t, w.Replenish())
		time.Sleep(5 * seconds)
		granted(t, w, 1)
		time.Sleep(5 * seconds)
		w.Replenish()
		available(t, 3, w)
	})
	fixedRow(t, "idle windows are no credit", FixedWindowOptions{PermitLimit: 3, Window: 10 * seconds, Manual: true}, func(t *testing.T, w *FixedWindow) {
		granted(t, w, 2)
		time.Sleep(15 * seconds)
		granted(t, w, 1)
		w.Replenish()
		available(t, 2, w)
	})
	for _, manual := range []bool{false, true} {
		fixedRow(t, "C091", FixedWindowOptions{PermitLimit: 1, Window: 10 * seconds, Manual: manual}, func(t *testing.T, w *FixedWindow) {
			require.Equal(t, 10*seconds, w.Period())
			require.Equal(t, !manual, w.Auto())
			require.Equal(t, manual, w.Replenish())
		})
	}
}

// C080 has a timer that fires early. Here no timer resets a window: it ends
// when it ends, whoever looks.
func TestFixedWindowEnds(t *testing.T) {
	fixedRow(t, "C080", FixedWindowOptions{PermitLimit: 1, Window: 10 * seconds, Queue: Queue{Limit: 1}}, func(t *testing.T, w *FixedWindow) {
		granted(t, w, 1)
		a := acquire(ctx, w, 1)
		time.Sleep(9980 * time.Millisecond)
		a.pending(t)
		retryAfter(t, 10*seconds+20*time.Millisecond, denied(t, w, 1))
		time.Sleep(20 * time.Millisecond)
		a.granted(t)
	})
}

func TestFixedWindowRetryAfter(t *testing.T) {
	o := FixedWindowOptions{PermitLimit: 2, Window: 20 * seconds, Queue: Queue{Limit: 1}}
	fixedRow(t, "C081 C082", o, func(t *testing.T, w *FixedWindow) {
		granted(t, w, 2)
		retryAfter(t, 20*seconds, acquire(ctx, w, 2).denied(t, "queue limit reached"))
		time.Sleep(19 * seconds)
		retryAfter(t, 1*seconds, acquire(ctx, w, 2).denied(t, "queue limit reached"))
	})
	o.Queue.Limit = 4
	fixedRow(t, "C084", o, func(t *testing.T, w *FixedWindow) {
		granted(t, w, 2)
		acquire(ctx, w, 2).pending(t)
		acquire(ctx, w, 2).pending(t)
		retryAfter(t, 60*seconds, acquire(ctx, w, 1).denied(t, "queue limit reached"))
	})
	o.Queue.Limit = 5
	fixedRow(t, "C084, of one each", o, func(t *testing.T, w *FixedWindow) {
		granted(t, w, 2)
		for range 5 {
			acquire(ctx, w, 1).pending(t)
		}
		retryAfter(t, 60*seconds, acquire(ctx, w, 1).denied(t, "queue limit reached"))
		retryAfter(t, 80*seconds, acquire(ctx, w, 2).denied(t, "queue limit reached"))
	})
	o.Queue.Limit = 3
	fixedRow(t, "C084, with a gap", o, func(t *testing.T, w *FixedWindow) { // the 2 do not fit beside the 1
		granted(t, w, 2)
		acquire(ctx, w, 1).pending(t)
		acquire(ctx, w, 2).pending(t)
		retryAfter(t, 60*seconds, acquire(ctx, w, 1).denied(t, "queue limit reached"))
		time.Sleep(60 * seconds)
		granted(t, w, 1)
	})
	fixedRow(t, "C086", FixedWindowOptions{PermitLimit: 5, Window: 10 * seconds}, func(t *testing.T, w *FixedWindow) {
		granted(t, w, 3)
		time.Sleep(4 * seconds)
		retryAfter(t, 6*seconds, acquire(ctx, w, 3).denied(t, "rate limit reached"))
	})
	fixedRow(t, "C087", FixedWindowOptions{PermitLimit: 1, Window: 10 * seconds, Queue: Queue{Limit: 1, Order: NewestFirst}}, func(t *testing.T, w *FixedWindow) {
		granted(t, w, 1)
		time.Sleep(1 * seconds)
		a := acquire(ctx, w, 1)
		acquire(ctx, w, 1).pending(t)
		retryAfter(t, 9*seconds, a.denied(t, "evicted by a newer request"))
	})
	fixedRow(t, "saturates", FixedWindowOptions{PermitLimit: 1, Window: math.MaxInt64 / 3, Queue: Queue{Limit: 5}}, func(t *testing.T, w *FixedWindow) {
		granted(t, w, 1)
		retryAfter(t, math.MaxInt64/3, denied(t, w, 1))
		for range 4 {
			acquire(ctx, w, 1).pending(t)
		}
		retryAfter(t, Never, denied(t, w, 1))
	})
}

func TestFixedWindowOptions(t *testing.T) { // C093
	for name, change := range map[string]func(*FixedWindowOptions){
		"PermitLimit: 0":  func(o *FixedWindowOptions) { o.PermitLimit = 0 },
		"PermitLimit: -1": func(o *FixedWindowOptions) { o.PermitLimit = -1 },
		"Window: 0s":      func(o *FixedWindowOptions) { o.Window = 0 },
		"Window: -1s":     func(o *FixedWindowOptions) { o.Window = -1 * seconds },
		"Queue.Limit: -1": func(o *FixedWindowOptions) { o.Queue.Limit = -1 },
	} {
		o := FixedWindowOptions{PermitLimit: 1, Window: seconds}
		change(&o)
		w, err := NewFixedWindow(o)
		require.ErrorContains(t, err, "limiter: "+name)
		require.Nil(t, w)
	}
}
