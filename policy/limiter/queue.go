package limiter

import "math"

// minWaiters is how many may wait whatever the Limit of the queue, so that
// probes, which weigh nothing, are bounded too.
const minWaiters = 1024

// maxSpare bounds the waiters that are kept for those to come. Where many wait
// steadily one comes for each that goes, so that few are spare at a time.
const maxSpare = 64

// A waiter is a call of Acquire in the queue. The core's mutex guards it until
// ready is signalled; from then on it belongs to the goroutine that waits.
type waiter struct {
	prev, next *waiter // in the queue; next also in a list of the settled
	n          int64
	deadline   int64 // MaxInt64 = none
	queued     bool
	granted    bool
	claim      claim
	denial     Lease
	ready      chan struct{} // holds one signal, so that giving it never blocks
	turn       int64         // scratch of windows.wait: the segment it will be granted in
}

// A queue is a list of waiters, oldest first.
type queue struct {
	first, last *waiter
	count       int
	permits     int64 // the sum of n
	heavy       int   // waiters with n > 1
	whole       int   // waiters with n = limit
	limit       int64 // the most that one may ask for

	spare  *waiter // linked by next
	spares int
}

// fits reports whether somebody who wants n permits may wait.
func (q *queue) fits(n int64, limit int) bool {
	return n <= int64(limit)-q.permits && q.count < max(limit, minWaiters)
}

func (q *queue) push(n, deadline int64) *waiter {
	w := q.spare
	if w == nil {
		w = &waiter{ready: make(chan struct{}, 1)}
	} else {
		q.spare = w.next
		q.spares--
	}
	*w = waiter{ready: w.ready, n: n, deadline: deadline, queued: true, prev: q.last}
	if q.last == nil {
		q.first = w
	} else {
		q.last.next = w
	}
	q.last = w
	q.weigh(w, 1)
	return w
}

// remove takes the waiter out. Whoever does is the one who counts it and says
// what becomes of it.
func (q *queue) remove(w *waiter) {
	if w.prev == nil {
		q.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next, w.queued = nil, nil, false
	q.weigh(w, -1)
}

func (q *queue) weigh(w *waiter, sign int) {
	q.count += sign
	q.permits += int64(sign) * w.n
	if w.n > 1 {
		q.heavy += sign
	}
	if w.n == q.limit {
		q.whole += sign
	}
}

// recycle keeps a waiter that nobody refers to any more.
func (q *queue) recycle(w *waiter) {
	if q.spares < maxSpare {
		w.denial = Lease{}
		w.next, q.spare = q.spare, w
		q.spares++
	}
}

// settled is a list of waiters that have left the queue, in the order in which
// they did. It is collected under the lock and woken after it.
type settled struct{ first, last *waiter }

func (s *settled) add(w *waiter) {
	if s.last == nil {
		s.first = w
	} else {
		s.last.next = w
	}
	s.last = w
}

// wake hands the waiters to their goroutines.
func (s settled) wake() {
	for w := s.first; w != nil; {
		next := w.next // a waiter that was woken may be in use again
		w.ready <- struct{}{}
		w = next
	}
}

// after is the time d after t, and stays at the end of time.
func after(t, d int64) int64 {
	if d > math.MaxInt64-t {
		return math.MaxInt64
	}
	return t + d
}
