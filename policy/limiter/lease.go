package limiter

import "time"

// A Lease is the answer to a request for permits. It is a small value that may
// be copied; the zero value is a denial without a reason. Its methods are safe
// for concurrent use.
type Lease struct {
	// Four words in three fields: a larger one would not travel in registers,
	// as BenchmarkTryAcquire shows.

	from  *source // where permits go back to; nil where there are none to give back
	claim claim   // which permits; for a denial n is the RetryAfter in nanoseconds
	state state
}

// A state is the reason of a denial and two bits.
type state uint8

const (
	acquired  state = 1 << 7
	hasRetry  state = 1 << 6
	theReason state = hasRetry - 1
)

// denial is a lease that says why, and how long it would take if that is known.
func denial(r reason, wait int64, known bool) Lease {
	l := Lease{state: state(r)}
	if known {
		l.state |= hasRetry
		l.claim.n = wait
	}
	return l
}

// A source is what permits came from. It stands in a limiter, so that a lease
// points to it and not to it and its type.
type source struct{ owner }

type owner interface {
	release(c claim) // what Lease.Release does
	// undo gives permits back as if they had never been taken, at most once
	// for each grant. Permits that time has brought back already do not come
	// back again.
	undo(c claim)
}

// Acquired reports whether the permits were granted.
func (l Lease) Acquired() bool { return l.state&acquired != 0 }

// RetryAfter returns, for a denial, after which time the same request will be
// granted if nobody else takes permits meanwhile: exact, rounded up to the
// nanosecond, at most [Never]. Those who wait ahead count where the order is
// OldestFirst (with a nanosecond more for each that will empty a token bucket).
// For a manual limiter it is the time after which Replenish
// brings the permits. It is false where nobody can know: for concurrency
// limiters, closed ones and "too many keys", and for a lease that was granted.
func (l Lease) RetryAfter() (time.Duration, bool) {
	if l.state&hasRetry == 0 {
		return 0, false
	}
	return time.Duration(l.claim.n), true
}

// Reason returns why the permits were denied, and "" where they were granted:
// "rate limit reached", "concurrency limit reached", "queue limit reached",
// "evicted by a newer request", "waited too long", "too many keys" or "limiter
// closed".
func (l Lease) Reason() string { return reason(l.state & theReason).String() }

// Release gives back the permits of a concurrency limiter, and does nothing for
// those of a rate limiter, which are spent. The first call counts, whichever
// copy of the lease it comes from.
func (l Lease) Release() {
	if l.from != nil {
		l.from.release(l.claim)
	}
}

// undo gives back everything, rate permits too. It is for a lease that nobody
// else has seen.
func (l Lease) undo() {
	if l.from != nil {
		l.from.undo(l.claim)
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

// spent is a core as the owner of rate permits.
type spent core

func (s *spent) release(claim) {}

func (s *spent) undo(c claim) { (*core)(s).giveBack(c) }

// held is a core as the owner of the permits of a concurrency limiter.
type held core

func (h *held) release(c claim) { (*core)(h).giveBack(c) }

func (h *held) undo(c claim) { (*core)(h).giveBack(c) }
