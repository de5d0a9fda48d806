package shard

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// Locked sees as many slots as its budget allows, and counts whom Read shows to
// be locked out, until the lockout has ended.
func TestLocked(t *testing.T) {
	rule := compile(t, policy.Policy{
		Packets:    tokenbucket.Limit{Capacity: 1, RefillPerSecond: 1},
		Escalation: policy.Escalation{MaxSoftViolations: 1, Lockout: time.Minute},
	})
	table := newTable(Config{}, rule)
	for i := range 100 {
		for range 1 + i%2 { // every second one is denied once, and locked out
			decide(t, table, host(i), after(0))
		}
	}
	for i, step := range []struct {
		at                    time.Duration
		from, budget, n, next int
	}{
		{0, 0, 10, 5, 10},
		{0, 10, 90, 45, Done},
		{0, 0, 1000, 50, Done},
		{0, 100, 10, 0, Done},
		{time.Minute - 1, 0, 1000, 50, Done},
		{time.Minute, 0, 1000, 0, Done},
	} {
		n, next := table.Locked(0, step.from, step.budget, after(step.at))
		require.Equal(t, step.n, n, "step %d", i)
		require.Equal(t, step.next, next, "step %d", i)
	}
	n, next := newTable(Config{}, rule).Locked(0, 0, 10, after(0))
	assert.Zero(t, n)
	assert.Equal(t, Done, next, "an empty shard")
}
