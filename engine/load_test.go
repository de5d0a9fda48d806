package engine_test

import (
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
)

// load is a LoadSource that the test sets.
type load struct{ bits, calls atomic.Uint64 }

func (l *load) Ratio() float64 {
	l.calls.Add(1)
	return math.Float64frombits(l.bits.Load())
}

func (l *load) set(ratio float64) { l.bits.Store(math.Float64bits(ratio)) }

// Credit is the integral of the ratio, not the ratio at the moment of asking.
func TestRefillIsAnIntegral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := new(load)
		source.set(1)
		e := newEngine(t, engine.Config{Default: rate(1000, 10), Load: source})
		require.Equal(t, 1000, allowed(e, 0, 2000))
		steps := []struct {
			ratio float64
			want  int
		}{{1, 100}, {0.25, 25}, {0, 0}, {0.5, 50}, {1, 100}}
		total := 0
		for _, s := range steps { // ten seconds each, seen at once by the sampler
			source.set(s.ratio)
			time.Sleep(250 * time.Millisecond)
			total += allowed(e, 0, 2000)
			time.Sleep(10*time.Second - 250*time.Millisecond)
		}
		total += allowed(e, 0, 2000)
		require.InDelta(t, 275, total, 6, "each step begins up to one sample late")
		require.Equal(t, 1.0, e.Report().RefillRatio)
	})
}

// A source that takes its time holds up no refill: a ratio counts from when it
// is known.
func TestSlowLoadSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := new(slowLoad)
		e := newEngine(t, engine.Config{Default: rate(1000, 10), Load: source})
		require.Equal(t, 1000, allowed(e, 0, 2000))
		time.Sleep(10 * time.Second)
		require.Equal(t, 100, allowed(e, 0, 2000), "it is being read, and was 1")
		time.Sleep(10 * time.Second)
		require.InDelta(t, 50, allowed(e, 0, 2000), 2)
		source.closing.Store(true)
	})
}

// slowLoad is 1 at first and then, after ten seconds, 0.5.
type slowLoad struct{ asked, closing atomic.Bool }

func (l *slowLoad) Ratio() float64 {
	if !l.asked.Swap(true) {
		return 1
	}
	if !l.closing.Load() {
		time.Sleep(10 * time.Second)
	}
	return 0.5
}

// RetryAfter is right if the ratio stays as it is.
func TestRetryAfterUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := new(load)
		source.set(0.25)
		e := newEngine(t, engine.Config{Default: rate(1, 10), Load: source})
		require.True(t, e.Evaluate(client).Allowed)
		for range 20 {
			d := e.Evaluate(client)
			require.Equal(t, 400*time.Millisecond, d.RetryAfter)
			time.Sleep(d.RetryAfter - 1)
			require.False(t, e.Evaluate(client).Allowed)
			time.Sleep(time.Nanosecond)
			require.True(t, e.Evaluate(client).Allowed)
		}
		source.set(0)
		time.Sleep(time.Second)
		e.Evaluate(client) // what was refilled until the sampler saw it
		require.Equal(t, policy.Never, e.Evaluate(client).RetryAfter)
		time.Sleep(time.Hour)
		require.False(t, e.Evaluate(client).Allowed)
	})
}

// Ratio is read in New and by the sampler, never by a decision, and never after
// Close.
func TestRatioReadings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := new(load)
		for _, c := range []struct{ ratio, want float64 }{
			{0.5, 0.5}, {-1, 0}, {7, 1}, {math.NaN(), 1}, {math.Inf(1), 1}, {math.Inf(-1), 0},
		} {
			source.set(c.ratio)
			e := newEngine(t, engine.Config{Load: source})
			require.Equal(t, c.want, e.Report().RefillRatio)
			calls := source.calls.Load()
			for range 100 {
				e.Evaluate(client)
			}
			require.Equal(t, calls, source.calls.Load())
			time.Sleep(10 * time.Second)
			require.InDelta(t, 40, source.calls.Load()-calls, 1)
			require.NoError(t, e.Close())
			calls = source.calls.Load()
			time.Sleep(10 * time.Second)
			require.Equal(t, calls, source.calls.Load())
		}
	})
}

func TestCPULoadArguments(t *testing.T) {
	for _, c := range [][3]float64{
		{0.9, 0.6, 0.25}, {0.6, 0.6, 0.25}, {-0.1, 0.9, 0.25}, {0.6, 1.1, 0.25},
		{0.6, 0.9, -0.1}, {0.6, 0.9, 1.1}, {math.NaN(), 0.9, 0.25}, {0.6, math.NaN(), 0.25}, {0.6, 0.9, math.NaN()},
	} {
		_, err := engine.CPULoad(c[0], c[1], c[2])
		require.ErrorContains(t, err, "CPULoad", "%v", c)
	}
	_, err := engine.CPULoad(2, 1, 2)
	require.ErrorContains(t, err, "low")
	require.ErrorContains(t, err, "floor")
}
