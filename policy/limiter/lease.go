package limiter

import (
	"sync/atomic"
	"time"
)

// A Lease is the answer to a request for permits. It is a small value that may
// be copied; the zero value is a denial without a reason. Its methods are safe
// for concurrent use.
type Lease struct {
	source   source // where permits go back to; nil where there are none to give back
	n        int64  // permits; for a denial the RetryAfter in nanoseconds
	stamp    int64  // what the algorithm needs to know to take n back
	reason   reason
	acquired bool
	hasRetry bool
}

// A source is what permits came from.
type source interface {
	release() // what Lease.Release does
	// undo gives n permits back as if they had never been taken, at most once
	// for each grant. Permits that time has brought back already do not come
	// back again.
	undo(n, stamp int64)
}

// Acquired reports whether the permits were granted.
func (l Lease) Acquired() bool { return l.acquired }

// RetryAfter returns, for a denial, after which time the same request will be
// granted if nobody else takes permits meanwhile: exact, rounded up to the
// nanosecond, at most [Never]. Those who wait ahead count where the order is
// OldestFirst. For a manual limiter it is the time after which Replenish
// brings the permits. It is false where nobody can know: for concurrency
// limiters, closed ones and "too many keys", and for a lease that was granted.
func (l Lease) RetryAfter() (time.Duration, bool) {
	if !l.hasRetry {
		return 0, false
	}
	return time.Duration(l.n), true
}

// Reason returns why the permits were denied, and "" where they were granted:
// "rate limit reached", "concurrency limit reached", "queue limit reached",
// "evicted by a newer request", "waited too long", "too many keys" or "limiter
// closed".
func (l Lease) Reason() string { return l.reason.String() }

// Release gives back the permits of a concurrency limiter, and does nothing for
// those of a rate limiter, which are spent. The first call counts, whichever
// copy of the lease it comes from.
func (l Lease) Release() {
	if l.source != nil {
		l.source.release()
	}
}

// undo gives back everything, rate permits too. It is for a lease that nobody
// else has seen.
func (l Lease) undo() {
	if l.source != nil {
		l.source.undo(l.n, l.stamp)
	}
}

// A reason is the code of a Lease.Reason.
type reason uint8

const (
	noReason reason = iota
	rateReached
	concurrencyReached
	queueReached
	evicted
	waitedTooLong
	tooManyKeys
	limiterClosed
)

var reasons = [...]string{
	rateReached:        "rate limit reached",
	concurrencyReached: "concurrency limit reached",
	queueReached:       "queue limit reached",
	evicted:            "evicted by a newer request",
	waitedTooLong:      "waited too long",
	tooManyKeys:        "too many keys",
	limiterClosed:      "limiter closed",
}

func (r reason) String() string { return reasons[r] }

// spent is a core as the source of rate permits.
type spent core

func (s *spent) release() {}

func (s *spent) undo(n, stamp int64) { (*core)(s).giveBack(n, stamp) }

// A hold is the source of the permits of a concurrency limiter: copies of a
// lease share it.
type hold struct {
	core     *core
	n        int64
	released atomic.Bool
}

func (h *hold) release() {
	if h.released.CompareAndSwap(false, true) {
		h.core.giveBack(h.n, 0)
	}
}

func (h *hold) undo(int64, int64) { h.release() }
