package limiter

import (
	"context"
	"math"
	"time"
)

// enqueue lets somebody wait for n permits, or denies it. Under NewestFirst it
// makes room by evicting the oldest, where room can be made.
func (c *core) enqueue(now, n int64, woken *settled) (*waiter, Lease) {
	q, limit := &c.queue, c.rules.Limit
	if limit == 0 {
		return nil, c.deny(now, n, c.reason)
	}
	if n > int64(limit) || c.rules.Order == OldestFirst && !q.fits(n, limit) {
		return nil, c.deny(now, n, queueReached)
	}
	for !q.fits(n, limit) {
		c.refuse(now, q.first, evicted, woken)
	}
	deadline := int64(math.MaxInt64)
	if c.rules.MaxWait > 0 {
		deadline = after(now, int64(c.rules.MaxWait))
	}
	w := q.push(n, deadline)
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
	c.queue.recycle(w)
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
	c.queue.remove(w)
	c.queue.recycle(w)
	woken := c.serve(now)
	c.mu.Unlock()
	woken.wake()
	return true
}

// settle serves the waiters whose time has come. Every call does so first, so
// that nobody gets what a waiter has a right to before the timer has run.
func (c *core) settle(now int64) settled {
	if c.queue.first == nil {
		return settled{}
	}
	return c.serve(now)
}

func (c *core) serve(now int64) (woken settled) {
	q := &c.queue
	for w := q.next(c.rules.Order); w != nil; w = q.next(c.rules.Order) {
		if c.serveOne(now, w) {
			woken.add(w)
			continue
		}
		if q.first.deadline > now { // all may wait equally long, so it is the oldest's that ends first
			break
		}
		c.refuse(now, q.first, waitedTooLong, &woken)
	}
	c.arm(now)
	return woken
}

func (c *core) serveOne(now int64, w *waiter) bool {
	if w.claim, w.granted = c.takeNow(now, w.n); w.granted {
		c.queue.remove(w)
	}
	return w.granted
}

// refuse takes a waiter out of the queue and denies it.
func (c *core) refuse(now int64, w *waiter, r reason, woken *settled) {
	c.queue.remove(w)
	w.denial = c.deny(now, w.n, r)
	woken.add(w)
}

// arm sets the timer to when a waiter may have to be settled, and stops it
// where time settles none.
func (c *core) arm(now int64) {
	due := c.nextDue(now)
	if due == c.due {
		return
	}
	c.due = due
	switch {
	case due == math.MaxInt64:
		c.timer.Stop()
	case c.timer == nil:
		c.timer = time.AfterFunc(c.until(due), c.tick)
	default:
		c.timer.Reset(c.until(due))
	}
}

func (c *core) until(t int64) time.Duration { return time.Duration(max(1, t-c.now())) }

func (c *core) nextDue(now int64) int64 {
	if c.queue.first == nil {
		return math.MaxInt64
	}
	due := c.queue.first.deadline
	if c.manual {
		return due
	}
	next := c.queue.next(c.rules.Order)
	if wait, ok := c.alg.wait(now, nil, max(next.n, 1)); ok {
		due = min(due, after(now, wait))
	}
	return due
}

// tick is what the timer calls.
func (c *core) tick() {
	now := c.now()
	c.mu.Lock()
	if c.due <= now { // else it was set anew while this call was on its way
		c.due = math.MaxInt64
	}
	woken := c.settle(now)
	c.mu.Unlock()
	woken.wake()
}
