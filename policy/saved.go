package policy

import (
	"time"

	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// Saved is the state of an endpoint free of clocks and of the units of a rule:
// what a snapshot holds, and what moves from a rule to its successor.
// Durations run from the moment it was saved, back or forward.
type Saved struct {
	Packets    tokenbucket.Level
	Bytes      tokenbucket.Level // meaningful where HasBytes
	HasBytes   bool
	LockedFor  time.Duration // to the end of the last lockout; negative: that long ago
	Window     time.Duration // since the window was opened
	Counted    time.Duration // since the last denial that counted
	Violations uint32
	Lockouts   uint32
	Denied     uint64
}

// Save returns the state as it is at the instant. h may be nil.
func (r *Rule) Save(s *State, h *History, at Instant) Saved {
	saved := Saved{
		Packets:   r.packets.Level(s.Packets, at.Refill),
		LockedFor: time.Duration(s.LockedUntil - at.Now),
		Denied:    s.Denied,
	}
	if h == nil {
		return saved
	}
	if r.hasBytes {
		saved.Bytes, saved.HasBytes = r.bytes.Level(h.Bytes, at.Refill), true
	}
	saved.Window = time.Duration(at.Now - h.windowStart)
	saved.Counted = time.Duration(at.Now - h.lastCounted)
	saved.Violations, saved.Lockouts = h.violations, h.lockouts
	return saved
}

// maxAge, 36 years, is as long ago as anything counts, so that no sum with it
// overflows.
const maxAge time.Duration = 1 << 60

// Restore returns a state that was saved some time ago, as it is at the
// instant: the buckets have refilled since, lockouts and windows have run on.
// A negative time, of a clock that went back meanwhile, counts as none.
// A byte budget that the saved state did not have starts at its Initial.
func (r *Rule) Restore(saved Saved, at Instant, ago time.Duration) (State, History) {
	ago = min(max(0, ago), maxAge)
	s := State{
		Packets:     r.packets.At(saved.Packets, at.Refill, ago),
		LockedUntil: later(at.Now, max(saved.LockedFor, -maxAge)-ago),
		Denied:      saved.Denied,
	}
	h := r.NewHistory(at)
	if r.hasBytes && saved.HasBytes {
		h.Bytes = r.bytes.At(saved.Bytes, at.Refill, ago)
	}
	h.windowStart = at.Now - int64(min(saved.Window, maxAge)+ago)
	h.lastCounted = at.Now - int64(min(saved.Counted, maxAge)+ago)
	h.violations, h.lockouts = saved.Violations, saved.Lockouts
	return s, h
}

// NeedsHistory reports whether the state cannot do without a History.
func (s Saved) NeedsHistory() bool {
	return s.HasBytes || s.Violations > 0 || s.Lockouts > 0
}
