package policy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// An endpoint is what a table keeps for one endpoint and one rule.
type endpoint struct {
	rule    *Rule
	state   State
	history History
}

func newEndpoint(t testing.TB, p Policy) *endpoint {
	t.Helper()
	rule, err := p.Compile()
	require.NoError(t, err)
	return &endpoint{rule, rule.New(Instant{}), rule.NewHistory(Instant{})}
}

// at is a moment at which both clocks show the same.
func at(d time.Duration) Instant { return Instant{Now: int64(d), Refill: int64(d)} }

// send decides on one packet of so many bytes.
func (e *endpoint) send(now Instant, bytes int64) Decision {
	d := e.rule.Take(&e.state, &e.history, now, bytes)
	if d.Reason == SoftThrottle {
		d = e.rule.Escalate(&e.state, &e.history, now, d)
	}
	return d
}

// A tally counts decisions.
type tally struct{ allowed, soft, locked int }

// burst sends n empty packets at once.
func (e *endpoint) burst(now Instant, n int) (got tally) {
	for range n {
		switch d := e.send(now, 0); d.Reason {
		case None:
			got.allowed++
		case SoftThrottle:
			got.soft++
		case HardLockout:
			got.locked++
		}
	}
	return got
}

func (e *endpoint) forgetIn(now Instant) time.Duration {
	return e.rule.ForgetIn(&e.state, &e.history, now)
}

// A step sends n packets at a time.
type step struct {
	at   time.Duration
	n    int
	want tally
}

func (e *endpoint) run(t *testing.T, steps []step) {
	t.Helper()
	for i, step := range steps {
		assert.Equal(t, step.want, e.burst(at(step.at), step.n), "step %d, at %v", i, step.at)
	}
}

// denied is a budget that gives nothing for eleven days.
var denied = tokenbucket.Limit{Capacity: 1, RefillPerSecond: tokenbucket.MinRefillPerSecond, Initial: tokenbucket.Empty}
