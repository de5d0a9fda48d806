package limiter

import (
	"context"
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// unlimited grants whatever it is asked for.
type unlimited struct {
	closed     atomic.Bool
	successful atomic.Int64
}

// Unlimited returns a limiter that grants everything until it is closed. Its
// Idle is always false before. Where it stands in a chain the idle time is that
// of the other members, and a [Partitioned] keeps no partition for it, or for a
// chain of nothing else, so that keys without a limit cost no memory.
func Unlimited() Limiter { return new(unlimited) }

// unbounded reports whether a limiter is Unlimited, or a chain of nothing else:
// it has nothing to remember.
func unbounded(l Limiter) bool {
	switch l := l.(type) {
	case *unlimited:
		return true
	case *chain:
		return !slices.ContainsFunc(l.members, func(m Limiter) bool { return !unbounded(m) })
	}
	return false
}

func (u *unlimited) permitLimit() int { return math.MaxInt }

func (u *unlimited) TryAcquire(n int) (Lease, error) {
	if n < 0 {
		return Lease{}, PermitError{Asked: n, Limit: math.MaxInt}
	}
	if u.closed.Load() {
		return Lease{}, ErrClosed
	}
	u.successful.Add(1)
	return Lease{state: acquired}, nil
}

func (u *unlimited) Acquire(ctx context.Context, n int) (Lease, error) {
	if err := ended(ctx); err != nil && n >= 0 && !u.closed.Load() {
		return Lease{}, err
	}
	return u.TryAcquire(n)
}

func (u *unlimited) Stats() Stats {
	s := Stats{Successful: u.successful.Load()}
	if !u.closed.Load() {
		s.Available = math.MaxInt64
	}
	return s
}

func (u *unlimited) Idle() (time.Duration, bool) {
	if u.closed.Load() {
		return Never, true
	}
	return 0, false
}

func (u *unlimited) Close() error {
	u.closed.Store(true)
	return nil
}
