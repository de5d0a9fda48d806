package limiter

import (
	"math"
	"math/bits"
)

// windows is the algorithm of fixed and sliding windows: a window that is a
// ring of segments. A permit comes back when the segment that it was taken in
// leaves the window; a fixed window has one segment. Segments begin at
// multiples of their length since the limiter was made, however late anybody
// looks.
type windows struct {
	limit   int64
	segment int64 // nanoseconds
	manual  bool

	taken   []int64 // in each segment of the window, as a ring
	current int64   // the number of the segment that lasts
	place   int     // of that one in the ring
	end     int64   // when it ends
	oldest  int64   // in no earlier segment is anything taken
	free    int64
	left    int64 // manual: has left the window and waits for Replenish
	brought int64 // manual: the segment that lasted at the last Replenish
	emptied int64 // when free reached the limit
}

// advance lets the segments go that have left the window by now. It looks at
// each at most once, however long nobody came.
func (w *windows) advance(now int64) {
	if now < w.end {
		return
	}
	number, length := now/w.segment, int64(len(w.taken))
	for gone := w.first(); gone <= min(number-length, w.current); gone++ {
		if w.free+w.left == w.limit {
			break // nothing in the window
		}
		slot := w.slot(gone)
		n := *slot
		*slot = 0
		if w.manual {
			w.left += n
		} else {
			w.bring(n, (gone+length)*w.segment)
		}
	}
	w.place = int((int64(w.place) + number - w.current) % length)
	w.current, w.end = number, after(number*w.segment, w.segment)
}

// first is the first segment of the window in which something is taken, or the
// one that lasts. It looks at each once, and so a denial at few, see
// BenchmarkTryAcquire.
func (w *windows) first() int64 {
	w.oldest = max(w.oldest, w.current-int64(len(w.taken))+1)
	for w.oldest < w.current && *w.slot(w.oldest) == 0 {
		w.oldest++
	}
	return w.oldest
}

func (w *windows) bring(n, at int64) {
	w.free += n
	if n > 0 && w.free == w.limit {
		w.emptied = at
	}
}

// slot is what was taken in the segment of the given number, which is in the
// window.
func (w *windows) slot(number int64) *int64 {
	i := w.place - int(w.current-number)
	if i < 0 {
		i += len(w.taken)
	}
	return &w.taken[i]
}

func (w *windows) available(now int64) int64 {
	w.advance(now)
	return w.free
}

func (w *windows) take(now, n int64) (claim, bool) {
	w.advance(now)
	if w.free < n {
		return claim{}, false
	}
	w.free -= n
	*w.slot(w.current) += n
	return claim{n, w.current}, true
}

func (w *windows) giveBack(now int64, c claim) {
	w.advance(now)
	length := int64(len(w.taken))
	switch {
	case w.current-c.stamp < length:
		*w.slot(c.stamp) -= c.n
	case w.manual && w.brought-c.stamp < length:
		w.left -= c.n
	default:
		return // they have come back already
	}
	w.bring(c.n, now)
}

func (w *windows) replenish(now int64) {
	w.advance(now)
	n := w.left
	w.left, w.brought = 0, w.current
	w.bring(n, now)
}

// idle is exact for a segment that ends; permits that were given back count
// from then.
func (w *windows) idle(now int64) (int64, bool) {
	w.advance(now)
	return w.emptied, w.free == w.limit
}

// wait plays forward what will leave the window and who will take it. Where
// all who wait want one permit they take whatever leaves at once, so that it
// leaves again one window later, and whole windows can be skipped.
func (w *windows) wait(now int64, ahead *queue, n int64) (int64, bool) {
	w.advance(now)
	f := forecast{windows: w, have: w.free + w.left, at: w.current, next: w.first()}
	skipped := int64(0)
	switch {
	case ahead == nil:
	case ahead.heavy > 0:
		f.serve(ahead.first)
	default:
		n, skipped = w.skip(ahead.permits, n)
	}
	f.until(n)
	return w.begins(after(f.at, times(skipped, int64(len(w.taken)))), now), true
}

// skip turns the want of n permits behind others of one each into that of the
// last ones of a window, after whole windows.
func (w *windows) skip(ahead, n int64) (rest, skipped int64) {
	total := uint64(ahead) + uint64(n)
	whole := (total - 1) / uint64(w.limit)
	return int64(total - whole*uint64(w.limit)), int64(whole)
}

// begins is how long it is until the segment of the given number begins.
func (w *windows) begins(number, now int64) int64 {
	if number <= w.current {
		return 0
	}
	begin := times(number, w.segment)
	if begin == math.MaxInt64 {
		return math.MaxInt64
	}
	return begin - now
}

// times is a*b, and the largest int64 where that is more; both are >= 0.
func times(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi > 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}

// A forecast is the window at the beginning of a later segment.
type forecast struct {
	*windows
	have int64
	at   int64 // the number of the segment
	next int64 // the segment of today's window that leaves next
	back *waiter
}

// serve lets those in the queue take theirs, each as soon as it can.
func (f *forecast) serve(first *waiter) {
	f.back = first
	for w := first; w != nil; w = w.next {
		f.until(max(w.n, 1))
		f.have -= w.n
		w.turn = f.at
	}
}

// until goes to the segment at whose beginning n permits are there.
func (f *forecast) until(n int64) {
	length := int64(len(f.taken))
	for f.have < n {
		if f.next <= f.current { // what has been taken by now leaves first
			if gone := *f.slot(f.next); gone > 0 {
				f.have += gone
				f.at = f.next + length
			}
			f.next++
			continue
		}
		f.have += f.back.n // then what those in the queue will have taken
		f.at = max(f.at, f.back.turn+length)
		f.back = f.back.next
	}
}
