package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// lockouts makes the endpoint be locked out again and again, the next packet
// coming a pause after the end of each, and returns their lengths.
func lockouts(t *testing.T, e *engine.Engine, n int, pause time.Duration) (lengths []time.Duration) {
	t.Helper()
	for range n {
		d := e.Evaluate(client)
		for d.Allowed {
			d = e.Evaluate(client)
		}
		require.Equal(t, policy.HardLockout, d.Reason)
		lengths = append(lengths, d.RetryAfter)
		time.Sleep(d.RetryAfter + pause)
	}
	return lengths
}

// Each lockout in a row is longer, up to the cap, until the endpoint has been
// quiet for long enough. 41, C41
func TestLockoutsGrow(t *testing.T) {
	const m = time.Minute
	p := rate(1, 1)
	p.Escalation = policy.Escalation{
		MaxSoftViolations: 1, Lockout: m, Growth: 3, MaxLockout: 20 * m, ForgetAfter: 10 * m,
	}
	for _, c := range []struct {
		name  string
		pause time.Duration
		want  []time.Duration
	}{
		{"in a row", 0, []time.Duration{m, 3 * m, 9 * m, 20 * m, 20 * m}},
		{"just remembered", 10*m - 1, []time.Duration{m, 3 * m, 9 * m, 20 * m, 20 * m}},
		{"forgotten", 10 * m, []time.Duration{m, m, m}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// The janitor looks often, and takes nobody away who is remembered.
				e := newEngine(t, engine.Config{Default: p, Shards: 1, StaleAfter: time.Second, CleanupInterval: time.Second})
				require.Equal(t, c.want, lockouts(t, e, len(c.want), c.pause))
			})
		})
	}
}

// Two hundred lockouts in a row end at the cap. C41
func TestLockoutsDoNotOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := rate(1, 1)
		p.Escalation = policy.Escalation{MaxSoftViolations: 1, Growth: policy.MaxGrowth, ForgetAfter: 1 << 62}
		e := newEngine(t, engine.Config{Default: p, Shards: 1})
		lengths := lockouts(t, e, 200, 0)
		require.Equal(t, 30*time.Second, lengths[0])
		for _, length := range lengths[1:] {
			require.Equal(t, time.Hour, length)
		}
	})
}

// A steady overload of five times the rate is locked out, though a fifth of it
// passes: a success does not clear the count, unless one wants it.
func TestOverloadLocks(t *testing.T) {
	for _, reset := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			e := newEngine(t, engine.Config{Default: policy.Policy{
				Packets:    tokenbucket.Limit{Capacity: 10, RefillPerSecond: 10},
				Escalation: policy.Escalation{ResetOnSuccess: reset},
			}})
			for range 500 { // 10 s at 50/s
				e.Evaluate(client)
				time.Sleep(20 * time.Millisecond)
			}
			r := e.Report()
			if reset {
				require.Zero(t, r.Lockouts, "four denials between two successes")
				require.InDelta(t, 110, r.Allowed, 2)
			} else {
				require.EqualValues(t, 1, r.Lockouts)
				require.Less(t, r.Allowed, int64(20))
			}
		})
	}
}

// What is sent during a lockout gets the time that is left, and neither
// prolongs it nor counts towards the next. C48, 31
func TestHitsDuringALockout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := rate(2, 1)
		p.Escalation = policy.Escalation{MaxSoftViolations: 3, Lockout: 10 * time.Second, Growth: 2}
		e := newEngine(t, engine.Config{Default: p})
		for range 5 {
			e.Evaluate(client)
		}
		for left := 10 * time.Second; left > 0; left -= 10 * time.Millisecond {
			require.Equal(t, policy.Decision{Reason: policy.HardLockout, RetryAfter: left}, e.Evaluate(client))
			time.Sleep(10 * time.Millisecond)
		}
		require.Equal(t, policy.Decision{Allowed: true, Credit: 1}, e.Evaluate(client), "refilled meanwhile")
		require.True(t, e.Evaluate(client).Allowed)
		require.Equal(t, policy.SoftThrottle, e.Evaluate(client).Reason, "the count begins anew")
		require.Equal(t, policy.SoftThrottle, e.Evaluate(client).Reason)
		require.Equal(t, 20*time.Second, e.Evaluate(client).RetryAfter)
		row, _ := e.Lookup(client)
		require.EqualValues(t, 3+1000+3, row.Denied)
	})
}

// C47: a few retries are throttled softly and no more; a lockout takes as many
// within the window as the policy says.
func TestRetriesDoNotLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := rate(1, 1e-3)
		p.Escalation = policy.Escalation{MaxSoftViolations: 4, Window: 30 * time.Second}
		e := newEngine(t, engine.Config{Default: p})
		e.Evaluate(client)
		for range 20 { // three in each window, the fourth at its end
			for range 3 {
				require.Equal(t, policy.SoftThrottle, e.Evaluate(client).Reason)
				time.Sleep(10 * time.Second)
			}
		}
	})
}

// A stale time shorter than the lockout does not forget it. 41
func TestLockoutOutlivesStaleAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := rate(1, 1000)
		p.Escalation = policy.Escalation{MaxSoftViolations: 1, Lockout: time.Hour}
		e := newEngine(t, engine.Config{Default: p, Shards: 1, StaleAfter: time.Millisecond, CleanupInterval: time.Second})
		e.Evaluate(client)
		e.Evaluate(client)
		time.Sleep(time.Hour - 1)
		require.Equal(t, policy.Decision{Reason: policy.HardLockout, RetryAfter: 1}, e.Evaluate(client))
		time.Sleep(time.Nanosecond)
		require.True(t, e.Evaluate(client).Allowed)
		time.Sleep(2 * time.Second)
		require.Zero(t, e.Report().TrackedEndpoints)
	})
}

// What can never pass says so, costs nothing and counts as a violation. 22, C53
func TestTooLargePackets(t *testing.T) {
	p := rate(10, 1)
	p.Bytes = &tokenbucket.Limit{Capacity: 8000, RefillPerSecond: 1000}
	p.Escalation = policy.Escalation{MaxSoftViolations: 3, Lockout: time.Minute}
	e := newEngine(t, engine.Config{Default: p})
	out := make([]policy.Decision, 4)
	jumbo := engine.Request{Endpoint: client, Bytes: 9000}
	e.EvaluateBatch([]engine.Request{{Endpoint: client, Bytes: 8000}, jumbo, jumbo, jumbo}, out)
	never := policy.Decision{Reason: policy.SoftThrottle, RetryAfter: policy.Never, Credit: 9}
	require.Equal(t, []policy.Decision{
		{Allowed: true, Credit: 9}, never, never, {Reason: policy.HardLockout, RetryAfter: time.Minute},
	}, out)
}
