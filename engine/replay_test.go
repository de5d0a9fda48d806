package engine_test

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// A full table, sweeps, lockouts that grow, byte budgets, bans that end and
// exemptions: what a replay answers is what the engine answered.
func TestReplayDecidesAsTheEngine(t *testing.T) {
	c := engine.Config{
		Default: policy.Policy{
			Packets: tokenbucket.Limit{Capacity: 4, RefillPerSecond: 2},
			Bytes:   &tokenbucket.Limit{Capacity: 3000, RefillPerSecond: 1000},
			Escalation: policy.Escalation{
				MaxSoftViolations: 3, Window: 4 * time.Second, Lockout: 5 * time.Second, Growth: 2, ForgetAfter: 20 * time.Second,
			},
		},
		Policies: []policy.Policy{{Name: "other", Escalation: policy.Escalation{Disabled: true}}},
		Shards:   1, MaxTrackedEndpoints: 30, StaleAfter: 7 * time.Second, CleanupInterval: 3 * time.Second,
		Load: engine.NoLoad,
	}
	synctest.Test(t, func(t *testing.T) {
		live, err := engine.New(c)
		require.NoError(t, err)
		defer live.Close()
		start := time.Now()
		replay, err := engine.NewReplay(c, start)
		require.NoError(t, err)
		defer replay.Close()
		for _, e := range []*engine.Engine{live, replay.Engine} {
			require.NoError(t, e.Ban(netip.MustParsePrefix("192.0.2.3/32"), 200*time.Second, ""))
			require.NoError(t, e.Exempt(netip.MustParsePrefix("192.0.2.4/32")))
		}
		random := rand.New(rand.NewPCG(1, 2))
		reasons := map[policy.Reason]int{}
		var out [1]policy.Decision
		for i := range 20_000 {
			pause := time.Duration(random.IntN(4_000_001)) + time.Nanosecond
			if i%1000 == 0 {
				pause += time.Duration(random.IntN(40)) * time.Second
			}
			time.Sleep(pause)
			synctest.Wait() // for a sweep that is due
			require.True(t, replay.Advance(time.Now()))
			from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(random.ExpFloat64() * 12)}), 1)
			q := engine.Request{Endpoint: from, Policy: engine.PolicyID(random.IntN(2)), Bytes: random.IntN(1500)}
			if i%10 == 0 {
				took, wait := live.TakeBytes(from, q.Policy, q.Bytes)
				tookToo, waitToo := replay.TakeBytes(from, q.Policy, q.Bytes)
				require.Equal(t, took, tookToo)
				require.Equal(t, wait, waitToo)
				continue
			}
			live.EvaluateBatch([]engine.Request{q}, out[:])
			require.Equal(t, out[0], replay.Decide(q), "%d: %v", i, q)
			reasons[out[0].Reason]++
		}
		assert.Len(t, reasons, 3)
		want, got := live.Report(), replay.Report()
		assert.NotZero(t, got.TotalCleaned)
		assert.NotZero(t, got.Evicted)
		assert.NotZero(t, got.Overflowed)
		// Which of several idle endpoints makes room, and which of two that were
		// denied as often comes first, is a matter of the slots that they have.
		assert.InEpsilon(t, want.Evicted, got.Evicted, 0.01)
		got.Evicted, got.Top, want.Top = want.Evicted, nil, nil
		assert.Equal(t, want, got)
		assert.Equal(t, live.Bans(), replay.Bans())
	})
}

// The clock stands still where it would go back, and takes a century in one step.
func TestReplayClock(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r, err := engine.NewReplay(engine.Config{Default: policy.Policy{
		Packets: tokenbucket.Limit{Capacity: 2, RefillPerSecond: 1}, Escalation: policy.Escalation{Disabled: true},
	}}, start)
	require.NoError(t, err)
	defer r.Close()
	q := engine.Request{Endpoint: netip.MustParseAddrPort("[2001:db8::1]:9")}
	key := r.Key(q.Endpoint, 0)
	assert.Equal(t, "2001:db8::/64", r.Endpoint(key))
	left, tracked := r.Left(key)
	assert.Equal(t, 1.0, left)
	assert.False(t, tracked)

	for _, step := range []struct {
		at       time.Duration
		advanced bool
		allowed  bool
		left     float64
	}{
		{0, true, true, 0.5},
		{0, true, true, 0},
		{0, true, false, 0},
		{-time.Hour, false, false, 0},
		{time.Second, true, true, 0},
		{999 * time.Millisecond, false, false, 0},
		{time.Hour, true, true, 0.5},
		{100 * 365 * 24 * time.Hour, true, true, 0.5},
	} {
		assert.Equal(t, step.advanced, r.Advance(start.Add(step.at)), step.at)
		assert.Equal(t, step.allowed, r.Decide(q).Allowed, step.at)
		left, tracked := r.Left(key)
		assert.Equal(t, step.left, left, step.at)
		assert.True(t, tracked)
	}
	assert.Equal(t, start.Add(100*365*24*time.Hour), r.Report().UtcNow)
	assert.EqualValues(t, 2, r.Report().TotalCleaned)

	_, err = engine.NewReplay(engine.Config{Shards: 3}, start)
	require.ErrorContains(t, err, "Shards")
}
