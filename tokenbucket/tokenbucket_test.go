package tokenbucket

import (
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A step asks for n tokens at a time, one by one, and gets so many of them.
type step struct {
	at      time.Duration
	n, want int64
}

func TestSteps(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	tests := []struct {
		name  string
		limit Limit
		steps []step
	}{
		{"burst, then the rate", Limit{Capacity: 3, RefillPerSecond: 10}, []step{
			{0, 5, 3}, {100*ms - 1, 1, 0}, {100 * ms, 2, 1}, {250 * ms, 2, 1}, {300 * ms, 2, 1}, {900 * ms, 9, 3},
		}},
		{"a clock that stands still", Limit{Capacity: 3, RefillPerSecond: 1e9}, []step{
			{s, 3, 3}, {s, 1, 0}, {s, 1, 0}, {s + 1, 2, 1},
		}},
		{"starts empty", Limit{Capacity: 3, RefillPerSecond: 1, Initial: Empty}, []step{
			{0, 1, 0}, {s - 1, 1, 0}, {s, 2, 1}, {9 * s, 9, 3},
		}},
		{"starts with some", Limit{Capacity: 3, RefillPerSecond: 1, Initial: 2}, []step{
			{0, 3, 2}, {s, 2, 1},
		}},
		// 6: an interval of 333333333 ns would let the third token come early.
		{"three a second", Limit{Capacity: 3, RefillPerSecond: 3}, []step{
			{0, 3, 3}, {333333333, 1, 0}, {333333334, 1, 1}, {666666666, 1, 0}, {666666667, 1, 1},
			{s - 1, 1, 0}, {s, 1, 1},
		}},
		{"700 million a second", Limit{Capacity: 1000, RefillPerSecond: 700e6}, []step{ // 6
			{0, 1001, 1000}, {100, 101, 70}, {1100, 1001, 700},
		}},
		{"once a day", Limit{Capacity: 150_000, RefillPerSecond: 1.0 / 86400}, []step{ // 8
			{0, 1, 1}, {s, 149_999, 149_999}, {2 * s, 1, 0}, {23 * time.Hour, 1, 0}, {25 * time.Hour, 2, 1},
		}},
		{"a burst after a long rest", Limit{Capacity: 10, RefillPerSecond: 10}, []step{ // 29
			{0, 12, 10}, {30 * s, 100, 10}, {30 * s, 1, 0}, {30*s + 100*ms, 2, 1},
		}},
		{"no window to straddle", Limit{Capacity: 100, RefillPerSecond: 100}, []step{ // 35, C30
			{990 * ms, 100, 100}, {1010 * ms, 100, 2},
		}},
		{"six hours of suspend", Limit{Capacity: 5, RefillPerSecond: 1e9, Scale: MaxScale}, []step{ // 11, C33
			{0, 6, 5}, {6 * time.Hour, 10, 5},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := compile(t, tt.limit)
			b := r.New(0)
			for _, step := range tt.steps {
				assert.Equal(t, step.want, takeEach(r, &b, int64(step.at), step.n), "at %v", step.at)
			}
		})
	}
}

// takeEach asks for n tokens one by one and returns how many it got.
func takeEach(r *Rate, b *Bucket, now, n int64) (got int64) {
	for range n {
		if r.Has(*b, now, 1) {
			r.Take(b, now, 1)
			got++
		}
	}
	return got
}

// C27, 18: three a minute, asked for every millisecond.
func TestLowRatePolledOften(t *testing.T) {
	r := compile(t, Limit{Capacity: 1, RefillPerSecond: 3.0 / 60, Initial: Empty})
	b, got := r.New(0), int64(0)
	for at := time.Duration(0); at <= time.Minute; at += time.Millisecond {
		got += takeEach(r, &b, int64(at), 1)
	}
	assert.Equal(t, int64(3), got)
}

// C28: 4,000 arrivals a second, one in each 250 µs but anywhere in them, are
// never more than two and 5,000 a second.
func TestJitterBelowRate(t *testing.T) {
	const slot = int64(250 * time.Microsecond)
	r, rng := compile(t, Limit{Capacity: 2, RefillPerSecond: 5000}), newRand()
	b, denied := r.New(0), 0
	for at := int64(0); at < int64(time.Minute); at += slot {
		if takeEach(r, &b, at+rng.Int64N(slot), 1) == 0 {
			denied++
		}
	}
	assert.Zero(t, denied)
}

// C29, 11, 29: no rate, capacity, scale or rest gives more than the burst, and
// nothing overflows up to the end of the clock.
func TestExtremes(t *testing.T) {
	for _, limit := range limits() {
		for _, now := range []int64{0, 1, 400 * day, math.MaxInt64 - 400*day, math.MaxInt64} {
			r := compile(t, limit)
			b := r.New(now - min(now, 400*day))
			require.Equal(t, limit.Capacity, r.Tokens(b, now), "%+v at %d", limit, now)
			require.True(t, r.Full(b, now))
			require.False(t, r.Has(b, now, limit.Capacity+1))
			require.True(t, r.Has(b, now, limit.Capacity))
			r.Take(&b, now, limit.Capacity)
			require.Zero(t, r.Tokens(b, now), "%+v at %d", limit, now)
			require.False(t, r.Has(b, now, 1))
			require.True(t, r.Has(b, now, 0))
			require.Positive(t, r.Wait(b, now, 1))
			require.Equal(t, Level{}, r.Level(b, now))
			require.GreaterOrEqual(t, r.FullAt(b), now)
		}
	}
}

func TestWait(t *testing.T) {
	tests := []struct {
		name string
		rate float64
		n    int64
		want time.Duration
	}{
		{"none", 10, 0, 0},
		{"one", 10, 1, 100 * time.Millisecond},
		{"all", 10, 5, 500 * time.Millisecond},
		{"more than the capacity", 10, 6, Never},           // 22
		{"the largest number", 1e9, math.MaxInt64, Never},  // 21
		{"less than none", 1e9, -1, Never},                 // 20
		{"the smallest number", 1e9, math.MinInt64, Never}, // 20
		{"rounded up", 3, 1, 333333334},                    // 30
		{"two thirds", 3, 2, 666666667},
		{"slow", 1.0 / 64, 1, 64 * time.Second},
		{"slower", 1.0 / (1 << 19), 5, 5 * (1 << 19) * time.Second}, // longer than 2^31 ms
		{"fastest", 1e9, 5, 5},
		{"between two nanoseconds", 700e6, 1, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := compile(t, Limit{Capacity: 5, RefillPerSecond: tt.rate, Scale: 1, Initial: Empty})
			b := r.New(77)
			assert.Equal(t, tt.want, r.Wait(b, 77, tt.n))
			assert.Equal(t, tt.want == 0, r.Has(b, 77, tt.n))
			if tt.want == Never {
				assert.False(t, r.Has(b, 400*day, tt.n))
			}
		})
	}
}

func TestWaitBeyondTheClock(t *testing.T) {
	r := compile(t, Limit{Capacity: MaxCapacity, RefillPerSecond: 1e-6, Initial: Empty})
	for _, now := range []int64{0, 1, day, math.MaxInt64} {
		assert.Equal(t, Never, r.Wait(r.New(now), now, MaxCapacity), "at %d", now)
	}
	// Where the units are coarse, just above 2^64 ns.
	r = compile(t, Limit{Capacity: 40_000, RefillPerSecond: 1.0 / (1 << 19), Scale: 1, Initial: Empty})
	assert.Equal(t, Never, r.Wait(r.New(0), 0, 40_000))
}

// 10, 30: after exactly the wait the tokens are there, a nanosecond before it
// they are not.
func TestWaitIsExact(t *testing.T) {
	rng := newRand()
	for _, limit := range limits() {
		r := compile(t, limit)
		b, now := r.New(0), int64(0)
		for range 100 {
			r.Take(&b, now, r.Tokens(b, now))
			for _, n := range []int64{1, 1 + rng.Int64N(limit.Capacity), limit.Capacity} {
				wait := int64(r.Wait(b, now, n))
				require.Positive(t, wait)
				if wait > 1e6*int64(time.Second) { // once in 1e6 s is the lowest rate
					continue
				}
				require.True(t, r.Has(b, now+wait, n), "%+v: %d tokens at %d", limit, n, now+wait)
				require.False(t, r.Has(b, now+wait-1, n), "%+v: %d tokens at %d", limit, n, now+wait-1)
			}
			now += rng.Int64N(int64(time.Hour))
		}
	}
}

// 26, C32: a clock that steps back adds nothing, and what it seems to take is
// there again when the clock is back where it was.
func TestClockStepsBack(t *testing.T) {
	r := compile(t, Limit{Capacity: 10, RefillPerSecond: 1})
	const now, back = int64(20 * time.Second), int64(9 * time.Second)
	b := r.New(now)
	r.Take(&b, now, 6)
	for range 20 {
		assert.LessOrEqual(t, r.Tokens(b, back), int64(4))
		assert.GreaterOrEqual(t, r.Tokens(b, back), int64(0))
		assert.False(t, r.Has(b, back, 5))
		assert.Equal(t, int64(4), r.Tokens(b, now))
	}
	assert.Equal(t, time.Second, r.Wait(b, now, 5))
}

func TestFullAt(t *testing.T) {
	r := compile(t, Limit{Capacity: 10, RefillPerSecond: 1})
	b := r.New(int64(time.Minute))
	assert.Equal(t, int64(time.Minute), r.FullAt(b))
	r.Take(&b, int64(time.Hour), 3)
	full := int64(time.Hour + 3*time.Second)
	assert.Equal(t, full, r.FullAt(b))
	assert.False(t, r.Full(b, full-1))
	assert.True(t, r.Full(b, full))
}

func TestLevel(t *testing.T) {
	r := compile(t, Limit{Capacity: 10, RefillPerSecond: 1})
	b := r.New(0)
	r.Take(&b, 0, 10)
	half := Level{Tokens: 2, Frac: 1 << 63}
	now := int64(2500 * time.Millisecond)
	require.Equal(t, half, r.Level(b, now))

	tests := []struct {
		name  string
		level Level
		ago   time.Duration
		want  Level
	}{
		{"at once", half, 0, half},
		{"later", half, time.Second, Level{Tokens: 3, Frac: 1 << 63}},
		{"full by now", half, 7500 * time.Millisecond, Level{Tokens: 10}},
		{"full for 292 years", half, math.MaxInt64, Level{Tokens: 10}},
		{"was full", Level{Tokens: 10}, 0, Level{Tokens: 10}},
		{"more than the capacity", Level{Tokens: math.MaxInt64, Frac: math.MaxUint64}, 0, Level{Tokens: 10}},
		{"just below the capacity", Level{Tokens: 9, Frac: 1 << 63}, 0, Level{Tokens: 9, Frac: 1 << 63}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, r.Level(r.At(tt.level, now, tt.ago), now))
		})
	}
}

// What is saved and restored waits no nanosecond longer.
func TestLevelRoundTrip(t *testing.T) {
	rng := newRand()
	for _, limit := range limits() {
		r := compile(t, limit)
		b, now := r.New(0), int64(0)
		for range 50 {
			requireRoundTrip(t, r, b, now)
			r.Take(&b, now, rng.Int64N(1+r.Tokens(b, now)))
			now += rng.Int64N(1 + rng.Int64N(int64(time.Minute)))
		}
	}
	r := compile(t, Limit{Capacity: 3, RefillPerSecond: 32})
	b := r.New(0)
	r.Take(&b, 0, 3)
	assert.Equal(t, time.Second/32-7, r.Wait(r.At(r.Level(b, 7), 7, 0), 7, 1))
}

// requireRoundTrip holds that a bucket which goes through its Level gains
// nothing and loses less than 2^-64 of a token.
func requireRoundTrip(t testing.TB, r *Rate, b Bucket, now int64) {
	t.Helper()
	before, after := r.available(b, now).big(), r.available(r.At(r.Level(b, now), now, 0), now).big()
	lost := new(big.Int).Sub(before, after)
	require.GreaterOrEqual(t, lost.Sign(), 0, "%+v gains at %d", r.limit, now)
	require.Negative(t, lost.Lsh(lost, 64).Cmp(r.token.big()), "%+v loses at %d", r.limit, now)
}

func TestNoAllocations(t *testing.T) {
	r := compile(t, Limit{Capacity: MaxCapacity, RefillPerSecond: 1.0 / 3, Scale: MaxScale})
	b, now := r.New(0), int64(0)
	tests := map[string]func(){
		"Has":    func() { r.Has(b, now, 1) },
		"Take":   func() { r.Take(&b, now, 1) },
		"Tokens": func() { r.Tokens(b, now) },
		"Wait":   func() { r.Wait(b, now, MaxCapacity) },
		"FullAt": func() { r.FullAt(b) },
		"Full":   func() { r.Full(b, now) },
	}
	for name, f := range tests {
		assert.Zero(t, testing.AllocsPerRun(100, func() { now += 12345; f() }), name)
	}
}
