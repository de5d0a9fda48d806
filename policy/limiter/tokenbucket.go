package limiter

import (
	"math"
	"math/bits"
	"time"
)

// A TokenBucket is a limiter that holds up to TokenLimit tokens and gains
// TokensPerPeriod in each Period, one after the other and not all at its end.
//
// Over any time T it grants at most TokenLimit + T*TokensPerPeriod/Period
// tokens. The rate is kept as the fraction it is, so none is ever lost or
// gained to rounding.
//
// Use NewTokenBucket; the zero value is of no use.
type TokenBucket struct {
	timed
	bucket bucket
}

// TokenBucketOptions configure a [TokenBucket]. All but Queue and Manual must
// be set.
type TokenBucketOptions struct {
	// TokenLimit is what the bucket holds, and holds at first; 1 or more.
	TokenLimit int
	// TokensPerPeriod is what it gains in each Period; 1 or more.
	TokensPerPeriod int
	// Period is 1 ns or longer.
	Period time.Duration
	// Queue says who may wait; the zero value lets nobody.
	Queue Queue
	// Manual lets tokens come only with Replenish, which credits the time
	// since it was called last. A bucket that is full gains nothing: its time
	// counts from when the first token is taken.
	Manual bool
}

// NewTokenBucket returns a full bucket, or an error that names every option
// that is out of its range.
func NewTokenBucket(o TokenBucketOptions) (*TokenBucket, error) {
	var p problems
	p.positive("TokenLimit", o.TokenLimit)
	p.positive("TokensPerPeriod", o.TokensPerPeriod)
	p.duration("Period", o.Period)
	p.queue(o.Queue)
	if err := p.err(); err != nil {
		return nil, err
	}
	b := &TokenBucket{bucket: newBucket(uint64(o.TokenLimit), uint64(o.TokensPerPeriod), uint64(o.Period))}
	b.bucket.manual = o.Manual
	b.period = o.Period
	b.init(&b.bucket, o.TokenLimit, o.Queue, o.Manual, rateReached)
	return b, nil
}

// A bucket is the algorithm of a TokenBucket. A token is as many units as its
// period has nanoseconds, so that a nanosecond brings TokensPerPeriod of them
// (both reduced by what divides them), and nothing is divided until somebody
// wants to know a time or a number. It keeps the reading of a meter that counts
// the units since the start at which it is full again: the virtual scheduling
// form of the generic cell rate algorithm (ITU-T I.371).
//
// A reading is below 2^126, as is the capacity, and so is what a call asks
// for; no sum reaches 2^128.
type bucket struct {
	rate     uint64 // units of a nanosecond
	token    uint64 // units of a token
	capacity uint128
	full     uint128 // the reading at which it is full again
	wasFull  int64   // when it was last seen full
	manual   bool
	credited int64 // manual: the time up to which it has been credited
	filled   int64 // manual: when it became full
}

func newBucket(limit, tokens, period uint64) bucket {
	d := gcd(tokens, period)
	return bucket{rate: tokens / d, token: period / d, capacity: mul64(limit, period/d)}
}

func gcd(a, b uint64) uint64 {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}

// meter is the reading, which stands still in a manual bucket.
func (b *bucket) meter(now int64) uint128 {
	if b.manual {
		now = b.credited
	}
	return mul64(uint64(now), b.rate)
}

func (b *bucket) available(now int64) int64 {
	has := b.capacity.subOrZero(b.full.subOrZero(b.meter(now))) // now may be before the last take
	tokens, _ := bits.Div64(has.hi, has.lo, b.token)
	return int64(tokens)
}

func (b *bucket) take(now, n int64) (claim, bool) {
	meter := b.meter(now)
	missing, cost := b.full.subOrZero(meter), mul64(uint64(n), b.token)
	if b.capacity.less(missing.add(cost)) {
		return claim{}, false
	}
	if missing == (uint128{}) {
		b.wasFull = now
		b.credited = max(b.credited, now)
		b.full = b.meter(now)
	}
	b.full = b.full.add(cost)
	return claim{n, max(now, b.wasFull)}, true
}

// giveBack gives nothing where the bucket has been full since the take: it
// would have been then without the take too, and gained no more from there on.
func (b *bucket) giveBack(now int64, c claim) {
	meter := b.meter(now)
	if b.wasFull > c.stamp || !meter.less(b.full) {
		return
	}
	b.full = b.full.subOrZero(mul64(uint64(c.n), b.token)).max(meter)
	if b.full == meter {
		b.filled = now
	}
}

// wait is exact but for this: a bucket that is full when it serves somebody may
// have been full for a part of a nanosecond, which it has lost. So for those
// ahead who want all its tokens up to a nanosecond each is added.
func (b *bucket) wait(now int64, ahead *queue, n int64) (int64, bool) {
	tokens, lost := uint64(n), int64(0)
	if ahead != nil {
		tokens += uint64(ahead.permits)
		switch {
		case b.rate > b.token: // tokens come faster than nanoseconds
			lost = int64(ahead.count)
		case b.rate > 1:
			lost = int64(ahead.whole)
		}
	}
	full := b.full.max(mul64(uint64(now), b.rate)) // what Replenish would find
	when := after(b.when(full.add(mul64(tokens, b.token)).subOrZero(b.capacity)), lost)
	if when == math.MaxInt64 {
		return math.MaxInt64, true
	}
	return max(0, when-now), true
}

// when is the first nanosecond at which the meter shows at least the reading.
func (b *bucket) when(reading uint128) int64 {
	if reading.hi >= b.rate {
		return math.MaxInt64
	}
	t, rest := bits.Div64(reading.hi, reading.lo, b.rate)
	if t >= math.MaxInt64 {
		return math.MaxInt64
	}
	if rest > 0 {
		t++
	}
	return int64(t)
}

func (b *bucket) idle(now int64) (int64, bool) {
	switch {
	case b.meter(now).less(b.full):
		return 0, false
	case b.manual:
		return b.filled, true
	}
	return b.when(b.full), true
}

func (b *bucket) replenish(now int64) {
	wanting := b.meter(now).less(b.full)
	b.credited = max(b.credited, now)
	if wanting && !b.meter(now).less(b.full) {
		b.filled = now
	}
}
