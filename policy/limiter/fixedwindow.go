package limiter

import "time"

// A FixedWindow is a limiter that grants up to PermitLimit permits in each
// Window. Windows follow each other without a gap from when it was made.
//
// Two full windows may meet, so that twice the limit is granted within any time
// however short around the boundary. Where that matters use a [SlidingWindow]
// or a [TokenBucket].
//
// Use NewFixedWindow; the zero value is of no use.
type FixedWindow struct {
	timed
	windows windows
	taken   [1]int64
}

// FixedWindowOptions configure a [FixedWindow]. PermitLimit and Window must be
// set.
type FixedWindowOptions struct {
	// PermitLimit is the number of permits for each window; 1 or more.
	PermitLimit int
	// Window is 1 ns or longer.
	Window time.Duration
	// Queue says who may wait; the zero value lets nobody.
	Queue Queue
	// Manual lets permits come only with Replenish: those of windows that
	// have ended by then. The windows keep their boundaries.
	Manual bool
}

// NewFixedWindow returns a limiter at the start of a window, or an error that
// names every option that is out of its range.
func NewFixedWindow(o FixedWindowOptions) (*FixedWindow, error) {
	var p problems
	p.positive("PermitLimit", o.PermitLimit)
	p.duration("Window", o.Window)
	p.queue(o.Queue)
	if err := p.err(); err != nil {
		return nil, err
	}
	f := new(FixedWindow)
	f.windows = windows{
		limit:   int64(o.PermitLimit),
		segment: int64(o.Window),
		manual:  o.Manual,
		taken:   f.taken[:],
		end:     int64(o.Window),
		free:    int64(o.PermitLimit),
	}
	f.period = o.Window
	f.init(&f.windows, o.PermitLimit, o.Queue, o.Manual, rateReached)
	return f, nil
}
