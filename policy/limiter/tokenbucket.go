package limiter

import (
	"time"

	"github.com/seed-ee4278a0/throttled/tokenbucket"
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
	b := &TokenBucket{bucket: newBucket(int64(o.TokenLimit), int64(o.TokensPerPeriod), o.Period)}
	b.bucket.manual = o.Manual
	b.period = o.Period
	b.init(&b.bucket, o.TokenLimit, o.Queue, o.Manual, rateReached)
	return b, nil
}

// A bucket is the algorithm of a TokenBucket: one of package tokenbucket, whose
// rate is the fraction that the options say. A manual one stands still at the
// time up to which it has been credited.
type bucket struct {
	rate     tokenbucket.Rate
	level    tokenbucket.Bucket
	wasFull  int64 // when it was last seen full
	manual   bool
	fast     bool  // tokens come faster than nanoseconds
	ragged   bool  // a token comes within a nanosecond, not at its end
	credited int64 // manual: the time up to which it has been credited
	filled   int64 // manual: when it became full
}

func newBucket(limit, tokens int64, period time.Duration) bucket {
	rate := tokenbucket.Fraction(limit, tokens, period)
	return bucket{
		rate:   rate,
		level:  rate.New(0),
		fast:   tokens > int64(period),
		ragged: int64(period)%tokens > 0,
	}
}

// at is the time that the bucket has at now.
func (b *bucket) at(now int64) int64 {
	if b.manual {
		return b.credited
	}
	return now
}

func (b *bucket) full(now int64) bool { return b.rate.Full(b.level, b.at(now)) }

func (b *bucket) available(now int64) int64 { return b.rate.Tokens(b.level, b.at(now)) }

func (b *bucket) take(now, n int64) (claim, bool) {
	if !b.rate.Has(b.level, b.at(now), n) {
		return claim{}, false
	}
	if b.full(now) {
		b.wasFull = now
		b.credited = max(b.credited, now)
	}
	b.rate.Take(&b.level, b.at(now), n)
	return claim{n, max(now, b.wasFull)}, true
}

// giveBack gives nothing where the bucket has been full since the take: it
// would have been then without the take too, and gained no more from there on.
func (b *bucket) giveBack(now int64, c claim) {
	if b.wasFull > c.stamp || b.full(now) {
		return
	}
	b.rate.Give(&b.level, b.at(now), c.n)
	if b.full(now) {
		b.filled = now
	}
}

// wait is exact but for this: a bucket that is full when it serves somebody may
// have been full for a part of a nanosecond, which it has lost. So for those
// ahead who want all its tokens up to a nanosecond each is added.
func (b *bucket) wait(now int64, ahead *queue, n int64) (int64, bool) {
	level, lost := b.level, int64(0)
	if ahead != nil {
		b.rate.Take(&level, now, ahead.permits)
		switch {
		case b.fast:
			lost = int64(ahead.count)
		case b.ragged:
			lost = int64(ahead.whole)
		}
	}
	return after(int64(b.rate.Wait(level, now, n)), lost), true
}

func (b *bucket) idle(now int64) (int64, bool) {
	switch {
	case !b.full(now):
		return 0, false
	case b.manual:
		return b.filled, true
	}
	return b.rate.FullAt(b.level), true
}

func (b *bucket) replenish(now int64) {
	wanting := !b.full(now)
	b.credited = max(b.credited, now)
	if wanting && b.full(now) {
		b.filled = now
	}
}
