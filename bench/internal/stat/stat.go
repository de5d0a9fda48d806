// Package stat reduces what was measured several times to a median and its
// range, and latencies to percentiles.
package stat

import "slices"

// A Summary is what a list of samples is told by.
type Summary struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// Summarize returns the median (of an even number the mean of the middle two),
// the least and the greatest sample. Without samples all are 0.
func Summarize(samples []float64) Summary {
	n := len(samples)
	if n == 0 {
		return Summary{}
	}
	s := slices.Sorted(slices.Values(samples))
	return Summary{Median: (s[(n-1)/2] + s[n/2]) / 2, Min: s[0], Max: s[n-1]}
}

// Ratios divides what was measured in the same round. A round without its
// counterpart, or with one of 0, has no ratio.
func Ratios(samples, base []float64) []float64 {
	var ratios []float64
	for i := range min(len(samples), len(base)) {
		if base[i] != 0 {
			ratios = append(ratios, samples[i]/base[i])
		}
	}
	return ratios
}
