package engine_test

import (
	"bytes"
	"fmt"
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

// diary writes down what a watch is told, and what holds at that moment.
type diary struct {
	e     *engine.Engine
	lines []string
}

func (d *diary) note(p netip.Prefix, lifted bool) {
	exempt, banned := d.e.Listed(p)
	d.lines = append(d.lines, fmt.Sprintf("%v lifted=%v exempt=%v banned=%v", p, lifted, exempt, banned))
}

// told returns what was written down since it was called last.
func (d *diary) told() []string {
	lines := d.lines
	d.lines = nil
	return lines
}

func lockingEngine(t *testing.T) *engine.Engine {
	t.Helper()
	p := policy.Policy{
		Packets:    tokenbucket.Limit{Capacity: 1, RefillPerSecond: 1e-6},
		Escalation: policy.Escalation{MaxSoftViolations: 1, Lockout: time.Minute},
	}
	other := p
	other.Name = "other"
	e, err := engine.New(engine.Config{Default: p, Policies: []policy.Policy{other}, Load: engine.NoLoad})
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	return e
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := lockingEngine(t)
		defer e.Close()
		require.NoError(t, e.Ban(prefix("10.0.0.0/8"), 0, "before"))
		d := &diary{e: e}
		stop := e.Watch(d.note)
		forever := "banned=" + policy.Never.String()
		require.Equal(t, []string{"10.0.0.0/8 lifted=false exempt=false " + forever}, d.told(), "what is listed already")

		require.NoError(t, e.Ban(prefix("192.0.2.77/24"), time.Hour, ""))
		require.Equal(t, []string{"192.0.2.0/24 lifted=false exempt=false banned=1h0m0s"}, d.told())
		require.NoError(t, e.Ban(prefix("192.0.2.0/24"), time.Minute, "shorter"))
		require.Equal(t, []string{"192.0.2.0/24 lifted=false exempt=false banned=1m0s"}, d.told())

		require.NoError(t, e.Exempt(prefix("192.0.2.1/32"), prefix("192.0.2.2/32")))
		require.Equal(t, []string{
			"192.0.2.1/32 lifted=false exempt=true banned=0s",
			"192.0.2.2/32 lifted=false exempt=true banned=0s",
		}, d.told())
		require.NoError(t, e.Exempt(prefix("192.0.2.0/24")))
		told := d.told()
		require.Equal(t, "192.0.2.0/24 lifted=false exempt=true banned=1m0s", told[0], "who is new comes first")
		require.ElementsMatch(t, []string{
			"192.0.2.1/32 lifted=false exempt=false banned=0s",
			"192.0.2.2/32 lifted=false exempt=false banned=0s",
		}, told[1:])

		require.True(t, e.Unban(prefix("192.0.2.0/24")))
		require.Equal(t, []string{"192.0.2.0/24 lifted=false exempt=true banned=0s"}, d.told())

		ep := netip.MustParseAddrPort("198.51.100.1:7")
		e.Evaluate(ep)
		require.Equal(t, policy.HardLockout, e.Evaluate(ep).Reason)
		require.Empty(t, d.told(), "decisions are not told")
		require.True(t, e.Unban(prefix("198.51.100.1/32")))
		require.Equal(t, []string{"198.51.100.1/32 lifted=true exempt=false banned=0s"}, d.told())

		require.NoError(t, e.SetPolicies(policy.Policy{}, nil))
		require.Equal(t, []string{"invalid Prefix lifted=true exempt=false banned=0s"}, d.told())

		var saved bytes.Buffer
		require.NoError(t, e.WriteSnapshot(&saved))
		require.True(t, e.Unban(prefix("10.0.0.0/8")))
		require.Len(t, d.told(), 1)
		require.NoError(t, e.ReadSnapshot(&saved))
		require.Equal(t, []string{"10.0.0.0/8 lifted=false exempt=false " + forever}, d.told())

		stop()
		stop()
		require.NoError(t, e.Ban(prefix("10.0.0.0/8"), time.Hour, ""))
		require.Empty(t, d.told(), "after stop")
	})
}

// A change that fails is none.
func TestWatchHearsNothingOfErrors(t *testing.T) {
	e := lockingEngine(t)
	d := &diary{e: e}
	e.Watch(d.note)
	require.Error(t, e.Ban(netip.Prefix{}, 0, ""))
	require.Error(t, e.Ban(prefix("10.0.0.0/8"), -1, ""))
	require.Error(t, e.Exempt(netip.Prefix{}))
	require.Error(t, e.SetPolicies(policy.Policy{Packets: tokenbucket.Limit{Capacity: -1}}, nil))
	require.False(t, e.Unban(netip.Prefix{}))
	require.Empty(t, d.told())
}

func TestListedAndLockedForFollowTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := lockingEngine(t)
		defer e.Close()
		p := prefix("::ffff:192.0.2.0/120") // that of the IPv4 addresses
		ep := netip.MustParseAddrPort("203.0.113.1:1")
		other, _ := e.Policy("other")
		assert.Zero(t, e.LockedFor(ep, 0), "nobody has seen it")
		require.NoError(t, e.Ban(p, time.Minute, ""))
		e.Evaluate(ep)
		assert.Zero(t, e.LockedFor(ep, 0), "allowed")
		e.Evaluate(ep)
		evaluated := e.Report().Evaluated
		for _, left := range []time.Duration{time.Minute, time.Second, 1, 0} {
			_, banned := e.Listed(prefix("192.0.2.0/24"))
			assert.Equal(t, left, banned)
			assert.Equal(t, left, e.LockedFor(ep, 0))
			assert.Zero(t, e.LockedFor(ep, other), "under another policy")
			assert.Zero(t, e.LockedFor(netip.AddrPort{}, 0))
			assert.Zero(t, e.LockedFor(ep, 1<<20))
			switch left {
			case time.Minute:
				time.Sleep(time.Minute - time.Second)
			case time.Second:
				time.Sleep(time.Second - 1)
			case 1:
				time.Sleep(time.Nanosecond)
			}
		}
		assert.Equal(t, evaluated, e.Report().Evaluated, "asking is no packet")
		exempt, banned := e.Listed(prefix("192.0.2.0/25"))
		assert.False(t, exempt)
		assert.Zero(t, banned, "what is listed is a shorter prefix")
	})
}

// Whoever is exempt before and after a change of the list is exempt for a copy
// at every moment of it.
func TestWatchNeverUncoversWhoStaysExempt(t *testing.T) {
	e := lockingEngine(t)
	lists := [][]netip.Prefix{
		{prefix("192.0.2.0/24")},
		{prefix("192.0.2.1/32"), prefix("198.51.100.0/24")},
		{prefix("192.0.2.0/31")},
	}
	exempt := make(map[netip.Prefix]bool)
	e.Watch(func(p netip.Prefix, _ bool) {
		exempt[p], _ = e.Listed(p)
		covered := false
		for p, yes := range exempt {
			covered = covered || yes && p.Contains(netip.MustParseAddr("192.0.2.1"))
		}
		assert.True(t, covered, "at %v", p)
	})
	for range 3 {
		for _, l := range lists {
			require.NoError(t, e.Exempt(l...))
		}
	}
}

func TestConfigHasTheDefaults(t *testing.T) {
	c := lockingEngine(t).Config()
	assert.Equal(t, engine.DefaultIPv4Prefix, c.IPv4Prefix)
	assert.Equal(t, engine.DefaultIPv6Prefix, c.IPv6Prefix)
	assert.Equal(t, engine.DefaultMaxTrackedEndpoints, c.MaxTrackedEndpoints)
}
