package engine_test

import (
	"bytes"
	"io"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// until runs f over and over in some goroutines, until stop is called.
func until(workers int, f func(i int)) (stop func()) {
	var stopped atomic.Bool
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := 0; !stopped.Load(); i++ {
				f(i)
			}
		})
	}
	return func() {
		stopped.Store(true)
		wg.Wait()
	}
}

// Sixteen goroutines and one endpoint: what was refilled is what they get, and
// no error of any kind. C35, 24, 53
func TestSharedBucketHoldsItsRate(t *testing.T) {
	const perSecond = 5000
	p := rate(1_000_000, perSecond) // more than this test lasts for: nothing is lost, whatever its pace
	p.Packets.Initial = tokenbucket.Empty
	e := newEngine(t, engine.Config{Default: p})
	var passed atomic.Int64
	ask := func() bool {
		d := e.Evaluate(client)
		if d.Allowed {
			passed.Add(1)
		} else {
			assert.Equal(t, policy.SoftThrottle, d.Reason)
		}
		return d.Allowed
	}
	began := time.Now()
	ask()
	seen := time.Now()
	stop := until(16, func(int) { ask() })
	time.Sleep(300 * time.Millisecond)
	stop()
	least := perSecond * time.Since(seen).Seconds()
	for ask() { // what they were too slow for
	}
	require.LessOrEqual(t, float64(passed.Load()), perSecond*time.Since(began).Seconds())
	require.Greater(t, float64(passed.Load()), least-1)
}

// While other bans come and go, a ban has no gap. C44
func TestBansHaveNoGap(t *testing.T) {
	e := newEngine(t, engine.Config{})
	require.NoError(t, e.Ban(prefix("192.0.2.0/24"), 0, ""))
	var gaps atomic.Int64
	stop := until(2, func(int) {
		if e.Evaluate(client).Allowed {
			gaps.Add(1)
		}
	})
	for i := range 300 {
		p := netip.PrefixFrom(addressOf(i%50).Addr(), 32)
		require.NoError(t, e.Ban(p, time.Nanosecond, ""))
		require.NoError(t, e.Ban(prefix("192.0.2.0/24"), 0, "again"))
		require.NoError(t, e.Exempt(prefix("192.0.0.0/16"), p))
		e.Unban(p)
	}
	stop()
	require.Zero(t, gaps.Load())
	require.Len(t, e.Bans(), 1)
}

// Everything at once, and then Close: from the moment it returns all is denied,
// and what was counted adds up. 55
func TestEverythingAtOnce(t *testing.T) {
	p := policy.Policy{Escalation: policy.Escalation{MaxSoftViolations: 2, Lockout: time.Millisecond, Growth: 2}}
	p.Packets.Capacity, p.Packets.RefillPerSecond = 2, 1000
	e := newEngine(t, engine.Config{
		Default: p, Policies: []policy.Policy{named("a", rate(3, 1000))}, Load: new(load),
		Shards: 4, MaxTrackedEndpoints: 100, StaleAfter: time.Millisecond, CleanupInterval: time.Millisecond,
	})
	a, _ := e.Policy("a")
	var asked atomic.Int64
	packets := until(2, func(i int) {
		e.EvaluatePolicy(addressOf(i%300), a*engine.PolicyID(i%2))
		asked.Add(1)
	})
	var snapshot bytes.Buffer
	require.NoError(t, e.WriteSnapshot(&snapshot))
	rest := until(1, func(i int) {
		q := p
		q.Packets.Capacity = int64(2 + i%3)
		assert.NoError(t, e.SetPolicies(q, []policy.Policy{named("a", rate(int64(1+i%5), 1000))}))
		assert.NoError(t, e.Ban(netip.PrefixFrom(addressOf(i%300).Addr(), 32), time.Millisecond, ""))
		assert.NoError(t, e.Exempt(netip.PrefixFrom(addressOf(i%300).Addr(), 28)))
		e.Unban(netip.PrefixFrom(addressOf(i%300).Addr(), 32))
		assert.NoError(t, e.WriteSnapshot(io.Discard))
		assert.NoError(t, e.ReadSnapshot(bytes.NewReader(snapshot.Bytes())))
		e.Lookup(addressOf(i % 300))
		r := e.Report()
		assert.LessOrEqual(t, r.TrackedEndpoints, 100)
	})
	time.Sleep(300 * time.Millisecond)
	rest()
	packets()
	r := e.Report()
	assert.Equal(t, asked.Load(), r.Evaluated)
	assert.Equal(t, r.Evaluated, r.Allowed+r.SoftThrottled+r.HardLocked)
	assert.LessOrEqual(t, r.PeakTrackedEndpoints, 100)

	var late atomic.Int64
	var closed atomic.Bool
	packets = until(2, func(i int) {
		was := closed.Load()
		if d := e.Evaluate(addressOf(i)); was && d != (policy.Decision{Reason: policy.HardLockout}) {
			late.Add(1)
		}
	})
	require.NoError(t, e.Close())
	closed.Store(true)
	time.Sleep(20 * time.Millisecond)
	packets()
	require.Zero(t, late.Load())
}
