package limiter

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Token buckets: section B.

// bucketRow runs f in a bubble, with the limiter.
func bucketRow(t *testing.T, id string, o TokenBucketOptions, f func(t *testing.T, b *TokenBucket)) {
	t.Helper()
	t.Run(id, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b, err := NewTokenBucket(o)
			require.NoError(t, err)
			defer func() { require.NoError(t, b.Close()) }()
			f(t, b)
		})
	})
}

func manual(limit, tokens int, period time.Duration, q Queue) TokenBucketOptions {
	return TokenBucketOptions{TokenLimit: limit, TokensPerPeriod: tokens, Period: period, Queue: q, Manual: true}
}

func auto(limit, tokens int, period time.Duration, q Queue) TokenBucketOptions {
	return TokenBucketOptions{TokenLimit: limit, TokensPerPeriod: tokens, Period: period, Queue: q}
}

var ctx = context.Background()

func available(t testing.TB, want int64, l Limiter) {
	t.Helper()
	require.Equal(t, want, l.Stats().Available)
}

func TestTokenBucketReplenish(t *testing.T) {
	bucketRow(t, "B044", manual(2, 1, time.Second, Queue{}), func(t *testing.T, b *TokenBucket) {
		require.True(t, b.Replenish())
		available(t, 2, b)
	})
	bucketRow(t, "B045", auto(2, 1, time.Second, Queue{}), func(t *testing.T, b *TokenBucket) {
		granted(t, b, 1)
		require.False(t, b.Replenish())
		available(t, 1, b)
		time.Sleep(time.Second)
		available(t, 2, b)
	})
	bucketRow(t, "B047", manual(2, 1, time.Second, Queue{}), func(t *testing.T, b *TokenBucket) {
		granted(t, b, 2)
		time.Sleep(500 * time.Millisecond)
		require.True(t, b.Replenish())
		available(t, 0, b)
		denied(t, b, 1)
		time.Sleep(500 * time.Millisecond)
		require.True(t, b.Replenish())
		granted(t, b, 1)
	})
	bucketRow(t, "B048", manual(1, 1, time.Second, Queue{}), func(t *testing.T, b *TokenBucket) {
		granted(t, b, 1)
		for range 10 {
			denied(t, b, 1)
			time.Sleep(100 * time.Millisecond)
			b.Replenish()
		}
		granted(t, b, 1)
	})
	bucketRow(t, "B064", manual(10, 1, time.Second, Queue{}), func(t *testing.T, b *TokenBucket) {
		time.Sleep(time.Minute)
		granted(t, b, 10)
		b.Replenish()
		available(t, 0, b)
	})
	bucketRow(t, "B065", manual(10, 1, time.Second, Queue{}), func(t *testing.T, b *TokenBucket) {
		granted(t, b, 10)
		time.Sleep(3700 * time.Millisecond)
		available(t, 0, b)
		b.Replenish()
		available(t, 3, b)
		time.Sleep(300 * time.Millisecond)
		available(t, 3, b)
		b.Replenish()
		available(t, 4, b)
	})
	for _, o := range []TokenBucketOptions{auto(1, 1, time.Second, Queue{}), manual(1, 1, time.Second, Queue{}), auto(1000, 1, 500*time.Microsecond, Queue{})} {
		bucketRow(t, "B072", o, func(t *testing.T, b *TokenBucket) {
			require.Equal(t, !o.Manual, b.Auto())
			require.Equal(t, o.Period, b.Period())
		})
	}
}

func TestTokenBucketProbe(t *testing.T) {
	bucketRow(t, "B049", manual(1, 1, time.Second, Queue{}), func(t *testing.T, b *TokenBucket) {
		granted(t, b, 1)
		time.Sleep(500 * time.Millisecond)
		b.Replenish()
		retryAfter(t, 500*time.Millisecond, denied(t, b, 0))
		denied(t, b, 1)
	})
	bucketRow(t, "B058", auto(1, 1, 20*time.Second, Queue{}), func(t *testing.T, b *TokenBucket) {
		granted(t, b, 1)
		time.Sleep(5 * time.Second)
		retryAfter(t, 15*time.Second, denied(t, b, 0))
	})
}

func TestTokenBucketRetryAfter(t *testing.T) {
	const period = 20 * time.Second
	bucketRow(t, "B051 B052", manual(2, 1, period, Queue{Limit: 1}), func(t *testing.T, b *TokenBucket) {
		granted(t, b, 2)
		retryAfter(t, 40*time.Second, acquire(ctx, b, 2).denied(t, "queue limit reached"))
		waiter := acquire(ctx, b, 1)
		waiter.pending(t)
		retryAfter(t, 60*time.Second, acquire(ctx, b, 2).denied(t, "queue limit reached"))
	})
	bucketRow(t, "B052 newest first", manual(2, 1, period, Queue{Limit: 1, Order: NewestFirst}), func(t *testing.T, b *TokenBucket) {
		granted(t, b, 2)
		acquire(ctx, b, 1).pending(t)
		retryAfter(t, 40*time.Second, acquire(ctx, b, 2).denied(t, "queue limit reached"))
		retryAfter(t, 20*time.Second, denied(t, b, 1))
	})
	bucketRow(t, "B054", manual(2, 100, period, Queue{Limit: 1}), func(t *testing.T, b *TokenBucket) {
		granted(t, b, 2)
		acquire(ctx, b, 1).pending(t)
		retryAfter(t, 600*time.Millisecond, acquire(ctx, b, 2).denied(t, "queue limit reached"))
	})
	bucketRow(t, "B055", manual(3, 1, period, Queue{Limit: 1}), func(t *testing.T, b *TokenBucket) {
		granted(t, b, 2)
		retryAfter(t, 40*time.Second, acquire(ctx, b, 3).denied(t, "queue limit reached"))
	})
	bucketRow(t, "B056", auto(1, 1, period, Queue{}), func(t *testing.T, b *TokenBucket) {
		granted(t, b, 1)
		time.Sleep(19 * time.Second)
		l := denied(t, b, 1)
		retryAfter(t, time.Second, l)
		require.Equal(t, "rate limit reached", l.Reason())
		time.Sleep(time.Second - time.Nanosecond)
		denied(t, b, 1)
		time.Sleep(time.Nanosecond)
		granted(t, b, 1)
	})
	bucketRow(t, "B060", manual(1, 1, time.Second, Queue{Limit: 1, Order: NewestFirst}), func(t *testing.T, b *TokenBucket) {
		granted(t, b, 1)
		a := acquire(ctx, b, 1)
		acquire(ctx, b, 1).pending(t)
		retryAfter(t, time.Second, a.denied(t, "evicted by a newer request"))
	})
	bucketRow(t, "B061", auto(math.MaxInt, 1, time.Second, Queue{Limit: math.MaxInt}), func(t *testing.T, b *TokenBucket) {
		granted(t, b, math.MaxInt)
		waiter := acquire(ctx, b, 3)
		waiter.pending(t)
		want := Never
		if need := uint64(math.MaxInt) + 3; need < math.MaxInt64/uint64(time.Second) { // 32 bits
			want = time.Duration(need) * time.Second
		}
		retryAfter(t, want, denied(t, b, math.MaxInt))
	})
	bucketRow(t, "B062", auto(math.MaxInt, 1, 24*time.Hour, Queue{}), func(t *testing.T, b *TokenBucket) {
		granted(t, b, math.MaxInt)
		retryAfter(t, Never, denied(t, b, math.MaxInt))
		retryAfter(t, 24*time.Hour, denied(t, b, 1))
	})
	bucketRow(t, "rounded up", auto(1, 3, time.Second, Queue{}), func(t *testing.T, b *TokenBucket) {
		granted(t, b, 1)
		retryAfter(t, 333_333_334, denied(t, b, 1))
		time.Sleep(333_333_333)
		denied(t, b, 1)
		time.Sleep(time.Nanosecond)
		granted(t, b, 1)
	})
	bucketRow(t, "due but not replenished", manual(1, 1, time.Second, Queue{}), func(t *testing.T, b *TokenBucket) {
		granted(t, b, 1)
		time.Sleep(5 * time.Second)
		retryAfter(t, 0, denied(t, b, 1))
		b.Replenish()
		granted(t, b, 1)
	})
}

func TestTokenBucketAuto(t *testing.T) {
	bucketRow(t, "B068", auto(1000, 1, 500*time.Microsecond, Queue{}), func(t *testing.T, b *TokenBucket) {
		granted(t, b, 1000)
		time.Sleep(50 * time.Millisecond)
		available(t, 100, b)
	})
	bucketRow(t, "B068 by timer", auto(1000, 1, 500*time.Microsecond, Queue{Limit: 1000}), func(t *testing.T, b *TokenBucket) {
		granted(t, b, 1000)
		start := time.Now()
		for range 100 {
			_, err := b.Acquire(ctx, 1)
			require.NoError(t, err)
		}
		require.Equal(t, 50*time.Millisecond, time.Since(start))
	})
	bucketRow(t, "idle", auto(10, 1, time.Second, Queue{}), func(t *testing.T, b *TokenBucket) {
		granted(t, b, 2)
		time.Sleep(1999 * time.Millisecond)
		inUse(t, b)
		time.Sleep(5 * time.Second)
		idle(t, 4999*time.Millisecond, b)
	})
	bucketRow(t, "long idle", auto(math.MaxInt, math.MaxInt, 1, Queue{}), func(t *testing.T, b *TokenBucket) {
		granted(t, b, math.MaxInt)
		denied(t, b, 1)
		time.Sleep(200 * 365 * 24 * time.Hour)
		available(t, math.MaxInt, b)
		granted(t, b, math.MaxInt)
		available(t, 0, b)
	})
}

// B069: a clock that goes back takes nothing and adds nothing.
func TestTokenBucketClockGoesBack(t *testing.T) {
	for _, manual := range []bool{false, true} {
		b := newBucket(10, 1, time.Second)
		b.manual = manual
		const start = int64(10 * time.Second)
		b.replenish(start)
		_, ok := b.take(start, 5)
		require.True(t, ok)
		if manual { // what has been credited stays
			b.replenish(start - int64(5*time.Second))
			require.EqualValues(t, 5, b.available(start-int64(5*time.Second)))
		}
		_, ok = b.take(start-int64(5*time.Second), 6)
		require.False(t, ok)
		b.replenish(start)
		require.EqualValues(t, 5, b.available(start))
		b.replenish(start + int64(time.Second))
		require.EqualValues(t, 6, b.available(start+int64(time.Second)))
	}
}

// A call reads the clock before it has the lock, so that another one may have
// been quicker and have a later time.
func TestTokenBucketLateCall(t *testing.T) {
	const now = int64(10 * time.Second)
	for _, manual := range []bool{false, true} {
		b := newBucket(10, 3, 7)
		b.manual = manual
		b.replenish(now)
		_, ok := b.take(now, 10)
		require.True(t, ok)
		for _, late := range []int64{now - 1, now - 100, 0} {
			require.Zero(t, b.available(late))
			_, ok = b.take(late, 1)
			require.False(t, ok)
			wait, _ := b.wait(late, nil, 1)
			require.Equal(t, now+3-late, wait)
			_, ok = b.idle(late)
			require.False(t, ok)
		}
	}
	b := newBucket(10, 1, time.Second)
	_, ok := b.take(now, 1)
	require.True(t, ok)
	late, ok := b.take(now-1, 1)
	require.True(t, ok)
	require.EqualValues(t, 8, b.available(now))
	b.giveBack(now, late)
	require.EqualValues(t, 9, b.available(now))
}

func TestTokenBucketQueue(t *testing.T) {
	bucketRow(t, "B071", manual(3, 1, time.Second, Queue{Limit: 4}), func(t *testing.T, tb *TokenBucket) {
		granted(t, tb, 3)
		a, b := acquire(ctx, tb, 3), acquire(ctx, tb, 1)
		for range 2 {
			time.Sleep(time.Second)
			tb.Replenish()
			a.pending(t)
			b.pending(t)
		}
		time.Sleep(time.Second)
		tb.Replenish()
		a.granted(t)
		b.pending(t)
		time.Sleep(time.Second)
		tb.Replenish()
		b.granted(t)
	})
	bucketRow(t, "B074", manual(5, 1, time.Second, Queue{Limit: 5}), func(t *testing.T, b *TokenBucket) {
		granted(t, b, 5)
		ctx, cancel := context.WithCancel(ctx)
		a := acquire(ctx, b, 2)
		time.Sleep(time.Second)
		b.Replenish()
		cancel()
		a.failed(t, context.Canceled)
		time.Sleep(time.Second)
		b.Replenish()
		available(t, 2, b)
	})
}

func TestTokenBucketOptions(t *testing.T) { // B075
	good := auto(1, 1, time.Second, Queue{})
	for name, change := range map[string]func(*TokenBucketOptions){
		"TokenLimit: 0":             func(o *TokenBucketOptions) { o.TokenLimit = 0 },
		"TokenLimit: -1":            func(o *TokenBucketOptions) { o.TokenLimit = -1 },
		"TokensPerPeriod: 0":        func(o *TokenBucketOptions) { o.TokensPerPeriod = 0 },
		"TokensPerPeriod: -3":       func(o *TokenBucketOptions) { o.TokensPerPeriod = -3 },
		"Period: 0s":                func(o *TokenBucketOptions) { o.Period = 0 },
		"Period: -1s":               func(o *TokenBucketOptions) { o.Period = -time.Second },
		"Queue.Limit: -1":           func(o *TokenBucketOptions) { o.Queue.Limit = -1 },
		"Queue.MaxWait: -1ns":       func(o *TokenBucketOptions) { o.Queue.MaxWait = -1 },
		"Queue.Order: 2 is neither": func(o *TokenBucketOptions) { o.Queue.Order = 2 },
	} {
		o := good
		change(&o)
		b, err := NewTokenBucket(o)
		require.ErrorContains(t, err, "limiter: "+name)
		require.Nil(t, b)
	}
	_, err := NewTokenBucket(TokenBucketOptions{Queue: Queue{Limit: -1}})
	for _, name := range []string{"TokenLimit", "TokensPerPeriod", "Period", "Queue.Limit"} {
		require.ErrorContains(t, err, name, "all at once")
	}
}

// What is given back never exceeds what there would be without the take.
func TestTokenBucketGiveBack(t *testing.T) {
	for _, test := range []struct {
		name  string
		steps func(b *TokenBucket, held Lease)
		want  int64
	}{
		{"at once", func(*TokenBucket, Lease) {}, 10},
		{"refilled meanwhile", func(*TokenBucket, Lease) { time.Sleep(5 * time.Second) }, 10},
		{"others took", func(b *TokenBucket, _ Lease) {
			granted(t, b, 6)
			time.Sleep(2 * time.Second)
		}, 6},
		{"full, then others took", func(b *TokenBucket, _ Lease) {
			time.Sleep(3 * time.Second)
			granted(t, b, 10)
		}, 0},
	} {
		bucketRow(t, test.name, auto(10, 1, time.Second, Queue{}), func(t *testing.T, b *TokenBucket) {
			held := granted(t, b, 3)
			test.steps(b, held)
			held.undo()
			available(t, test.want, b)
		})
	}
}
