package stat_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/bench/internal/stat"
)

func TestSummarize(t *testing.T) {
	for _, c := range []struct {
		samples []float64
		want    stat.Summary
	}{
		{nil, stat.Summary{}},
		{[]float64{3}, stat.Summary{Median: 3, Min: 3, Max: 3}},
		{[]float64{9, 1, 5}, stat.Summary{Median: 5, Min: 1, Max: 9}},
		{[]float64{4, 1, 2, 9}, stat.Summary{Median: 3, Min: 1, Max: 9}},
	} {
		given := slices.Clone(c.samples)
		assert.Equal(t, c.want, stat.Summarize(c.samples))
		assert.Equal(t, given, c.samples, "the rounds keep their order")
	}
}

func TestRatiosPairRounds(t *testing.T) {
	assert.Equal(t, []float64{0.5, 2}, stat.Ratios([]float64{1, 8, 7}, []float64{2, 4}))
	assert.Equal(t, []float64{3}, stat.Ratios([]float64{1, 9}, []float64{0, 3}))
	assert.Empty(t, stat.Ratios([]float64{1}, nil))
}

func TestHistogramQuantiles(t *testing.T) {
	var h stat.Histogram
	require.Zero(t, h.Quantile(0.5))
	for i := 1; i <= 100_000; i++ {
		h.Add(time.Duration(i) * time.Microsecond)
	}
	require.EqualValues(t, 100_000, h.Len())
	for _, q := range []float64{0, 0.001, 0.5, 0.99, 0.999, 1} {
		want := math.Max(q*100_000, 1) * 1000
		assert.InEpsilon(t, want, float64(h.Quantile(q)), 1.0/64, "quantile %v", q)
	}
}

func TestHistogramHoldsEveryDuration(t *testing.T) {
	for _, d := range []time.Duration{-1, 0, 1, 63, 64, 65, 127, 128, 129, 1 << 20, math.MaxInt64} {
		var h stat.Histogram
		h.Add(d)
		want := float64(max(d, 0))
		assert.InDelta(t, want, float64(h.Quantile(1)), want/64, "%d", d)
	}
}

func TestHistogramAllocatesNothing(t *testing.T) {
	var h stat.Histogram
	assert.Zero(t, testing.AllocsPerRun(100, func() { h.Add(time.Millisecond) }))
}
