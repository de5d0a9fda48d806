package policy

import (
	"math"
	"time"
)

// A Reason says why a packet was not allowed.
type Reason uint8

// The reasons. None goes with an allowed packet.
const (
	None Reason = iota
	SoftThrottle
	HardLockout
)

// String returns "none", "soft_throttle" or "hard_lockout".
func (r Reason) String() string {
	switch r {
	case None:
		return "none"
	case SoftThrottle:
		return "soft_throttle"
	case HardLockout:
		return "hard_lockout"
	}
	return "unknown"
}

// A Decision is the answer for one packet: 16 bytes, passed by value.
type Decision struct {
	// RetryAfter is the time after which the same packet would pass if nobody
	// else took tokens, or what is left of a lockout. It is 0 for an allowed
	// packet and [Never] for one that can never pass.
	RetryAfter time.Duration
	// Credit is the number of whole packet tokens left after the decision, at
	// most 65535; 0 during a lockout.
	Credit uint16
	Reason Reason
	// Allowed packets have been charged for, others have not.
	Allowed bool
}

// RetryAfterMs returns RetryAfter in milliseconds, rounded up, and the largest
// int32 where it is longer than that.
func (d Decision) RetryAfterMs() int32 {
	ms := d.RetryAfter / time.Millisecond
	if d.RetryAfter%time.Millisecond > 0 {
		ms++
	}
	return int32(min(ms, math.MaxInt32))
}
