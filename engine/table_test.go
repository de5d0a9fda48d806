package engine_test

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
)

// Two million sources that never come back stay within the cap, cost no more
// memory once it is reached, and take nothing from a locked endpoint and a
// drained one. C15, C16, C17, 45
func TestTableCap(t *testing.T) {
	const limit = 100_000
	sources := 2_000_000
	if underRace {
		sources = 400_000
	}
	p := rate(2, 1e-6)
	p.Escalation = policy.Escalation{MaxSoftViolations: 2, Lockout: time.Hour}
	e := newEngine(t, engine.Config{Default: p, MaxTrackedEndpoints: limit})
	lockedEP, drainedEP := addr("192.0.2.1"), addr("192.0.2.2")
	for range 4 {
		e.Evaluate(lockedEP)
	}
	for range 2 {
		e.Evaluate(drainedEP)
	}
	reqs, out := make([]engine.Request, 1000), make([]policy.Decision, 1000)
	flood := func(from, to int) {
		for ; from < to; from += len(reqs) {
			for i := range reqs {
				reqs[i].Endpoint = addressOf(from + i)
			}
			e.EvaluateBatch(reqs, out)
		}
	}
	flood(0, 2*limit)
	before := fromSystem()
	flood(2*limit, sources)
	require.Less(t, fromSystem(), before+4<<20)
	r := e.Report()
	require.Equal(t, limit, r.TrackedEndpoints)
	require.Equal(t, limit, r.PeakTrackedEndpoints)
	require.EqualValues(t, sources+2-limit, r.Overflowed)
	require.Zero(t, r.Evicted, "all of them lack a token")
	require.Equal(t, policy.HardLockout, e.Evaluate(lockedEP).Reason)
	require.Equal(t, policy.SoftThrottle, e.Evaluate(drainedEP).Reason)
}

// fromSystem is the memory that the process has got from the system.
func fromSystem() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Sys
}

// C18: the newcomer takes the place of one that has nothing to be remembered
// by; where there is none it shares the overflow bucket, which never locks out.
func TestTableFullEvictIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := rate(4, 1)
		p.Escalation = policy.Escalation{MaxSoftViolations: 1, Lockout: time.Minute}
		e := newEngine(t, engine.Config{Default: p, MaxTrackedEndpoints: 3, Shards: 1})
		for i := range 3 {
			e.Evaluate(addressOf(i))
		}
		for i := range 4 {
			require.True(t, e.Evaluate(addressOf(10+i)).Allowed, "the overflow has the capacity of the policy")
		}
		for i := range 10 {
			require.Equal(t, policy.SoftThrottle, e.Evaluate(addressOf(20+i)).Reason)
		}
		r := e.Report()
		require.EqualValues(t, 14, r.Overflowed)
		require.Zero(t, r.Evicted)
		require.Zero(t, r.Lockouts)

		time.Sleep(time.Second) // all three are full again
		require.Equal(t, policy.Decision{Allowed: true, Credit: 3}, e.Evaluate(addressOf(30)))
		r = e.Report()
		require.EqualValues(t, 1, r.Evicted)
		require.EqualValues(t, 14, r.Overflowed)
		require.Equal(t, 3, r.TrackedEndpoints)
	})
}

// One idle entry among so many that are remembered is found.
func TestTableFindsTheIdleOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 390 // a shard of the default table
		e := newEngine(t, engine.Config{Default: rate(10, 1), MaxTrackedEndpoints: n, Shards: 1})
		for i := range n {
			for range 10 {
				e.Evaluate(addressOf(i))
			}
		}
		require.True(t, e.Evaluate(addressOf(5000)).Allowed)
		require.EqualValues(t, 1, e.Report().Overflowed, "there was none")
		time.Sleep(9 * time.Second)
		for i := range n {
			if i != 123 {
				e.Evaluate(addressOf(i))
			}
		}
		time.Sleep(time.Second) // number 123 is full again, the others lack a token
		for i := range n {
			if i != 123 {
				e.Evaluate(addressOf(i))
			}
		}
		require.Equal(t, policy.Decision{Allowed: true, Credit: 9}, e.Evaluate(addressOf(6000)))
		require.EqualValues(t, 1, e.Report().Evicted)
		_, ok := e.Lookup(addressOf(123))
		require.False(t, ok)
	})
}

func TestTableFullDeny(t *testing.T) {
	e := newEngine(t, engine.Config{MaxTrackedEndpoints: 2, OnFull: engine.Deny})
	e.Evaluate(addressOf(0))
	e.Evaluate(addressOf(1))
	require.Equal(t, policy.Decision{Reason: policy.HardLockout, RetryAfter: 30 * time.Second}, e.Evaluate(addressOf(2)))
	require.True(t, e.Evaluate(addressOf(1)).Allowed)
	r := e.Report()
	require.EqualValues(t, 1, r.HardLocked)
	require.Zero(t, r.Overflowed)
	require.Zero(t, r.Lockouts)
}

func TestTableFullAllow(t *testing.T) {
	e := newEngine(t, engine.Config{Default: rate(1, 1e-6), MaxTrackedEndpoints: 2, OnFull: engine.Allow})
	e.Evaluate(addressOf(0))
	e.Evaluate(addressOf(1))
	for range 5 {
		require.True(t, e.Evaluate(addressOf(2)).Allowed)
	}
	require.False(t, e.Evaluate(addressOf(1)).Allowed)
	r := e.Report()
	require.EqualValues(t, 5, r.Overflowed)
	require.Equal(t, 2, r.TrackedEndpoints)
}

// C20: who has gone is forgotten without anybody looking, and starts again at
// Initial; who is locked out, drained or remembered is not, however long it is
// silent. 41
func TestJanitor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := rate(10, 1)
		p.Packets.Initial = 4
		p.Escalation = policy.Escalation{MaxSoftViolations: 1, Lockout: time.Hour}
		slow := named("slow", rate(10, 1e-3))
		e := newEngine(t, engine.Config{
			Default: p, Policies: []policy.Policy{slow}, StaleAfter: 10 * time.Second, CleanupInterval: 5 * time.Second,
		})
		id, _ := e.Policy("slow")
		for i := range 10_000 {
			require.EqualValues(t, 3, e.Evaluate(addressOf(i)).Credit)
		}
		for range 5 {
			e.Evaluate(client)
		}
		e.EvaluatePolicy(client, id)
		time.Sleep(10 * time.Second)
		require.Equal(t, 10_002, e.Report().TrackedEndpoints, "full for 3 s, so not stale yet")
		time.Sleep(17*time.Second - 10*time.Second + 2*5*time.Second)
		r := e.Report()
		require.Equal(t, 2, r.TrackedEndpoints)
		require.Equal(t, 10_002, r.PeakTrackedEndpoints)
		require.EqualValues(t, 10_000, r.TotalCleaned)
		require.EqualValues(t, 3, e.Evaluate(addressOf(0)).Credit, "at Initial again")

		require.Equal(t, policy.HardLockout, e.Evaluate(client).Reason)
		time.Sleep(990 * time.Second)
		require.EqualValues(t, 9, e.EvaluatePolicy(client, id).Credit)
		time.Sleep(2 * time.Hour)
		require.Zero(t, e.Report().TrackedEndpoints)
	})
}

// The peak is a true one, not that of the moments at which somebody looked.
func TestTablePeak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, engine.Config{StaleAfter: time.Second, CleanupInterval: time.Second})
		for i := range 500 {
			e.Evaluate(addressOf(i))
		}
		time.Sleep(10 * time.Second)
		r := e.Report()
		require.Zero(t, r.TrackedEndpoints)
		require.Equal(t, 500, r.PeakTrackedEndpoints)
	})
}

// Decisions, sweeps, reports and changes at the same time keep the cap and the
// sums. 49, 50, 53
func TestTableUnderTraffic(t *testing.T) {
	p := policy.Policy{Escalation: policy.Escalation{MaxSoftViolations: 2, Lockout: time.Millisecond}}
	p.Packets.Capacity, p.Packets.RefillPerSecond = 3, 1e6
	e := newEngine(t, engine.Config{
		Default: p, MaxTrackedEndpoints: 100, Shards: 4,
		StaleAfter: time.Microsecond, CleanupInterval: 100 * time.Microsecond,
	})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 20_000 {
				e.Evaluate(addressOf((i * (g + 1)) % 1000))
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		assert.LessOrEqual(t, e.Report().TrackedEndpoints, 100)
	}
	r := e.Report()
	assert.EqualValues(t, 80_000, r.Evaluated)
	assert.Equal(t, r.Evaluated, r.Allowed+r.SoftThrottled+r.HardLocked)
	assert.LessOrEqual(t, r.PeakTrackedEndpoints, 100)
}
