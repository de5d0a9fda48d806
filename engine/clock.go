package engine

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/seed-ee4278a0/throttled/policy"
)

// refillClock is the integral of the load ratio over the engine's clock. Its
// segments, each with one ratio, are published by the sampler; readers pay a
// load and a multiplication.
type refillClock struct{ current atomic.Pointer[segment] }

// A segment is the stretch of the refill clock since the ratio last changed.
type segment struct {
	since int64  // on the engine's clock
	base  int64  // what the refill clock showed then
	speed uint64 // 32 fractional bits, 0..fullSpeed
	ratio float64
}

const fullSpeed = 1 << 32

func (c *refillClock) load() *segment { return c.current.Load() }

func (c *refillClock) start(ratio float64) {
	ratio = sane(ratio)
	c.current.Store(&segment{speed: uint64(ratio * fullSpeed), ratio: ratio})
}

// set changes the ratio from now on. One goroutine at a time may call it.
func (c *refillClock) set(now int64, ratio float64) {
	s := c.load()
	if ratio = sane(ratio); ratio != s.ratio {
		c.current.Store(&segment{since: now, base: s.at(now), speed: uint64(ratio * fullSpeed), ratio: ratio})
	}
}

// sane takes a ratio outside 0..1 as the nearest end, and NaN as 1.
func sane(ratio float64) float64 {
	if math.IsNaN(ratio) {
		return 1
	}
	return max(0, min(1, ratio))
}

// at returns what the refill clock shows at now.
func (s *segment) at(now int64) int64 {
	elapsed := max(0, now-s.since)
	if s.speed == fullSpeed {
		return s.base + elapsed
	}
	hi, lo := bits.Mul64(uint64(elapsed), s.speed)
	return s.base + int64(hi<<32|lo>>32)
}

// real turns a wait on the refill clock into one on the engine's, if the ratio
// stays as it is: Never where nothing is refilled.
func (s *segment) real(now int64, wait time.Duration) time.Duration {
	if wait == 0 || wait == policy.Never || s.speed == fullSpeed {
		return wait
	}
	target := uint64(s.at(now)) + uint64(wait) - uint64(s.base)
	hi, lo := target>>32, target<<32
	if hi >= s.speed {
		return policy.Never
	}
	elapsed, rest := bits.Div64(hi, lo, s.speed)
	if rest > 0 {
		elapsed++
	}
	if elapsed > math.MaxInt64 {
		return policy.Never
	}
	return time.Duration(int64(elapsed) - max(0, now-s.since))
}
