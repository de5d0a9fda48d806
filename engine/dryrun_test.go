package engine_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
)

// C112, C113: a trial beside a policy in force, of the same limits: it decides and
// counts the same, and only who asks learns which of the two it is.
func TestDryRunDecidesTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		limits := policy.Policy{Escalation: policy.Escalation{MaxSoftViolations: 3, Lockout: time.Minute}}
		limits.Packets.Capacity, limits.Packets.RefillPerSecond = 5, 2
		trial := named("trial", limits)
		trial.DryRun = true
		e := newEngine(t, engine.Config{
			Policies: []policy.Policy{named("live", limits), trial},
			Logger:   slog.New(slog.NewTextHandler(&log, nil)),
		})
		live, _ := e.Policy("live")
		dry, _ := e.Policy("trial")
		require.Equal(t, []bool{false, false, true}, []bool{e.DryRun(0), e.DryRun(live), e.DryRun(dry)})
		for i := range 400 {
			require.Equal(t, e.EvaluatePolicy(client, live), e.EvaluatePolicy(client, dry), i)
			time.Sleep(time.Duration(i) * time.Millisecond)
		}
		r := e.Report()
		require.Len(t, r.Policies, 3)
		was, is := r.Policies[1], r.Policies[2]
		assert.Equal(t, [3]int64{was.Allowed, was.SoftThrottled, was.HardLocked}, [3]int64{is.Allowed, is.SoftThrottled, is.HardLocked})
		assert.Positive(t, is.HardLocked)
		assert.Positive(t, is.SoftThrottled)
		for _, row := range r.Top {
			assert.Equal(t, row.Policy == "trial", row.DryRun)
		}
		out, err := json.Marshal(r)
		require.NoError(t, err)
		assert.Equal(t, 2, bytes.Count(out, []byte(`"DryRun":true`)), "of the policy and the endpoint")
		assert.NotContains(t, string(out), `"DryRun":false`)
	})
}

// What keeps a copy of who is kept out asks LockedFor, at once after a policy has
// become a dry run, and has ceased to be one.
func TestDryRunKeepsNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := lockingEngine(t)
		defer e.Close()
		other, _ := e.Policy("other")
		for range 3 {
			e.Evaluate(client)
			e.EvaluatePolicy(client, other)
		}
		var seen []time.Duration
		e.Watch(func(_ netip.Prefix, lifted bool) {
			assert.True(t, lifted)
			seen = append(seen, e.LockedFor(client, 0), e.LockedFor(client, other))
		})
		def, named := e.Config().Default, e.Config().Policies
		trial := named[0]
		trial.DryRun = true
		require.NoError(t, e.SetPolicies(def, []policy.Policy{trial}))
		require.True(t, e.DryRun(other))
		time.Sleep(time.Second)
		require.NoError(t, e.SetPolicies(def, named))
		require.False(t, e.DryRun(other))
		require.Equal(t, []time.Duration{time.Minute, 0, 59 * time.Second, 59 * time.Second}, seen)
		require.False(t, e.EvaluatePolicy(client, other).Allowed, "the lockout went on meanwhile")
	})
}

func TestDryRunFailsClosed(t *testing.T) {
	e := newEngine(t, engine.Config{Default: policy.Policy{DryRun: true}})
	require.True(t, e.DryRun(0))
	require.False(t, e.DryRun(7), "no such policy")
	require.False(t, e.DryRun(1<<32-1), "no such policy")
	require.NoError(t, e.Close())
	require.False(t, e.DryRun(0), "closed")
}

// C122: who may not be the sender is throttled and never locked out, nor is the
// endpoint for what it was left without; a lockout that there is holds.
func TestNoLockout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := rate(2, 1)
		p.Escalation = policy.Escalation{MaxSoftViolations: 3, Lockout: time.Minute}
		e := newEngine(t, engine.Config{Default: p})
		ask := func(noLockout bool) policy.Decision {
			var out [1]policy.Decision
			e.EvaluateBatch([]engine.Request{{Endpoint: client, NoLockout: noLockout}}, out[:])
			return out[0]
		}
		require.True(t, ask(true).Allowed)
		require.True(t, ask(true).Allowed)
		for range 1000 {
			d := ask(true)
			require.Equal(t, policy.Decision{Reason: policy.SoftThrottle, RetryAfter: time.Second}, d)
		}
		require.Zero(t, e.Report().SoftWarningCount, "none of these counts")
		for range 2 {
			require.Equal(t, policy.SoftThrottle, ask(false).Reason)
		}
		require.Zero(t, e.Report().SoftWarningCount, "within its own budget")
		for range 60 {
			time.Sleep(time.Second)
			require.True(t, ask(true).Allowed)
			require.Equal(t, policy.SoftThrottle, ask(false).Reason)
		}
		require.Zero(t, e.Report().SoftWarningCount, "as fast as it may")
		require.Equal(t, policy.SoftThrottle, ask(false).Reason)
		require.Equal(t, policy.SoftThrottle, ask(false).Reason)
		require.Equal(t, policy.SoftThrottle, ask(true).Reason)
		require.Equal(t, policy.HardLockout, ask(false).Reason, "the third that counts")
		require.Equal(t, policy.Decision{Reason: policy.HardLockout, RetryAfter: time.Minute}, ask(true))
		require.EqualValues(t, 1, e.Report().Lockouts)
	})
}

// The list of the denied is told from bans, by what decides on the address.
func TestDenies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, engine.Config{})
		denies := func(s string) bool { return e.Denies(addr(s).Addr()) }
		require.False(t, denies("10.0.0.1"), "no lists")
		require.NoError(t, e.Deny(prefix("10.0.0.0/8"), prefix("2001:db8::/32"), prefix("192.0.2.0/24")))
		require.NoError(t, e.Exempt(prefix("10.1.0.0/16"), prefix("192.0.2.0/24")))
		require.NoError(t, e.Ban(prefix("10.2.0.0/16"), 0, ""))
		require.NoError(t, e.Ban(prefix("10.3.0.0/16"), time.Second, ""))
		require.NoError(t, e.Ban(prefix("198.51.100.0/24"), 0, ""))
		for address, want := range map[string]bool{
			"10.0.0.1": true, "::ffff:10.0.0.1": true, "2001:db8::1": true,
			"10.1.0.1": false, "192.0.2.1": false, "203.0.113.1": false, // exempt, or on no list
			"10.2.0.1": false, "10.3.0.1": false, "198.51.100.1": false, // banned
		} {
			require.Equal(t, want, denies(address), address)
			require.Equal(t, want, denies(address) && !e.Evaluate(addr(address)).Allowed, address)
		}
		time.Sleep(time.Second)
		require.True(t, denies("10.3.0.1"), "the ban has ended, what is behind it has not")
	})
}
