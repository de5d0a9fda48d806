package engine_test

import (
	"math"
	"net/netip"
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

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func addr(s string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(s), 4000) }

// prefixes are those of the bans, as text.
func prefixes(e *engine.Engine) (list []string) {
	for _, b := range e.Bans() {
		list = append(list, b.Prefix.String())
	}
	return list
}

// C36, C39, C44, C46
func TestBan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, engine.Config{})
		require.NoError(t, e.Ban(prefix("203.0.113.9/24"), time.Minute, "scanner"))
		require.NoError(t, e.Ban(prefix("198.51.100.0/24"), 0, ""))
		require.Equal(t, []engine.Ban{
			{Prefix: prefix("198.51.100.0/24")},
			{Prefix: prefix("203.0.113.0/24"), Until: time.Now().Add(time.Minute), Note: "scanner"},
		}, utc(e.Bans()))

		want := policy.Decision{Reason: policy.HardLockout, RetryAfter: time.Minute}
		require.Equal(t, want, e.Evaluate(addr("203.0.113.77")))
		require.Equal(t, want, e.Evaluate(addr("::ffff:203.0.113.77")))
		require.Equal(t, policy.Never, e.Evaluate(addr("198.51.100.1")).RetryAfter)
		require.True(t, e.Evaluate(addr("203.0.114.1")).Allowed)
		require.Equal(t, 1, e.Report().TrackedEndpoints, "a ban makes no entry")

		time.Sleep(time.Minute - 1)
		require.False(t, e.Evaluate(addr("203.0.113.77")).Allowed)
		time.Sleep(time.Nanosecond)
		require.True(t, e.Evaluate(addr("203.0.113.77")).Allowed)
		require.Equal(t, []string{"198.51.100.0/24"}, prefixes(e))
		require.False(t, e.Unban(prefix("203.0.113.0/24")), "it has ended")
		require.True(t, e.Unban(prefix("198.51.100.7/24")))
		require.False(t, e.Unban(prefix("198.51.100.0/24")))
		require.True(t, e.Evaluate(addr("198.51.100.1")).Allowed)
	})
}

func utc(bans []engine.Ban) []engine.Ban {
	for i := range bans {
		if !bans[i].Until.IsZero() {
			bans[i].Until = bans[i].Until.Round(0).Local()
		}
	}
	return bans
}

// C37: a new ban of a prefix takes the place of the old one, longer or shorter.
func TestBanAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, engine.Config{})
		for _, d := range []time.Duration{10 * time.Second, 100 * time.Second, 5 * time.Second, math.MaxInt64} {
			time.Sleep(time.Second)
			require.NoError(t, e.Ban(prefix("192.0.2.1/32"), d, ""))
			require.Len(t, e.Bans(), 1)
			require.Equal(t, d, e.Evaluate(client).RetryAfter)
			if until := e.Bans()[0].Until; d < math.MaxInt64 {
				require.Equal(t, d, time.Until(until))
			} else {
				require.Zero(t, until, "past the end of the clock is until Unban")
			}
		}
	})
}

func TestBanArguments(t *testing.T) {
	e := newEngine(t, engine.Config{})
	require.ErrorContains(t, e.Ban(netip.Prefix{}, 0, ""), "not a prefix")
	require.ErrorContains(t, e.Ban(prefix("192.0.2.0/24"), -1, ""), "negative")
	require.ErrorContains(t, e.Exempt(prefix("192.0.2.0/24"), netip.Prefix{}), "number 2")
	require.ErrorContains(t, e.Exempt(netip.Prefix{}), "number 1")
	require.False(t, e.Unban(netip.Prefix{}))
	require.Empty(t, e.Bans())
}

// C44: one of a thousand bans is lifted, the others hold.
func TestUnbanOne(t *testing.T) {
	e := newEngine(t, engine.Config{})
	host := func(i int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 1)
	}
	for i := range 1000 {
		require.NoError(t, e.Ban(netip.PrefixFrom(host(i).Addr(), 32), 0, ""))
	}
	require.True(t, e.Unban(netip.PrefixFrom(host(500).Addr(), 32)))
	for i := range 1000 {
		require.Equal(t, i == 500, e.Evaluate(host(i)).Allowed, "host %d", i)
	}
}

// A ban costs as much beside thousands as beside none: it copies a few nodes,
// not the list. C117
func TestManyBans(t *testing.T) {
	const n = 1000
	e := newEngine(t, engine.Config{})
	host := func(i int) netip.Prefix { return netip.PrefixFrom(addressOf(i*977).Addr(), 32) }
	before := allocated()
	for i := range n {
		require.NoError(t, e.Ban(host(i), time.Hour, ""))
	}
	require.Less(t, allocated()-before, uint64(n*24<<10))
	require.Len(t, e.Bans(), n)
	for i := range n {
		require.True(t, e.Unban(host(i)))
	}
	require.Empty(t, e.Bans())
}

// allocated is the memory that the process has ever allocated.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// The longest prefix wins, at equal length the exemption; C56.
func TestExempt(t *testing.T) {
	e := newEngine(t, engine.Config{Default: rate(1, 1e-6)})
	require.NoError(t, e.Ban(prefix("10.0.0.0/8"), 0, ""))
	require.NoError(t, e.Ban(prefix("10.1.2.3/32"), 0, ""))
	require.NoError(t, e.Ban(prefix("10.9.0.0/16"), 0, ""))
	require.NoError(t, e.Exempt(prefix("10.1.0.0/16"), prefix("10.9.0.0/16")))
	for range 3 {
		for host, want := range map[string]bool{
			"10.0.0.1": false, "10.1.0.1": true, "10.1.2.3": false, "10.9.0.1": true, "::ffff:10.1.0.1": true,
		} {
			require.Equal(t, want, e.Evaluate(addr(host)).Allowed, host)
		}
	}
	require.Equal(t, []string{"10.0.0.0/8", "10.1.2.3/32", "10.9.0.0/16"}, prefixes(e))
	require.Zero(t, e.Report().TrackedEndpoints)

	require.NoError(t, e.Exempt(prefix("192.0.2.0/24")))
	require.False(t, e.Evaluate(addr("10.1.0.1")).Allowed, "the list was replaced")
	require.False(t, e.Evaluate(addr("10.9.0.1")).Allowed, "and the ban beside it stayed")
	require.True(t, e.Evaluate(client).Allowed)
	require.NoError(t, e.Exempt())
	require.True(t, e.Evaluate(client).Allowed)
	require.False(t, e.Evaluate(client).Allowed)
}

func TestExemptFreesTheLockedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := lockedOut(t, client)
		require.NoError(t, e.Exempt(prefix("192.0.2.1/32")))
		require.True(t, e.Evaluate(client).Allowed)
		require.NoError(t, e.Exempt())
		require.Equal(t, policy.HardLockout, e.Evaluate(client).Reason)
	})
}

// lockedOut is an engine whose first denial locks out for a minute, and that
// has locked the endpoint out.
func lockedOut(t *testing.T, ep netip.AddrPort) *engine.Engine {
	p := rate(1, 1)
	p.Escalation = policy.Escalation{MaxSoftViolations: 1, Lockout: time.Minute}
	e := newEngine(t, engine.Config{Default: p})
	require.True(t, e.Evaluate(ep).Allowed)
	require.Equal(t, policy.HardLockout, e.Evaluate(ep).Reason)
	return e
}

// An ended ban does not hide a shorter prefix until it is swept out.
func TestEndedBanHidesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, engine.Config{})
		require.NoError(t, e.Ban(prefix("192.0.2.1/32"), time.Second, ""))
		require.NoError(t, e.Ban(prefix("192.0.2.0/24"), time.Hour, ""))
		time.Sleep(2 * time.Second)
		require.Equal(t, time.Hour-2*time.Second, e.Evaluate(client).RetryAfter)
		time.Sleep(engine.DefaultCleanupInterval)
		require.Equal(t, []string{"192.0.2.0/24"}, prefixes(e))
		require.False(t, e.Evaluate(client).Allowed)
	})
}

// Sweeping takes away bans that have ended, and no exemption. 40
func TestSweepKeepsLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, engine.Config{Default: rate(1, 1e3), Shards: 1, StaleAfter: time.Second, CleanupInterval: time.Minute})
		require.NoError(t, e.Ban(prefix("198.51.100.0/24"), 0, "for ever"))
		require.NoError(t, e.Ban(prefix("203.0.113.0/24"), time.Hour, "for an hour"))
		require.NoError(t, e.Exempt(prefix("192.0.2.0/24")))
		require.True(t, e.Evaluate(addr("192.0.3.1")).Allowed)
		time.Sleep(time.Hour - 1)
		require.Zero(t, e.Report().TrackedEndpoints, "it was swept")
		require.Equal(t, policy.Never, e.Evaluate(addr("198.51.100.7")).RetryAfter)
		require.EqualValues(t, 1, e.Evaluate(addr("203.0.113.7")).RetryAfter)
		time.Sleep(time.Hour)
		require.Equal(t, []string{"198.51.100.0/24"}, prefixes(e))
		require.True(t, e.Evaluate(addr("203.0.113.7")).Allowed)
		for range 3 {
			require.True(t, e.Evaluate(client).Allowed)
		}
	})
}

// A ban of an address inside a prefix that makes one endpoint hits it alone,
// and has nothing to do with the lockout of the endpoint.
func TestBanInsideAnEndpoint(t *testing.T) {
	e := newEngine(t, engine.Config{})
	require.NoError(t, e.Ban(prefix("2001:db8::5/128"), 0, ""))
	require.False(t, e.Evaluate(addr("2001:db8::5")).Allowed)
	require.True(t, e.Evaluate(addr("2001:db8::6")).Allowed)
}

func TestUnbanLiftsLockouts(t *testing.T) {
	for _, c := range []struct{ endpoint, prefix string }{
		{"192.0.2.1", "192.0.2.1/32"},
		{"192.0.2.1", "::ffff:192.0.2.1/128"},
		{"2001:db8::1", "2001:db8::/64"},
		{"2001:db8::1", "2001:db8::1/128"},
	} {
		t.Run(c.prefix, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := lockedOut(t, addr(c.endpoint))
				require.False(t, e.Unban(prefix("192.0.0.0/16")), "not the endpoint, but a net around it")
				require.True(t, e.Unban(prefix(c.prefix)))
				require.False(t, e.Unban(prefix(c.prefix)))
				require.Zero(t, e.Report().HardBlockedCount)
				time.Sleep(time.Second)
				require.True(t, e.Evaluate(addr(c.endpoint)).Allowed)
			})
		})
	}
}

// C44: of several that are locked out, the one that was meant is freed.
func TestUnbanLiftsOneLockout(t *testing.T) {
	p := rate(1, 1e-6)
	p.Escalation = policy.Escalation{MaxSoftViolations: 1, Lockout: time.Hour}
	e := newEngine(t, engine.Config{Default: p})
	for i := range 10 {
		e.Evaluate(addressOf(i))
		e.Evaluate(addressOf(i))
	}
	require.Equal(t, 10, e.Report().HardBlockedCount)
	require.True(t, e.Unban(netip.PrefixFrom(addressOf(3).Addr(), 32)))
	require.Equal(t, 9, e.Report().HardBlockedCount)
	row, _ := e.Lookup(addressOf(3))
	require.Zero(t, row.LockedForMs)
}

// A prefix of mapped addresses is that of the IPv4 addresses, all of them even.
func TestBanMapped(t *testing.T) {
	for _, p := range []string{"::ffff:192.0.2.1/128", "::ffff:192.0.2.0/120", "::ffff:0:0/96", "0.0.0.0/0"} {
		e := newEngine(t, engine.Config{})
		require.NoError(t, e.Ban(prefix(p), 0, ""))
		require.False(t, e.Evaluate(client).Allowed, p)
		require.False(t, e.Evaluate(addr("::ffff:192.0.2.1")).Allowed, p)
		require.True(t, e.Evaluate(addr("2001:db8::1")).Allowed, p)
		require.True(t, e.Bans()[0].Prefix.Addr().Is4())
	}
}

func TestUnbanLiftsBoth(t *testing.T) {
	e := lockedOut(t, client)
	require.NoError(t, e.Ban(prefix("192.0.2.1/32"), 0, ""))
	require.True(t, e.Unban(prefix("192.0.2.1/32")))
	row, ok := e.Lookup(client)
	require.True(t, ok)
	require.Zero(t, row.LockedForMs)
	require.Empty(t, e.Bans())
}

// With KeyByPort every port of the address is freed.
func TestUnbanEveryPort(t *testing.T) {
	p := rate(1, 1e-6)
	p.Escalation = policy.Escalation{MaxSoftViolations: 1}
	e := newEngine(t, engine.Config{Default: p, KeyByPort: true})
	for port := range uint16(10) {
		ep := netip.AddrPortFrom(client.Addr(), port)
		e.Evaluate(ep)
		e.Evaluate(ep)
	}
	require.Equal(t, 10, e.Report().HardBlockedCount)
	require.True(t, e.Unban(prefix("192.0.2.1/32")))
	require.Zero(t, e.Report().HardBlockedCount)
}

func TestListsUnderTraffic(t *testing.T) {
	e := newEngine(t, engine.Config{})
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					e.Evaluate(client)
				}
			}
		})
	}
	for range 300 {
		assert.NoError(t, e.Ban(prefix("192.0.2.0/24"), time.Nanosecond, ""))
		assert.NoError(t, e.Exempt(prefix("192.0.2.1/32")))
		e.Bans()
		assert.NoError(t, e.Exempt())
		e.Unban(prefix("192.0.2.0/24"))
	}
	close(stop)
	wg.Wait()
	assert.Empty(t, e.Bans())
	r := e.Report()
	assert.Equal(t, r.Evaluated, r.Allowed+r.SoftThrottled+r.HardLocked)
}
