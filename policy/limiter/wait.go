package limiter

import (
	"context"
	"math"
	"time"
)

// A lobby is where those wait whom a limiter cannot serve yet. The core's mutex
// guards it.
type lobby struct {
	queue
	rules Queue       // constant
	due   int64       // what the timer is set to, MaxInt64 = it does not run
	timer *time.Timer // runs only while somebody waits for time to pass
}

// next is the one to be served next.
func (l *lobby) next() *waiter {
	if l.rules.Order == NewestFirst {
		return l.last
	}
	return l.first
}

// waited reports whether somebody waits.
func (c *core) waited() bool { return c.lobby != nil && c.lobby.first != nil }

// enqueue lets somebody wait for n permits, or denies it. Under NewestFirst it
// makes room by evicting the oldest, where room can be made.
func (c *core) enqueue(now, n int64, woken *settled) (*waiter, Lease) {
	l := c.lobby
	if l == nil {
		return nil, c.deny(now, n, c.reason)
	}
	limit := l.rules.Limit
	if n > int64(limit) || l.rules.Order == OldestFirst && !l.fits(n, limit) {
		return nil, c.deny(now, n, queueReached)
	}
	for !l.fits(n, limit) {
		c.refuse(now, l.first, evicted, woken)
	}
	deadline := int64(math.MaxInt64)
	if l.rules.MaxWait > 0 {
		deadline = after(now, int64(l.rules.MaxWait))
	}
	w := l.push(n, deadline)
	c.arm(now)
	return w, Lease{}
}

// await waits until the waiter is settled or the context ends.
func (c *core) await(ctx context.Context, w *waiter) (Lease, error) {
	select {
	case <-w.ready:
	case <-ctx.Done():
		if c.abandon(w) {
			return Lease{}, ended(ctx)
		}
		<-w.ready // somebody has settled it and is about to say so
	}
	granted, got, refusal := w.granted, w.claim, w.denial
	c.mu.Lock()
	c.lobby.recycle(w)
	c.mu.Unlock()
	if !granted {
		return refusal, nil
	}
	return c.grant(got), nil
}

// abandon takes a waiter out of the queue, unless it has left it already. Those
// whom it stood in the way of may go then.
func (c *core) abandon(w *waiter) bool {
	now := c.now()
	c.mu.Lock()
	if !w.queued {
		c.mu.Unlock()
		return false
	}
	c.lobby.remove(w)
	c.lobby.recycle(w)
	woken := c.serve(now)
	c.mu.Unlock()
	woken.wake()
	return true
}

// settle serves the waiters whose time has come. Every call does so first, so
// that nobody gets what a waiter has a right to before the timer has run.
func (c *core) settle(now int64) settled {
	if !c.waited() {
		return settled{}
	}
	return c.serve(now)
}

func (c *core) serve(now int64) (woken settled) {
	l := c.lobby
	for w := l.next(); w != nil; w = l.next() {
		if c.serveOne(now, w) {
			woken.add(w)
			continue
		}
		if l.first.deadline > now { // all may wait equally long, so it is the oldest's that ends first
			break
		}
		c.refuse(now, l.first, waitedTooLong, &woken)
	}
	c.arm(now)
	return woken
}

func (c *core) serveOne(now int64, w *waiter) bool {
	if w.claim, w.granted = c.takeNow(now, w.n); w.granted {
		c.lobby.remove(w)
	}
	return w.granted
}

// turnOut denies everybody, since the limiter is closed.
func (c *core) turnOut(woken *settled) {
	for w := c.lobby.next(); w != nil; w = c.lobby.next() {
		c.refuse(0, w, limiterClosed, woken)
	}
	c.arm(0)
}

// refuse takes a waiter out of the queue and denies it.
func (c *core) refuse(now int64, w *waiter, r reason, woken *settled) {
	c.lobby.remove(w)
	w.denial = c.deny(now, w.n, r)
	woken.add(w)
}

// arm sets the timer to when a waiter may have to be settled, and stops it
// where time settles none.
func (c *core) arm(now int64) {
	l, due := c.lobby, c.nextDue(now)
	if due == l.due {
		return
	}
	l.due = due
	switch {
	case due == math.MaxInt64:
		l.timer.Stop()
	case l.timer == nil:
		l.timer = time.AfterFunc(c.until(due), c.tick)
	default:
		l.timer.Reset(c.until(due))
	}
}

func (c *core) until(t int64) time.Duration { return time.Duration(max(1, t-c.now())) }

func (c *core) nextDue(now int64) int64 {
	next := c.lobby.next()
	if next == nil {
		return math.MaxInt64
	}
	due := c.lobby.first.deadline
	if c.manual {
		return due
	}
	if wait, ok := c.alg.wait(now, nil, max(next.n, 1)); ok {
		due = min(due, after(now, wait))
	}
	return due
}

// tick is what the timer calls.
func (c *core) tick() {
	now := c.now()
	c.mu.Lock()
	if c.lobby.due <= now { // else it was set anew while this call was on its way
		c.lobby.due = math.MaxInt64
	}
	woken := c.settle(now)
	c.mu.Unlock()
	woken.wake()
}
