package limiter

import (
	"context"
	"math"
	"sync"
	"time"
)

// An algorithm knows how many permits there are. The core calls it under its
// mutex. Times are nanoseconds since the core was made; now may be a little
// before that of an earlier call, which then neither adds nor takes anything.
type algorithm interface {
	// available is the number of whole permits at hand.
	available(now int64) int64
	// take takes n > 0 permits if they are at hand.
	take(now, n int64) (claim, bool)
	// giveBack undoes a take, but for what time has brought back already.
	giveBack(now int64, c claim)
	// wait is how long it takes until n > 0 permits are at hand for one who
	// comes after those in the queue, which is nil where there are none. It
	// saturates. It is false where time brings nothing.
	wait(now int64, ahead *queue, n int64) (int64, bool)
	// idle is since when no permit has been out, false while one is.
	idle(now int64) (since int64, ok bool)
	// replenish brings what is due to a manual limiter.
	replenish(now int64)
}

// A claim is what an algorithm has to know to take permits back: their number
// and when they were taken, or what else it finds them by. n is not 0 but for a
// probe.
type claim struct{ n, stamp int64 }

// A core is all of a limiter but its algorithm: the lock, the queue, the
// statistics, the clock and the end. Every limiter of this package that counts
// permits is one. It is small and lies beside its algorithm, since in a table
// of many keys each is far away, see BenchmarkPartitioned.
type core struct {
	base   time.Time
	alg    algorithm
	limit  int64
	reason reason // for the want of permits
	manual bool
	source source
	lobby  *lobby // nil where nobody may wait

	mu                 sync.Mutex // guards what follows, the algorithm and the lobby
	successful, failed int64
	closed             bool
}

func (c *core) init(alg algorithm, limit int, q Queue, manual bool, r reason) {
	c.base, c.alg, c.limit = time.Now(), alg, int64(limit)
	c.manual, c.reason = manual, r
	if q.Limit > 0 {
		c.lobby = &lobby{queue: queue{limit: c.limit}, rules: q, due: math.MaxInt64}
	}
	c.source = source{(*spent)(c)}
	if r == concurrencyReached {
		c.source = source{(*held)(c)}
	}
}

func (c *core) now() int64 { return int64(time.Since(c.base)) }

// arrival is the now of a call. A concurrency limiter that nobody leaves
// because of the time does without: the clock would cost more than the rest,
// see BenchmarkTryAcquire.
func (c *core) arrival() int64 {
	if c.reason == concurrencyReached && (c.lobby == nil || c.lobby.rules.MaxWait == 0) {
		return 0
	}
	return c.now()
}

// permitLimit is the most that one call may ask for.
func (c *core) permitLimit() int { return int(c.limit) }

func (c *core) check(n int) error {
	if n < 0 || int64(n) > c.limit {
		return PermitError{Asked: n, Limit: int(c.limit)}
	}
	return nil
}

// TryAcquire takes n permits if they are there; see [Limiter].
func (c *core) TryAcquire(n int) (Lease, error) {
	if err := c.check(n); err != nil {
		return Lease{}, err
	}
	now := c.arrival()
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return Lease{}, ErrClosed
	}
	woken := c.settle(now)
	if claim, ok := c.take(now, int64(n)); ok {
		c.mu.Unlock()
		woken.wake()
		return c.grant(claim), nil
	}
	lease := c.deny(now, int64(n), c.reason)
	c.mu.Unlock()
	woken.wake()
	return lease, nil
}

// Acquire takes n permits and waits for them in the queue; see [Limiter].
func (c *core) Acquire(ctx context.Context, n int) (Lease, error) {
	if err := c.check(n); err != nil {
		return Lease{}, err
	}
	end := ended(ctx)
	now := c.arrival()
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return Lease{}, ErrClosed
	}
	if end != nil {
		c.mu.Unlock()
		return Lease{}, end
	}
	woken := c.settle(now)
	if claim, ok := c.take(now, int64(n)); ok {
		c.mu.Unlock()
		woken.wake()
		return c.grant(claim), nil
	}
	w, lease := c.enqueue(now, int64(n), &woken)
	c.mu.Unlock()
	woken.wake()
	if w == nil {
		return lease, nil
	}
	return c.await(ctx, w)
}

// Stats returns what the limiter has and has done; see [Limiter].
func (c *core) Stats() Stats {
	now := c.now()
	c.mu.Lock()
	woken := c.settle(now)
	s := Stats{Successful: c.successful, Failed: c.failed}
	if c.lobby != nil {
		s.Queued = c.lobby.permits
	}
	if !c.closed {
		s.Available = c.alg.available(now)
	}
	c.mu.Unlock()
	woken.wake()
	return s
}

// Idle returns how long nothing has been out; see [Limiter]. Who waits does so
// because something is.
func (c *core) Idle() (time.Duration, bool) {
	now := c.now()
	c.mu.Lock()
	woken := c.settle(now)
	since, ok := c.alg.idle(now)
	closed := c.closed
	c.mu.Unlock()
	woken.wake()
	switch {
	case closed:
		return Never, true
	case !ok:
		return 0, false
	}
	return time.Duration(max(0, now-since)), true
}

// Close denies everybody who waits; see [Limiter].
func (c *core) Close() error {
	c.mu.Lock()
	c.closed = true
	var woken settled
	if c.lobby != nil {
		c.turnOut(&woken)
	}
	c.mu.Unlock()
	woken.wake()
	return nil
}

// take takes n permits for somebody who comes now. The waiters that could be
// served have been.
func (c *core) take(now, n int64) (claim, bool) {
	if c.waited() && c.lobby.rules.Order == OldestFirst {
		return claim{}, false
	}
	return c.takeNow(now, n)
}

func (c *core) takeNow(now, n int64) (got claim, ok bool) {
	if n == 0 {
		ok = c.alg.available(now) > 0
	} else {
		got, ok = c.alg.take(now, n)
	}
	if ok {
		c.successful++
	}
	return got, ok
}

// grant makes the lease of permits that were taken.
func (c *core) grant(got claim) Lease {
	if got.n == 0 { // a probe
		return Lease{state: acquired}
	}
	return Lease{from: &c.source, claim: got, state: acquired}
}

// deny counts a denial and makes its lease.
func (c *core) deny(now, n int64, r reason) Lease {
	c.failed++
	if r == limiterClosed {
		return denial(r, 0, false)
	}
	var ahead *queue
	if c.waited() && c.lobby.rules.Order == OldestFirst {
		ahead = &c.lobby.queue
	}
	wait, known := c.alg.wait(now, ahead, max(n, 1))
	return denial(r, wait, known)
}

// giveBack takes permits back, unless the limiter is closed.
func (c *core) giveBack(got claim) {
	now := c.arrival()
	c.mu.Lock()
	var woken settled
	if !c.closed {
		c.alg.giveBack(now, got)
		woken = c.settle(now)
	}
	c.mu.Unlock()
	woken.wake()
}

// replenish is Replenisher.Replenish.
func (c *core) replenish() bool {
	if !c.manual {
		return false
	}
	now := c.now()
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return false
	}
	c.alg.replenish(now)
	woken := c.settle(now)
	c.mu.Unlock()
	woken.wake()
	return true
}
