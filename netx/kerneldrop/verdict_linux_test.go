package kerneldrop

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// newEngine locks an endpoint out at its first denial.
func newEngine(t testing.TB, c engine.Config, capacity int64, lockout time.Duration) *engine.Engine {
	t.Helper()
	p := policy.Policy{
		Packets:    tokenbucket.Limit{Capacity: capacity, RefillPerSecond: 1e-6},
		Escalation: policy.Escalation{MaxSoftViolations: 1, Lockout: lockout},
	}
	c.Default, c.Load = p, engine.NoLoad
	p.Name = "other"
	c.Policies = []policy.Policy{p}
	e, err := engine.New(c)
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	return e
}

func newTable(t testing.TB, c Config) *Table {
	t.Helper()
	table, err := New(c)
	require.NoError(t, err, "these tests need root: CAP_BPF and CAP_NET_ADMIN")
	t.Cleanup(func() { require.NoError(t, table.Close()) })
	return table
}

func newFilter(t testing.TB, table *Table, id engine.PolicyID) *Filter {
	t.Helper()
	f, err := table.Filter(id)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

// drops runs the filter on a datagram from an address. In the kernel's test run
// the packet begins with its network header, so ports cannot be tested so.
func (f *Filter) drops(t testing.TB, from netip.Addr) bool {
	t.Helper()
	verdict, _, err := f.prog.Test(frame(from))
	require.NoError(t, err)
	return verdict == 0
}

// frame is an Ethernet frame with an empty datagram.
func frame(from netip.Addr) []byte {
	b := make([]byte, 14, 64)
	if from.Is4() {
		binary.BigEndian.PutUint16(b[12:], etherTypeIPv4)
		b = append(b, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0)
		b = append(b, from.AsSlice()...)
		b = append(b, 127, 0, 0, 1)
	} else {
		binary.BigEndian.PutUint16(b[12:], etherTypeIPv6)
		b = append(b, 0x60, 0, 0, 0, 0, 8, 17, 64)
		b = append(b, from.AsSlice()...)
		b = append(b, netip.IPv6Loopback().AsSlice()...)
	}
	return append(b, 0x30, 0x39, 0x1b, 0x58, 0, 8, 0, 0)
}

const patience = 10 * time.Second

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func at(addr string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(addr), 12345) }

// lockOut makes the engine lock an endpoint out and waits until the kernel drops
// what comes from it.
func lockOut(t testing.TB, f *Filter, addr string) {
	t.Helper()
	ep := at(addr)
	for f.table.engine.LockedFor(ep, f.policy) == 0 {
		f.table.engine.EvaluatePolicy(ep, f.policy)
	}
	f.Locked(ep)
	require.Eventually(t, func() bool { return f.drops(t, ep.Addr()) }, patience, time.Millisecond)
}

// verdicts wants the filter to drop, or to let pass, what comes from addresses.
func verdicts(t testing.TB, f *Filter, want map[string]bool) {
	t.Helper()
	for addr, drops := range want {
		require.Equal(t, drops, f.drops(t, netip.MustParseAddr(addr)), addr)
	}
}

func TestLockedOut(t *testing.T) {
	for _, test := range []struct {
		name       string
		ipv4, ipv6 int
		want       map[string]bool
	}{
		{"default", 0, 0, map[string]bool{
			"192.0.2.1": true, "192.0.2.0": false, "192.0.2.2": false, "192.0.3.1": false,
			"2001:db8::1": true, "2001:db8::2:0:0:2": true, "2001:db8:0:1::1": false,
		}},
		{"longest", 32, 128, map[string]bool{
			"192.0.2.1": true, "192.0.2.0": false, "2001:db8::1": true, "2001:db8::": false, "2001:db8::3": false,
		}},
		{"shorter", 24, 56, map[string]bool{
			"192.0.2.1": true, "192.0.2.255": true, "192.0.3.1": false,
			"2001:db8::1": true, "2001:db8:0:ff::1": true, "2001:db8:0:100::1": false,
		}},
		{"odd", 23, 75, map[string]bool{
			"192.0.2.1": true, "192.0.3.9": true, "192.0.1.1": false, "192.0.4.1": false,
			"2001:db8::1": true, "2001:db8:0:0:1f::1": true, "2001:db8:0:0:20::1": false,
		}},
		{"shortest", 1, 1, map[string]bool{"255.0.0.1": true, "127.0.0.1": false, "::1": true, "8000::": false}},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := newEngine(t, engine.Config{IPv4Prefix: test.ipv4, IPv6Prefix: test.ipv6}, 3, time.Hour)
			f := newFilter(t, newTable(t, Config{Engine: e}), 0)
			for addr := range test.want {
				require.False(t, f.drops(t, netip.MustParseAddr(addr)), "%s before", addr)
			}
			lockOut(t, f, "192.0.2.1")
			lockOut(t, f, "2001:db8::1")
			verdicts(t, f, test.want)
			// An IPv4-mapped source in an IPv6 header is left to user space.
			verdicts(t, f, map[string]bool{"::ffff:192.0.2.1": false, "::ffff:192.0.2.2": false})
		})
	}
}

// Whoever is locked out under one policy passes the listeners of another one.
func TestPoliciesAreKeptApart(t *testing.T) {
	e := newEngine(t, engine.Config{}, 3, time.Hour)
	other, ok := e.Policy("other")
	require.True(t, ok)
	table := newTable(t, Config{Engine: e})
	a, b, again := newFilter(t, table, 0), newFilter(t, table, other), newFilter(t, table, 0)
	lockOut(t, a, "192.0.2.1")
	lockOut(t, b, "192.0.2.2")
	verdicts(t, a, map[string]bool{"192.0.2.1": true, "192.0.2.2": false})
	verdicts(t, b, map[string]bool{"192.0.2.1": false, "192.0.2.2": true})
	verdicts(t, again, map[string]bool{"192.0.2.1": true, "192.0.2.2": false})
}

// C42, C46: the longest prefix decides, at equal length the exemption.
func TestLists(t *testing.T) {
	e := newEngine(t, engine.Config{}, 3, time.Hour)
	require.NoError(t, e.Ban(prefix("203.0.113.0/24"), 0, "before the table"))
	f := newFilter(t, newTable(t, Config{Engine: e}), 0)
	verdicts(t, f, map[string]bool{"203.0.113.77": true, "203.0.112.77": false})

	require.NoError(t, e.Exempt(prefix("203.0.113.7/32"), prefix("2001:db8::/32"), prefix("::ffff:198.51.100.0/120")))
	require.NoError(t, e.Ban(prefix("2001:db8::bad/128"), time.Hour, ""))
	require.NoError(t, e.Ban(prefix("2001:db8::/32"), time.Hour, "as long as the exemption"))
	require.NoError(t, e.Ban(prefix("198.51.100.128/25"), time.Hour, ""))
	lockOut(t, f, "192.0.2.1")
	verdicts(t, f, map[string]bool{
		"203.0.113.7": false, "203.0.113.6": true, "203.0.113.8": true,
		"2001:db8::bad": true, "2001:db8::bac": false, "2001:db8:1::1": false,
		"198.51.100.127": false, "198.51.100.128": true, "192.0.2.1": true,
	})
	require.NoError(t, e.Ban(prefix("::/0"), 0, "all of IPv6"))
	verdicts(t, f, map[string]bool{"::1": true, "2001:db9::": true, "2001:db8::1": false, "127.0.0.1": false})
	require.NoError(t, e.Ban(prefix("0.0.0.0/0"), 0, "all of IPv4"))
	verdicts(t, f, map[string]bool{"127.0.0.1": true, "198.51.100.127": false, "203.0.113.7": false})
	require.True(t, e.Unban(prefix("::/0")))
	verdicts(t, f, map[string]bool{"::1": false, "127.0.0.1": true, "2001:db8::bad": true})
}

// A ban of an address inside an endpoint is no lockout of the endpoint.
func TestBanInsideAnEndpoint(t *testing.T) {
	e := newEngine(t, engine.Config{}, 3, time.Hour)
	f := newFilter(t, newTable(t, Config{Engine: e}), 0)
	require.NoError(t, e.Ban(prefix("2001:db8::1/128"), 0, ""))
	require.False(t, e.Evaluate(at("2001:db8::1")).Allowed)
	f.table.admit(offer{from: at("2001:db8::1")})
	verdicts(t, f, map[string]bool{"2001:db8::1": true, "2001:db8::2": false})
}

// What the engine lifts is lifted in the kernel when its method returns.
func TestLiftedAtOnce(t *testing.T) {
	e := newEngine(t, engine.Config{IPv4Prefix: 24}, 3, time.Hour)
	other, _ := e.Policy("other")
	table := newTable(t, Config{Engine: e})
	f, g := newFilter(t, table, 0), newFilter(t, table, other)
	for range 20 {
		lockOut(t, f, "192.0.2.1")
		lockOut(t, g, "192.0.2.1")
		lockOut(t, f, "198.51.100.1")
		require.True(t, e.Unban(prefix("192.0.2.9/32"))) // an address of the endpoint
		verdicts(t, f, map[string]bool{"192.0.2.1": false, "192.0.2.9": false, "198.51.100.1": true})
		verdicts(t, g, map[string]bool{"192.0.2.1": false})

		require.NoError(t, e.Exempt(prefix("198.51.100.1/32")))
		verdicts(t, f, map[string]bool{"198.51.100.1": false, "198.51.100.2": true})
		require.NoError(t, e.Exempt())
		verdicts(t, f, map[string]bool{"198.51.100.1": true})
		require.True(t, e.Unban(prefix("198.51.100.0/24")))
		verdicts(t, f, map[string]bool{"198.51.100.1": false})

		require.NoError(t, e.Ban(prefix("10.0.0.0/8"), 0, ""))
		verdicts(t, f, map[string]bool{"10.1.1.1": true})
		require.True(t, e.Unban(prefix("10.0.0.0/8")))
		verdicts(t, f, map[string]bool{"10.1.1.1": false})
	}
}

// A policy that is no more takes its lockouts with it, also where it comes back.
func TestLockoutsGoWithTheirPolicy(t *testing.T) {
	e := newEngine(t, engine.Config{}, 3, time.Hour)
	other, _ := e.Policy("other")
	table := newTable(t, Config{Engine: e})
	f, g := newFilter(t, table, 0), newFilter(t, table, other)
	lockOut(t, f, "192.0.2.1")
	lockOut(t, g, "192.0.2.2")
	c := e.Config()
	require.NoError(t, e.SetPolicies(c.Default, nil))
	require.NoError(t, e.SetPolicies(c.Default, c.Policies))
	require.Zero(t, e.LockedFor(at("192.0.2.2"), other))
	verdicts(t, f, map[string]bool{"192.0.2.1": true})
	verdicts(t, g, map[string]bool{"192.0.2.2": false})
}

// C36, C37
func TestBanReplaced(t *testing.T) {
	e := newEngine(t, engine.Config{}, 3, time.Hour)
	table := newTable(t, Config{Engine: e})
	f := newFilter(t, table, 0)
	p, ep := prefix("192.0.2.1/32"), at("192.0.2.1")
	require.NoError(t, e.Ban(p, time.Hour, ""))
	require.NoError(t, e.Ban(p, 300*time.Millisecond, "shorter"))
	follows(t, f, ep, func() time.Duration { _, left := e.Listed(p); return left })
	require.Eventually(t, func() bool { n, m := table.sizes(t); return n == 0 && m == 0 }, patience, time.Millisecond)

	require.NoError(t, e.Ban(p, 200*time.Millisecond, ""))
	require.NoError(t, e.Ban(p, time.Hour, "longer"))
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); {
		require.True(t, f.drops(t, ep.Addr()), "the end is that of the shorter one")
	}
	require.NoError(t, e.Ban(prefix("192.0.0.0/16"), time.Hour, ""))
	require.NoError(t, e.Ban(p, time.Millisecond, "inside"))
	require.Eventually(t, func() bool { return f.drops(t, ep.Addr()) }, patience, time.Millisecond, "the shorter prefix shows again")
}

// sizes are those of the maps in the kernel, as the kernel counts.
func (t *Table) sizes(tb testing.TB) (prefixes, endpoints int) {
	var (
		p prefixKey
		e endpointKey
		v uint64
	)
	t.mu.Lock()
	defer t.mu.Unlock()
	for all := t.prefixes.Iterate(); all.Next(&p, &v); prefixes++ {
	}
	for all := t.endpoints.Iterate(); all.Next(&e, &v); endpoints++ {
	}
	require.Len(tb, t.listed.ends, prefixes)
	require.Len(tb, t.locked.ends, endpoints)
	return prefixes, endpoints
}

// follows wants the filter to drop what comes from ep as long as left says, up
// to some milliseconds that are user space's, and never longer.
func follows(t testing.TB, f *Filter, ep netip.AddrPort, left func() time.Duration) {
	t.Helper()
	dropped := false
	for ended := false; !ended; {
		ended = left() == 0 // before the filter is asked
		drops := f.drops(t, ep.Addr())
		dropped = dropped || drops
		require.False(t, drops && ended, "dropped after the end")
		require.True(t, drops || left() < 20*time.Millisecond, "not dropped %v before the end", left())
	}
	require.True(t, dropped)
}

// The kernel never drops beyond the end of a lockout, which it knows to some
// milliseconds.
func TestLockoutEnds(t *testing.T) {
	e := newEngine(t, engine.Config{}, 3, 100*time.Millisecond)
	table := newTable(t, Config{Engine: e})
	f := newFilter(t, table, 0)
	for i := range 10 {
		ep := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 12345)
		for e.LockedFor(ep, 0) == 0 {
			e.Evaluate(ep)
		}
		table.admit(offer{from: ep})
		follows(t, f, ep, func() time.Duration { return e.LockedFor(ep, 0) })
	}
	require.Eventually(t, func() bool { n, m := table.sizes(t); return n == 0 && m == 0 }, patience, time.Millisecond)
}

// A denial that is no lockout of an endpoint leaves nothing in the kernel.
func TestOnlyLockoutsGoIn(t *testing.T) {
	e := newEngine(t, engine.Config{MaxTrackedEndpoints: 1, OnFull: engine.Deny}, 1, time.Hour)
	table := newTable(t, Config{Engine: e})
	lockOut(t, newFilter(t, table, 0), "192.0.2.1")
	require.Equal(t, policy.HardLockout, e.Evaluate(at("192.0.2.2")).Reason, "the engine has no room for it")
	require.NoError(t, e.Ban(prefix("192.0.2.3/32"), 0, ""))
	for _, o := range []offer{
		{from: at("192.0.2.2")}, {from: at("192.0.2.3")}, {from: at("192.0.2.1"), policy: 1}, {from: at("192.0.2.1"), policy: 99},
	} {
		table.admit(o)
	}
	_, endpoints := table.sizes(t)
	require.Equal(t, 1, endpoints)

	// One that was lifted before it is looked at does not come back.
	require.True(t, e.Unban(prefix("192.0.2.1/32")))
	table.admit(offer{from: at("192.0.2.1")})
	_, endpoints = table.sizes(t)
	require.Zero(t, endpoints)
}

// A link-local endpoint is known by its zone, which the filter does not see.
func TestLinkLocalIsLeftToUserSpace(t *testing.T) {
	e := newEngine(t, engine.Config{}, 1, time.Hour)
	table := newTable(t, Config{Engine: e})
	f := newFilter(t, table, 0)
	ep := netip.AddrPortFrom(netip.MustParseAddr("fe80::1%lo"), 1)
	for e.LockedFor(ep, 0) == 0 {
		e.Evaluate(ep)
	}
	table.admit(offer{from: ep})
	verdicts(t, f, map[string]bool{"fe80::1": false})
	require.NoError(t, e.Ban(prefix("fe80::/10"), 0, "whatever the zone"))
	verdicts(t, f, map[string]bool{"fe80::1": true})
}
