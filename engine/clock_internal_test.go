package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// A wall clock that is set while the engine runs, back or forward, has no part
// in what it decides. 25
func TestWallClockIsSet(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		e := start(t, policy.Policy{
			Packets:    tokenbucket.Limit{Capacity: 1, RefillPerSecond: 1e-3},
			Escalation: policy.Escalation{MaxSoftViolations: 2, Lockout: 10 * time.Minute},
		})
		require.NoError(t, e.Close()) // ends the goroutine that reads base
		e.closed.Store(false)
		require.True(t, e.Evaluate(somebody).Allowed)
		e.base = wallAhead(e.base, step)
		soft, hard := e.Evaluate(somebody), e.Evaluate(somebody)
		require.Equal(t, policy.SoftThrottle, soft.Reason)
		require.InDelta(t, 1000*time.Second, soft.RetryAfter, float64(time.Minute))
		require.Equal(t, policy.Decision{Reason: policy.HardLockout, RetryAfter: 10 * time.Minute}, hard)
		e.base = wallAhead(e.base, -2*step)
		require.InDelta(t, 10*time.Minute, e.Evaluate(somebody).RetryAfter, float64(time.Minute))
		e.closed.Store(true)
	}
}
