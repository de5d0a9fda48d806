package limiter

import (
	"context"
	"math"
	"sync/atomic"
)

// A Selective is a limiter that looks at what it limits: a request, a
// connection, whatever R is. Its methods are safe for concurrent use and behave
// as those of a [Limiter]. How many permits one call may ask for is known to the
// limiter that r meets, so that only a negative number is found before the
// context is asked.
type Selective[R any] interface {
	// TryAcquire takes n permits for r if they are there, and never waits for
	// permits.
	TryAcquire(r R, n int) (Lease, error)
	// Acquire takes n permits for r and waits for them where it may.
	Acquire(ctx context.Context, r R, n int) (Lease, error)
	// Stats returns those of the limiter that r meets.
	Stats(r R) (Stats, error)
	// Close ends the limiter and those that it made. Further calls do
	// nothing.
	Close() error
}

type selectiveChain[R any] struct {
	members []Selective[R]
	closed  atomic.Bool
}

// ChainSelective returns a limiter that grants what all its members grant, in
// the way of [Chain]: each is asked in turn, everything is given back where one
// does not grant, and the members are not owned. It returns an error where
// there are no members or one is nil.
func ChainSelective[R any](members ...Selective[R]) (Selective[R], error) {
	if err := checkMembers(members); err != nil {
		return nil, err
	}
	return &selectiveChain[R]{members: append([]Selective[R](nil), members...)}, nil
}

func (c *selectiveChain[R]) TryAcquire(r R, n int) (Lease, error) {
	if err := c.check(context.Background(), n); err != nil {
		return Lease{}, err
	}
	return all(len(c.members), func(i int) (Lease, error) { return c.members[i].TryAcquire(r, n) })
}

func (c *selectiveChain[R]) Acquire(ctx context.Context, r R, n int) (Lease, error) {
	if err := c.check(ctx, n); err != nil {
		return Lease{}, err
	}
	return all(len(c.members), func(i int) (Lease, error) { return c.members[i].Acquire(ctx, r, n) })
}

func (c *selectiveChain[R]) check(ctx context.Context, n int) error {
	return checkCall(ctx, n, &c.closed)
}

// checkCall is what a limiter that does not know its limit checks first.
func checkCall(ctx context.Context, n int, closed *atomic.Bool) error {
	switch {
	case n < 0:
		return PermitError{Asked: n, Limit: math.MaxInt}
	case closed.Load():
		return ErrClosed
	}
	return ended(ctx)
}

func (c *selectiveChain[R]) Stats(r R) (Stats, error) {
	if c.closed.Load() {
		return Stats{}, ErrClosed
	}
	var err error
	s := combine(len(c.members), func(i int) Stats {
		s, e := c.members[i].Stats(r)
		if err == nil {
			err = e
		}
		return s
	})
	if err != nil {
		return Stats{}, err
	}
	return s, nil
}

func (c *selectiveChain[R]) Close() error {
	c.closed.Store(true)
	return nil
}

type translated[Outer, Inner any] struct {
	inner     Selective[Inner]
	translate func(Outer) Inner
	leaveOpen bool
	closed    atomic.Bool
}

// Translate returns a limiter of Outer that asks a limiter of Inner about
// f(outer). f is called once for each call and must be safe for concurrent use.
// Close closes inner too, unless it is to be left open; then only the returned
// limiter answers ErrClosed from there on. Translate panics where inner or f is
// nil.
func Translate[Outer, Inner any](inner Selective[Inner], f func(Outer) Inner, leaveOpen bool) Selective[Outer] {
	if inner == nil || f == nil {
		panic("limiter: Translate of nil")
	}
	return &translated[Outer, Inner]{inner: inner, translate: f, leaveOpen: leaveOpen}
}

func (t *translated[Outer, Inner]) TryAcquire(r Outer, n int) (Lease, error) {
	if err := checkCall(context.Background(), n, &t.closed); err != nil {
		return Lease{}, err
	}
	return t.inner.TryAcquire(t.translate(r), n)
}

func (t *translated[Outer, Inner]) Acquire(ctx context.Context, r Outer, n int) (Lease, error) {
	if err := checkCall(ctx, n, &t.closed); err != nil {
		return Lease{}, err
	}
	return t.inner.Acquire(ctx, t.translate(r), n)
}

func (t *translated[Outer, Inner]) Stats(r Outer) (Stats, error) {
	if t.closed.Load() {
		return Stats{}, ErrClosed
	}
	return t.inner.Stats(t.translate(r))
}

func (t *translated[Outer, Inner]) Close() error {
	if t.closed.Swap(true) || t.leaveOpen {
		return nil
	}
	return t.inner.Close()
}
