// Package tokenbucket answers one question: are there tokens? It is the last
// link of the chain netx -> engine -> shard -> policy -> tokenbucket and knows
// no clock, lock, goroutine or map: a result is a function of the limit, the
// bucket, the time and the number of tokens asked for.
//
// A [Limit] is what a person writes. [Limit.Compile] turns it once into a
// [Rate] of integers, and a [Bucket] is 16 bytes that a Rate reads and charges.
// [Fraction] makes a Rate for policy/limiter, where a rate is so many in a period.
//
// A token is Scale micro-tokens; a micro-token is a whole number of units so
// small that the refill of one nanosecond is a whole number of them too. A
// bucket keeps the meter reading, in these units, at which it is full again
// (the virtual scheduling form of the generic cell rate algorithm, ITU-T
// I.371). Reading and charging are one multiplication and additions of 128-bit
// integers: nothing is divided, so no fraction is lost however often or seldom
// a bucket is asked, and nothing overflows.
//
// The invariant: over any interval T a bucket gives at most Capacity + rate*T
// tokens, and that many (less than one short) where they are asked for.
//
// Times are nanoseconds on a clock that starts at 0 and never goes back from
// one call with a bucket to the next; whoever holds the bucket sees to that.
package tokenbucket

import (
	"math"
	"math/big"
	"math/bits"
	"time"
)

// Never is the wait for what can never be had: more tokens than the capacity.
// A wait beyond the end of the clock (292 years) is Never too.
const Never time.Duration = math.MaxInt64

// A Bucket is the state of one bucket: the meter reading at which it is full
// again. It has no meaning without the [Rate] that made it. A Bucket is a
// value; its owner guards it.
type Bucket struct{ full uint128 }

// A Rate is a compiled [Limit]. It is immutable and safe for concurrent use.
type Rate struct {
	perNano  uint64  // units that one nanosecond refills
	token    uint128 // units of one token
	capacity uint128 // units of a full bucket
	perUnit  float64 // tokens of one unit, to estimate a quotient
	limit    Limit   // with Scale and Initial filled in
}

// Units have this many bits at most, so that a sum with a meter reading (63
// bits of time by 64 of rate) stays below 2^128.
const (
	maxRateBits     = 64
	maxCapacityBits = 126
)

// Compile validates the limit and returns its integers.
//
// The refill of a nanosecond is exact where RefillPerSecond*Scale, the float64
// as it stands, fits the units; else it is rounded down by less than 2^-44 of
// itself.
func (l Limit) Compile() (Rate, error) {
	if err := l.Validate(); err != nil {
		return Rate{}, err
	}
	if l.Scale == 0 {
		l.Scale = DefaultScale
	}
	switch l.Initial {
	case 0:
		l.Initial = l.Capacity
	case Empty:
		l.Initial = 0
	}
	// In units of 2^-shift billionths of a micro-token the refill of one
	// nanosecond is the micro-tokens of a second, times 2^shift.
	perSecond := new(big.Float).SetPrec(128).SetFloat64(l.RefillPerSecond)
	perSecond.Mul(perSecond, new(big.Float).SetInt64(l.Scale))
	token := big.NewInt(l.Scale)
	token.Mul(token, big.NewInt(int64(time.Second)))
	capacity := new(big.Int).Mul(token, big.NewInt(l.Capacity))

	exponent := perSecond.MantExp(nil)
	exact := max(0, int(perSecond.MinPrec())-exponent)
	shift := min(exact, maxRateBits-exponent, maxCapacityBits-capacity.BitLen())

	perNano, _ := perSecond.SetMantExp(perSecond, shift).Int(nil)
	token.Lsh(token, uint(shift))
	capacity.Lsh(capacity, uint(shift))
	units, _ := new(big.Float).SetInt(token).Float64()
	return Rate{
		perNano:  perNano.Uint64(),
		token:    fromBig(token),
		capacity: fromBig(capacity),
		perUnit:  1 / units,
		limit:    l,
	}, nil
}

// Limit returns the limit that was compiled: Scale is filled in, and Initial
// is the number of tokens at first sight, 0 meaning none.
func (r *Rate) Limit() Limit { return r.limit }

// New returns a bucket first seen at now: it holds the limit's Initial.
func (r *Rate) New(now int64) Bucket {
	missing := r.token.mul(uint64(r.limit.Capacity - r.limit.Initial))
	return Bucket{full: r.meter(now).add(missing)}
}

// never reports whether no bucket of the rate ever has n tokens.
func (r *Rate) never(n int64) bool { return uint64(n) > uint64(r.limit.Capacity) }

// meter is the reading at now.
func (r *Rate) meter(now int64) uint128 { return mul64(uint64(now), r.perNano) }

// Has reports whether n tokens could be taken at now. A negative number never
// can.
func (r *Rate) Has(b Bucket, now, n int64) bool {
	if r.never(n) {
		return false
	}
	missing := b.full.subOrZero(r.meter(now))
	return !r.capacity.less(missing.add(r.token.mul(uint64(n))))
}

// Take charges n tokens that [Rate.Has] found at now. Without asking it first it
// leaves a bucket in debt, to be read by [Rate.Wait] alone: how long somebody
// waits who comes behind others.
func (r *Rate) Take(b *Bucket, now, n int64) {
	b.full = b.full.max(r.meter(now)).add(r.token.mul(uint64(n)))
}

// Give takes a charge of n tokens back: the bucket holds n tokens more at now,
// and no more than its capacity.
func (r *Rate) Give(b *Bucket, now, n int64) {
	b.full = b.full.subOrZero(r.token.mul(uint64(n))).max(r.meter(now))
}

// Tokens returns the whole tokens that the bucket holds at now.
func (r *Rate) Tokens(b Bucket, now int64) int64 {
	tokens, _ := r.split(r.available(b, now))
	return tokens
}

func (r *Rate) available(b Bucket, now int64) uint128 {
	return r.capacity.subOrZero(b.full.subOrZero(r.meter(now)))
}

// split divides units into whole tokens and a rest. A float64 misses the
// quotient by one at most where that is below 2^50.
func (r *Rate) split(units uint128) (tokens int64, rest uint128) {
	q := r.estimate(units)
	for product := r.token.mul(q); ; product = r.token.mul(q) {
		switch {
		case units.less(product):
			q -= max(1, r.estimate(product.sub(units)))
		case !units.sub(product).less(r.token):
			q += max(1, r.estimate(units.sub(product)))
		default:
			return int64(q), units.sub(product)
		}
	}
}

func (r *Rate) estimate(units uint128) uint64 { return uint64(units.float() * r.perUnit) }

// Wait returns how long after now the bucket has n tokens, if nobody else
// takes any: 0 where it has them, Never where it never will.
func (r *Rate) Wait(b Bucket, now, n int64) time.Duration {
	if r.never(n) {
		return Never
	}
	spare := r.capacity.sub(r.token.mul(uint64(n)))
	at := r.when(b.full.subOrZero(spare))
	if at == math.MaxInt64 {
		return Never
	}
	return time.Duration(max(0, at-now))
}

// FullAt returns the time at which the bucket is, or was, full again.
func (r *Rate) FullAt(b Bucket) int64 { return r.when(b.full) }

// Full reports whether the bucket is full at now.
func (r *Rate) Full(b Bucket, now int64) bool { return !r.meter(now).less(b.full) }

// when returns the first nanosecond at which the meter shows at least reading.
func (r *Rate) when(reading uint128) int64 {
	if reading.hi >= r.perNano {
		return math.MaxInt64
	}
	t, rest := bits.Div64(reading.hi, reading.lo, r.perNano)
	if t >= math.MaxInt64 {
		return math.MaxInt64
	}
	if rest > 0 {
		t++
	}
	return int64(t)
}

// A Level is what a bucket holds, free of the units of a Rate: Tokens whole
// ones and Frac 2^64ths of one.
type Level struct {
	Tokens int64
	Frac   uint64
}

// Level returns what the bucket holds at now, rounded down to 2^-64 of a token.
func (r *Rate) Level(b Bucket, now int64) Level {
	tokens, rest := r.split(r.available(b, now))
	frac := rest.big()
	frac.Lsh(frac, 64).Quo(frac, r.token.big())
	return Level{Tokens: tokens, Frac: frac.Uint64()}
}

// At returns a bucket that held the level some time ago and has refilled since,
// as it is at now; ago >= 0. More than the capacity is not kept.
func (r *Rate) At(l Level, now int64, ago time.Duration) Bucket {
	missing := uint128{}
	if l.Tokens < r.limit.Capacity {
		// Rounded up, so that what Level rounded down is whole units again.
		frac := new(big.Int).SetUint64(l.Frac)
		frac.Mul(frac, r.token.big()).Add(frac, new(big.Int).SetUint64(1<<64-1)).Rsh(frac, 64)
		held := r.token.mul(uint64(l.Tokens)).add(fromBig(frac))
		missing = r.capacity.subOrZero(held).subOrZero(mul64(uint64(ago), r.perNano))
	}
	return Bucket{full: r.meter(now).add(missing)}
}
