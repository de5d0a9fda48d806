package engine

import "github.com/seed-ee4278a0/throttled/shard"

// lockedBudget bounds the slots seen under one hold of a shard's lock when
// those who are locked out are only counted, some 10 µs.
const lockedBudget = 4096

// A Summary is the part of a Report that does not speak of single endpoints or
// policies, for whoever asks often: it costs a fraction of one.
type Summary struct {
	TrackedEndpoints     int   // (endpoint, policy) pairs
	PeakTrackedEndpoints int   // the most there have been at one time
	HardBlockedCount     int   // of them locked out now
	Lockouts             int64 // begun
	Evicted              int64 // places given to a newcomer in a full table
	RefillRatio          float64
}

// Summary returns the figures of a Report that are cheap to have.
func (e *Engine) Summary() Summary {
	stats := e.table.Stats()
	return Summary{
		HardBlockedCount: e.lockedOut(),
		Lockouts:         stats.Lockouts,
		Evicted:          stats.Evicted,
		RefillRatio:      e.RefillRatio(),

		TrackedEndpoints:     e.table.Len(),
		PeakTrackedEndpoints: e.table.Peak(),
	}
}

// RefillRatio returns what the load source said last: the part of the refill
// that tokens come back at, 0..1.
func (e *Engine) RefillRatio() float64 { return e.refill.load().ratio }

// lockedOut counts the tracked endpoints that are locked out.
func (e *Engine) lockedOut() (total int) {
	for i := range e.table.Shards() {
		for slot := 0; slot != shard.Done; {
			at, _ := e.now()
			var n int
			n, slot = e.table.Locked(i, slot, lockedBudget, at)
			total += n
		}
	}
	return total
}
