package engine_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// No path of a decision allocates once the engine has seen its endpoints.
func TestAllocations(t *testing.T) {
	locking := rate(1, 1e-6)
	locking.Escalation = policy.Escalation{MaxSoftViolations: 1, Lockout: time.Hour}
	withBytes := rate(1<<30, 1e9)
	withBytes.Bytes = &tokenbucket.Limit{Capacity: 1 << 30, RefillPerSecond: 1e9}
	partly := rate(2, 1e9)
	partly.Packets.Initial = 1
	one := func(c engine.Config) func(*testing.T) func() {
		return func(t *testing.T) func() {
			e := newEngine(t, c)
			return func() { e.Evaluate(client) }
		}
	}
	fullTable := func(c engine.Config) func(*testing.T) func() {
		return func(t *testing.T) func() {
			c.MaxTrackedEndpoints = 1000
			e := newEngine(t, c)
			i := 0
			return func() { e.Evaluate(addressOf(i)); i++ }
		}
	}
	for name, setup := range map[string]func(*testing.T) func(){
		"allowed":       one(engine.Config{Default: rate(1<<30, 1e9)}),
		"soft":          one(engine.Config{Default: rate(1, 1e-6)}),
		"locked":        one(engine.Config{Default: locking}),
		"full/evict":    fullTable(engine.Config{Default: rate(1, 1e9)}),
		"full/initial":  fullTable(engine.Config{Default: partly}),
		"full/bytes":    fullTable(engine.Config{Default: withBytes}),
		"full/overflow": fullTable(engine.Config{Default: rate(2, 1e-6)}),
		"full/deny":     fullTable(engine.Config{OnFull: engine.Deny}),
		"full/allow":    fullTable(engine.Config{OnFull: engine.Allow}),
		"invalid": func(t *testing.T) func() {
			e := newEngine(t, engine.Config{})
			return func() { e.Evaluate(netip.AddrPort{}) }
		},
		"closed": func(t *testing.T) func() {
			e := newEngine(t, engine.Config{})
			require.NoError(t, e.Close())
			return func() { e.Evaluate(client) }
		},
		"banned": func(t *testing.T) func() {
			e := newEngine(t, engine.Config{})
			require.NoError(t, e.Ban(prefix("192.0.2.0/24"), time.Hour, ""))
			return func() { e.Evaluate(client) }
		},
		"exempt": func(t *testing.T) func() {
			e := newEngine(t, engine.Config{})
			require.NoError(t, e.Exempt(prefix("192.0.2.0/24")))
			return func() { e.Evaluate(client) }
		},
		"ended bans": func(t *testing.T) func() {
			e := newEngine(t, engine.Config{Default: rate(1<<30, 1e9)})
			for _, p := range []string{"192.0.0.0/8", "192.0.2.0/24", "192.0.2.1/32"} {
				require.NoError(t, e.Ban(prefix(p), 1, ""))
			}
			require.Eventually(t, func() bool { return len(e.Bans()) == 0 }, 10*time.Second, time.Millisecond)
			return func() { e.Evaluate(client) }
		},
		"unknown policy": func(t *testing.T) func() {
			e := newEngine(t, engine.Config{})
			return func() { e.EvaluatePolicy(client, 99) }
		},
		"zone": func(t *testing.T) func() {
			e := newEngine(t, engine.Config{})
			ep := netip.MustParseAddrPort("[fe80::1%eth0]:1")
			return func() { e.Evaluate(ep) }
		},
		"batch with bytes": func(t *testing.T) func() {
			e := newEngine(t, engine.Config{Default: withBytes})
			reqs := []engine.Request{{Endpoint: client, Bytes: 10}, {Endpoint: addr("2001:db8::1"), Bytes: 20}}
			out := make([]policy.Decision, len(reqs))
			return func() { e.EvaluateBatch(reqs, out) }
		},
		"denied": func(t *testing.T) func() {
			e := newEngine(t, engine.Config{Default: policy.Policy{DryRun: true}})
			require.NoError(t, e.Deny(prefix("192.0.2.0/24")))
			return func() {
				if e.Evaluate(client).Allowed || !e.Denies(client.Addr()) || !e.DryRun(0) {
					t.Error("not as the test wants it")
				}
			}
		},
		"bytes": func(t *testing.T) func() {
			e := newEngine(t, engine.Config{Default: withBytes})
			return func() { e.TakeBytes(client, 0, 10) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := setup(t)
			for range 5000 {
				f()
			}
			require.Zero(t, testing.AllocsPerRun(1000, f))
		})
	}
}

// A batch decides as single calls do.
func TestEvaluateBatch(t *testing.T) {
	c := engine.Config{Default: rate(3, 1e-6)}
	single, batch := newEngine(t, c), newEngine(t, c)
	var reqs []engine.Request
	var want []policy.Decision
	for i := range 300 {
		ep := addressOf(i * i % 70)
		reqs = append(reqs, engine.Request{Endpoint: ep})
		d := single.Evaluate(ep)
		d.RetryAfter = 0 // depends on when it was asked
		want = append(want, d)
	}
	got := make([]policy.Decision, len(reqs)+1)
	batch.EvaluateBatch(reqs, got)
	for i := range got {
		got[i].RetryAfter = 0
	}
	require.Equal(t, want, got[:len(reqs)])
	require.Zero(t, got[len(reqs)])
	require.Panics(t, func() { batch.EvaluateBatch(reqs, got[:1]) }, "its capacity does not count")
	require.EqualValues(t, len(reqs), batch.Report().Evaluated, "and none of them was decided on")
}

func TestTakeBytes(t *testing.T) {
	p := rate(1, 1e-6)
	p.Bytes = &tokenbucket.Limit{Capacity: 1000, RefillPerSecond: 1e-6}
	e := newEngine(t, engine.Config{Default: p, Policies: []policy.Policy{named("free", rate(1, 1))}})
	free, _ := e.Policy("free")
	took, wait := e.TakeBytes(client, free, 1<<30)
	require.Equal(t, 1<<30, took)
	require.Zero(t, wait)
	took, wait = e.TakeBytes(client, 0, 900)
	require.Equal(t, 900, took)
	require.Zero(t, wait)
	took, wait = e.TakeBytes(client, 0, 900)
	require.Equal(t, 100, took)
	require.Positive(t, wait)
	row, _ := e.Lookup(client)
	require.EqualValues(t, 1, row.Tokens, "no packet was charged")
	require.Zero(t, row.Denied)
	for _, id := range []engine.PolicyID{99, 65535, 65536, 1<<32 - 1} {
		took, wait = e.TakeBytes(client, id, 1)
		require.Zero(t, took)
		require.Equal(t, policy.Never, wait)
	}
	took, wait = e.TakeBytes(client, 0, 0)
	require.Zero(t, took)
	require.Zero(t, wait)
	require.NoError(t, e.Ban(prefix("192.0.2.1/32"), 0, ""))
	took, _ = e.TakeBytes(client, 0, 5000)
	require.Zero(t, took, "a ban gives nothing")
	e.Unban(prefix("192.0.2.1/32"))
	require.NoError(t, e.Exempt(prefix("192.0.2.0/24")))
	took, wait = e.TakeBytes(client, 0, 5000)
	require.Equal(t, 5000, took, "who is exempt is never limited")
	require.Zero(t, wait)
	took, _ = e.TakeBytes(client, 99, 1)
	require.Zero(t, took)
	require.NoError(t, e.Close())
	took, wait = e.TakeBytes(client, 0, 1)
	require.Zero(t, took)
	require.Equal(t, policy.Never, wait)
}
