package limiter

import (
	"context"
	"math"
	"time"
)

// Never is a time that does not come: the RetryAfter of what would take longer
// than a Duration can say (292 years), and what Idle answers after Close.
const Never time.Duration = math.MaxInt64

// A Limiter hands out permits. Its methods are safe for concurrent use.
//
// The arguments of a call are checked first, then whether the limiter is
// closed, then the context. Permits that are not there are a denial, which is a
// [Lease] and no error; errors are a [PermitError], [ErrClosed] and what the
// context says.
//
// An implementation from elsewhere embeds a Limiter of this package, returns
// leases of one, or the zero Lease for a denial. Embedded it is no longer a
// [Replenisher]: around a manual limiter embed that.
type Limiter interface {
	// TryAcquire takes n permits if they are there, and never waits. With n =
	// 0 it takes nothing and is granted where one permit could be had.
	TryAcquire(n int) (Lease, error)
	// Acquire takes n permits. Where they are not there it waits in the
	// queue, if the limiter has one and there is room in it. A context that is
	// done when Acquire is called takes nothing, even where permits are there;
	// ctx.Done() is asked for only when Acquire has to wait. Where the grant
	// and the end of the context meet the call has either, and in the latter
	// case no permits. An error satisfies errors.Is for both ctx.Err() and
	// context.Cause(ctx).
	Acquire(ctx context.Context, n int) (Lease, error)
	// Stats returns what the limiter has and has done.
	Stats() Stats
	// Idle returns how long nothing has been out: no permit is held, none is
	// still to come back with time, and nobody waits. It is false while
	// something is. A closed limiter has been idle for Never.
	Idle() (time.Duration, bool)
	// Close denies everybody who waits, in the order in which the queue
	// serves them. Further calls do nothing and return nil. Leases that are
	// still out may be released, to no effect.
	Close() error
}

// A Replenisher is a limiter whose permits come back with time.
type Replenisher interface {
	Limiter
	// Replenish brings the permits that are due by now and returns true where
	// the limiter is manual, even if none were due. Else it does nothing and
	// returns false.
	Replenish() bool
	// Auto reports whether permits come back without Replenish.
	Auto() bool
	// Period is the time between two instalments: the period of a token
	// bucket, as configured, though it is credited continuously, the window
	// of a fixed one, and the segment of a sliding one.
	Period() time.Duration
}

// Stats is what a limiter has now and has done since it was made. After Close
// nothing is available and nobody is queued; the counts stay.
type Stats struct {
	Available  int64 // whole permits that are there, those that a waiter ahead will get included
	Queued     int64 // permits that are waited for
	Successful int64 // granted, at the time of the grant; an empty probe counts, a grant that a chain took back too
	Failed     int64 // denied; wrong arguments, contexts that ended and calls after Close do not count
}

// An Order says whom a queue serves first, and so who goes when it is full.
type Order uint8

// The orders.
const (
	// OldestFirst serves in the order of arrival. Nobody overtakes, TryAcquire
	// neither, and who finds the queue full is denied.
	OldestFirst Order = iota
	// NewestFirst serves the last to arrive. TryAcquire may pass the waiters
	// by, and who finds the queue full evicts the oldest ones, if that can
	// make room at all. Under steady overload the oldest wait for ever, so
	// give it a MaxWait.
	NewestFirst
)

// String returns "oldest first" or "newest first".
func (o Order) String() string {
	switch o {
	case OldestFirst:
		return "oldest first"
	case NewestFirst:
		return "newest first"
	}
	return "unknown"
}

// A Queue says who may wait. The zero value lets nobody: Acquire then answers
// at once, like TryAcquire.
type Queue struct {
	// Limit is the number of permits that may be waited for at a time, 0 or
	// more. There are at most max(Limit, 1024) waiters besides, since one that
	// waits for 0 permits weighs nothing.
	Limit int
	// Order is OldestFirst or NewestFirst.
	Order Order
	// MaxWait is how long anybody waits before being denied; 0 means as long
	// as the context allows.
	MaxWait time.Duration
}
