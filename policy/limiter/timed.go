package limiter

import "time"

// timed is a core whose permits come back with time.
type timed struct {
	core
	period time.Duration
}

// Replenish brings the permits that are due to a manual limiter; see
// [Replenisher].
func (t *timed) Replenish() bool { return t.replenish() }

// Auto reports whether permits come back without Replenish.
func (t *timed) Auto() bool { return !t.manual }

// Period is the time between two instalments; see [Replenisher].
func (t *timed) Period() time.Duration { return t.period }
