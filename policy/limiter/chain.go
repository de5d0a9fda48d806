package limiter

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"
)

// A chain is limiters of which each must grant.
type chain struct {
	members []Limiter
	closed  atomic.Bool
}

// A replenishing is a chain with replenishers among its members.
type replenishing struct {
	chain
	replenishers []Replenisher
}

// Chain returns a limiter that grants what all its members grant. It is a
// [Replenisher] where one of them is.
//
// The members are asked in their order. What the earlier ones granted is held
// while the next one is waited for; on a denial, an error or the end of the
// context everything is given back, the last first, rate permits too: the chain
// never charges one member for the denial of another. The lease of a denial is
// that of the member which denied.
//
// Stats has the smallest Available, the sums of Queued and Failed, and the
// Successful of the last member, since the earlier ones count what they granted
// and got back. Idle is the shortest of the members', false while one is in
// use; Period is the shortest, Auto true where all replenishers are, and
// Replenish passes to each.
//
// The chain does not own its members: closing it leaves them open, and whoever
// waits in one goes on waiting; one may be in several chains. Chain keeps no
// reference to the slice. It returns an error where there are no members or one
// is nil.
func Chain(members ...Limiter) (Limiter, error) {
	if err := checkMembers(members); err != nil {
		return nil, err
	}
	c := replenishing{chain: chain{members: append([]Limiter(nil), members...)}}
	for _, m := range members {
		if r, ok := m.(Replenisher); ok {
			c.replenishers = append(c.replenishers, r)
		}
	}
	if c.replenishers == nil {
		return &chain{members: c.members}, nil
	}
	return &c, nil
}

func checkMembers[M comparable](members []M) error {
	if len(members) == 0 {
		return errors.New("limiter: a chain without members")
	}
	var none M
	var p problems
	for i, m := range members {
		p.check(m != none, "member %d of the chain is nil", i)
	}
	return p.err()
}

// check finds the arguments that no member or a certain one cannot grant,
// before anybody is asked and made to wait.
func (c *chain) check(n int) error {
	if n < 0 {
		return PermitError{Asked: n, Limit: c.permitLimit()}
	}
	for _, m := range c.members {
		if limit := permitLimit(m); n > limit {
			return PermitError{Asked: n, Limit: limit}
		}
	}
	return nil
}

func (c *chain) permitLimit() int {
	least := math.MaxInt
	for _, m := range c.members {
		least = min(least, permitLimit(m))
	}
	return least
}

// permitLimit is the most that one call may ask for, where that is known.
func permitLimit(l Limiter) int {
	if l, ok := l.(interface{ permitLimit() int }); ok {
		return l.permitLimit()
	}
	return math.MaxInt
}

func (c *chain) TryAcquire(n int) (Lease, error) {
	if err := c.check(n); err != nil {
		return Lease{}, err
	}
	if c.closed.Load() {
		return Lease{}, ErrClosed
	}
	return all(len(c.members), func(i int) (Lease, error) { return c.members[i].TryAcquire(n) })
}

func (c *chain) Acquire(ctx context.Context, n int) (Lease, error) {
	if err := c.check(n); err != nil {
		return Lease{}, err
	}
	if c.closed.Load() {
		return Lease{}, ErrClosed
	}
	if err := ended(ctx); err != nil {
		return Lease{}, err
	}
	return all(len(c.members), func(i int) (Lease, error) { return c.members[i].Acquire(ctx, n) })
}

func (c *chain) Stats() Stats {
	s := combine(len(c.members), func(i int) Stats { return c.members[i].Stats() })
	if c.closed.Load() {
		s.Available, s.Queued = 0, 0
	}
	return s
}

// combine makes the statistics of a chain from those of its members.
func combine(members int, stats func(i int) Stats) Stats {
	total := Stats{Available: math.MaxInt64}
	for i := range members {
		s := stats(i)
		total.Available = min(total.Available, s.Available)
		total.Queued += s.Queued
		total.Failed += s.Failed
		total.Successful = s.Successful
	}
	return total
}

func (c *chain) Idle() (time.Duration, bool) {
	if c.closed.Load() {
		return Never, true
	}
	shortest, known := Never, false
	for _, m := range c.members {
		if unbounded(m) {
			continue // has never anything out
		}
		idle, ok := m.Idle()
		if !ok {
			return 0, false
		}
		shortest, known = min(shortest, idle), true
	}
	if !known {
		return 0, false
	}
	return shortest, true
}

func (c *chain) Close() error {
	c.closed.Store(true)
	return nil
}

func (r *replenishing) Replenish() bool {
	if r.closed.Load() {
		return false
	}
	did := false
	for _, m := range r.replenishers {
		if m.Replenish() {
			did = true
		}
	}
	return did
}

func (r *replenishing) Auto() bool {
	for _, m := range r.replenishers {
		if !m.Auto() {
			return false
		}
	}
	return true
}

func (r *replenishing) Period() time.Duration {
	shortest := Never
	for _, m := range r.replenishers {
		if p := m.Period(); p > 0 {
			shortest = min(shortest, p)
		}
	}
	return shortest
}
