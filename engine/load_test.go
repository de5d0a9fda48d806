package engine_test

import (
	"math"
	"math/rand/v2"
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

// A ratio that changes at every sample: what is refilled is its integral, to
// the token, however it flaps. C114
func TestRefillIsTheExactIntegral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const perSecond, samples = 1000, 2000
		r := rand.New(rand.NewPCG(4, 4))
		source := &script{ratios: make([]float64, samples)}
		for i := range source.ratios {
			source.ratios[i] = []float64{0, 1, r.Float64(), 0.25}[r.IntN(4)]
		}
		e := newEngine(t, engine.Config{Default: rate(1<<30, perSecond), Load: source})
		for range 1000 {
			e.Evaluate(client)
		}
		before, _ := e.Lookup(client)
		time.Sleep(time.Millisecond) // after the samples, not beside them
		want := source.ratios[0] * perSecond / 1000
		for i := 1; i < samples; i++ {
			time.Sleep(250 * time.Millisecond)
			// 249 ms at the ratio of before, and one at the new one.
			want += (source.ratios[i-1]*249 + source.ratios[i]) * perSecond / 1000
			row, _ := e.Lookup(client)
			require.InDelta(t, min(want, 1000), row.Tokens-before.Tokens, 1, "sample %d", i)
			if want > 500 {
				for range 500 {
					e.Evaluate(client)
				}
				want -= 500
			}
		}
	})
}

// script is a LoadSource that gives one ratio after the other.
type script struct {
	ratios []float64
	next   int
}

func (s *script) Ratio() float64 {
	i := min(s.next, len(s.ratios)-1)
	s.next++
	return s.ratios[i]
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
		source.set(0.5)
		time.Sleep(10*time.Second + time.Millisecond)
		require.True(t, e.Evaluate(client).Allowed)
		for range 20 {
			d := e.Evaluate(client)
			require.Equal(t, 200*time.Millisecond, d.RetryAfter, "after a change as well")
			time.Sleep(d.RetryAfter)
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

func TestCPULoadLimits(t *testing.T) {
	for _, c := range [][3]float64{{0, 1, 0}, {0, 1, 1}, {0.5, 0.6, 0.25}} {
		source, err := engine.CPULoad(c[0], c[1], c[2])
		require.NoError(t, err, "%v", c)
		require.NotNil(t, source)
		require.Equal(t, 1.0, source.Ratio(), "one reading tells of no use")
	}
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
