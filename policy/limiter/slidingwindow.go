package limiter

import "time"

// MaxSegments is the largest [SlidingWindowOptions.Segments].
const MaxSegments = 1 << 20

// A SlidingWindow is a limiter that grants up to PermitLimit permits in each
// Window, which moves on by a segment at a time.
//
// A permit comes back when the segment that it was taken in leaves the window,
// so a full window's length after that segment began. The bound is therefore
// PermitLimit for any time of Window less one segment: with 10 permits for 10 s
// in 5 segments, 20 may be granted within 8.01 s, and never more within 8 s.
// More segments bring it closer to the window and cost 8 bytes each.
//
// Use NewSlidingWindow; the zero value is of no use.
type SlidingWindow struct {
	timed
	windows windows
}

// SlidingWindowOptions configure a [SlidingWindow]. All but Queue and Manual
// must be set.
type SlidingWindowOptions struct {
	// PermitLimit is the number of permits for a window; 1 or more.
	PermitLimit int
	// Window is 1 ns or longer.
	Window time.Duration
	// Segments is the number of parts of the window, 1..MaxSegments and at
	// most one for each nanosecond. One lasts Window/Segments, rounded down
	// to the nanosecond, and the window as long as all of them: 3 segments of
	// 10 s are 9.999999999 s.
	Segments int
	// Queue says who may wait; the zero value lets nobody.
	Queue Queue
	// Manual lets permits come only with Replenish: those of segments that
	// have left the window by then. The segments keep their boundaries.
	Manual bool
}

// NewSlidingWindow returns a limiter with an empty window, or an error that
// names every option that is out of its range.
func NewSlidingWindow(o SlidingWindowOptions) (*SlidingWindow, error) {
	var p problems
	p.positive("PermitLimit", o.PermitLimit)
	p.duration("Window", o.Window)
	p.check(o.Segments > 0 && o.Segments <= MaxSegments, "Segments: %d is outside 1..%d", o.Segments, MaxSegments)
	p.check(o.Window <= 0 || time.Duration(o.Segments) <= o.Window, "Segments: %d is more than one for each nanosecond of %v", o.Segments, o.Window)
	p.queue(o.Queue)
	if err := p.err(); err != nil {
		return nil, err
	}
	segment := o.Window / time.Duration(o.Segments)
	s := &SlidingWindow{windows: windows{
		limit:   int64(o.PermitLimit),
		segment: int64(segment),
		manual:  o.Manual,
		taken:   make([]int64, o.Segments),
		end:     int64(segment),
		free:    int64(o.PermitLimit),
	}}
	s.period = segment
	s.init(&s.windows, o.PermitLimit, o.Queue, o.Manual, rateReached)
	return s, nil
}
