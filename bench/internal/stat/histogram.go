package stat

import (
	"math/bits"
	"time"
)

// steps is the number of buckets in which a power of two is split, so that a
// quantile is off by less than 1/steps of itself.
const (
	stepBits = 6
	steps    = 1 << stepBits
)

// A Histogram counts durations in buckets whose width grows with the duration,
// as HdrHistogram does. The zero value is empty. Adding allocates nothing. It is
// for one goroutine.
type Histogram struct {
	counts [(64 - stepBits) * steps]uint64
	n      uint64
}

// Add counts a duration; one below 0 counts as 0.
func (h *Histogram) Add(d time.Duration) {
	h.counts[bucket(uint64(max(d, 0)))]++
	h.n++
}

// Len is the number of durations added.
func (h *Histogram) Len() uint64 { return h.n }

// Quantile returns the least duration that at least the part q (0..1) of those
// added does not exceed, to the width of a bucket. Of none it is 0.
func (h *Histogram) Quantile(q float64) time.Duration {
	want := max(uint64(q*float64(h.n)+0.5), 1)
	seen := uint64(0)
	for i, c := range h.counts {
		if seen += c; seen >= want {
			return time.Duration(lowest(i))
		}
	}
	return 0
}

// bucket numbers durations: those below steps one by one, above them steps
// buckets for each power of two.
func bucket(v uint64) int {
	if v < steps {
		return int(v)
	}
	shift := bits.Len64(v) - stepBits - 1
	return shift*steps + int(v>>shift)
}

// lowest is the least duration of a bucket.
func lowest(i int) uint64 {
	if i < steps {
		return uint64(i)
	}
	shift := i/steps - 1
	return uint64(i-shift*steps) << shift
}
