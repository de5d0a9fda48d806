package engine_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
)

// Endpoints that share a bucket, and such that do not.
// C02, C05, C08, C13, 46, 47
func TestEndpointIdentity(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  engine.Config
		a, b string
		same bool
	}{
		{"every port of an address", engine.Config{}, "192.0.2.1:1", "192.0.2.1:2", true},
		{"ports with KeyByPort", engine.Config{KeyByPort: true}, "192.0.2.1:1", "192.0.2.1:2", false},
		{"port 0 with KeyByPort", engine.Config{KeyByPort: true}, "192.0.2.1:0", "192.0.2.1:1", false},
		{"neighbours", engine.Config{}, "192.0.2.1:1", "192.0.2.2:1", false},
		{"mapped", engine.Config{}, "192.0.2.1:1", "[::ffff:192.0.2.1]:1", true},
		{"mapped with a zone", engine.Config{}, "192.0.2.1:1", "[::ffff:192.0.2.1%eth0]:1", true},
		{"IPv4 that looks like IPv6", engine.Config{}, "0.0.0.1:1", "[::1]:1", false},
		{"a /64", engine.Config{}, "[2001:db8::1]:1", "[2001:db8::ffff:ffff:ffff:ffff]:1", true},
		{"two /64", engine.Config{}, "[2001:db8:0:1::1]:1", "[2001:db8:0:2::1]:1", false},
		{"a /24", engine.Config{IPv4Prefix: 24}, "192.0.2.1:1", "192.0.2.255:1", true},
		{"a /24 and the next", engine.Config{IPv4Prefix: 24}, "192.0.2.1:1", "192.0.3.1:1", false},
		{"IPv4 mask leaves IPv6 alone", engine.Config{IPv4Prefix: 8}, "[2001:db8::1]:1", "[2001:db8:0:1::1]:1", false},
		{"IPv6 mask leaves IPv4 alone", engine.Config{IPv6Prefix: 1}, "192.0.2.1:1", "192.0.2.2:1", false},
		{"a /128", engine.Config{IPv6Prefix: 128}, "[2001:db8::1]:1", "[2001:db8::2]:1", false},
		{"a /72", engine.Config{IPv6Prefix: 72}, "[2001:db8::1]:1", "[2001:db8::80:0:0:2]:1", true},
		{"outside a /72", engine.Config{IPv6Prefix: 72}, "[2001:db8::1]:1", "[2001:db8::100:0:0:1]:1", false},
		{"a /1", engine.Config{IPv6Prefix: 1}, "[2001:db8::1]:1", "[7fff::1]:1", true},
		{"zones of link-local addresses", engine.Config{}, "[fe80::1%eth0]:1", "[fe80::1%eth1]:1", false},
		{"one zone", engine.Config{}, "[fe80::1%eth0]:1", "[fe80::2%eth0]:1", true},
		{"zone and none", engine.Config{}, "[fe80::1%eth0]:1", "[fe80::1]:1", false},
		{"zones of other addresses", engine.Config{}, "[2001:db8::1%eth0]:1", "[2001:db8::1%eth1]:1", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cfg.Default = rate(1, 1e-6)
			e := newEngine(t, c.cfg)
			require.True(t, e.Evaluate(netip.MustParseAddrPort(c.a)).Allowed)
			require.Equal(t, !c.same, e.Evaluate(netip.MustParseAddrPort(c.b)).Allowed)
		})
	}
}

func TestEndpointNames(t *testing.T) {
	for _, c := range []struct {
		cfg            engine.Config
		endpoint, want string
	}{
		{engine.Config{}, "192.0.2.1:5", "192.0.2.1"},
		{engine.Config{}, "[::ffff:192.0.2.1]:5", "192.0.2.1"},
		{engine.Config{}, "[2001:db8::1]:5", "2001:db8::/64"},
		{engine.Config{IPv6Prefix: 128}, "[2001:db8::1]:5", "2001:db8::1"},
		{engine.Config{IPv4Prefix: 24}, "192.0.2.1:5", "192.0.2.0/24"},
		{engine.Config{KeyByPort: true}, "192.0.2.1:5", "192.0.2.1:5"},
		{engine.Config{KeyByPort: true}, "[2001:db8::1]:5", "[2001:db8::/64]:5"},
		{engine.Config{}, "[fe80::1%eth0]:5", "fe80::%eth0/64"},
		{engine.Config{}, "[fe80::1]:5", "fe80::/64"},
	} {
		e := newEngine(t, c.cfg)
		ep := netip.MustParseAddrPort(c.endpoint)
		e.Evaluate(ep)
		row, ok := e.Lookup(ep)
		require.True(t, ok)
		require.Equal(t, c.want, row.Endpoint)
	}
}

// C08: with the address as the key, ports cannot be rotated; with the port in
// it, each has its own. C09: eight players behind one address.
func TestEndpointPorts(t *testing.T) {
	count := func(e *engine.Engine, ports, packets int) (n int) {
		for port := range ports {
			for range packets {
				if e.Evaluate(netip.AddrPortFrom(client.Addr(), uint16(port))).Allowed {
					n++
				}
			}
		}
		return n
	}
	require.Equal(t, 100, count(newEngine(t, engine.Config{Default: rate(100, 1e-6)}), 1000, 1))
	require.Equal(t, 8*60, count(newEngine(t, engine.Config{Default: rate(600, 1e-6)}), 8, 60))
	require.Equal(t, 8*50, count(newEngine(t, engine.Config{Default: rate(50, 1e-6), KeyByPort: true}), 8, 60))
}

// Behind one address, with the port in the key, who floods from one port locks
// out nobody else. 48, C09
func TestLockoutOfOnePort(t *testing.T) {
	p := rate(12, 1e-6)
	p.Escalation = policy.Escalation{MaxSoftViolations: 3, Lockout: time.Hour}
	e := newEngine(t, engine.Config{Default: p, KeyByPort: true})
	from := func(port uint16) policy.Decision { return e.Evaluate(netip.AddrPortFrom(client.Addr(), port)) }
	for range 500 {
		from(7)
	}
	require.Equal(t, policy.HardLockout, from(7).Reason)
	for port := range uint16(7) {
		for range 12 {
			require.True(t, from(port).Allowed)
		}
	}
	require.Equal(t, 1, e.Report().HardBlockedCount)
}

func TestInvalidEndpoint(t *testing.T) {
	e := newEngine(t, engine.Config{})
	for _, ep := range []netip.AddrPort{{}, netip.AddrPortFrom(netip.Addr{}, 7000)} {
		require.Equal(t, policy.Decision{Reason: policy.HardLockout}, e.Evaluate(ep))
	}
	out := make([]policy.Decision, 1)
	e.EvaluateBatch([]engine.Request{{Endpoint: client, Bytes: -1}}, out)
	require.Equal(t, policy.Decision{Reason: policy.HardLockout}, out[0])
	took, wait := e.TakeBytes(netip.AddrPort{}, 0, 1)
	require.Zero(t, took)
	require.Equal(t, policy.Never, wait)
	r := e.Report()
	require.EqualValues(t, 3, r.Invalid)
	require.EqualValues(t, 3, r.HardLocked)
	require.Zero(t, r.TrackedEndpoints)
}

// C14: the seed is the engine's own and not told.
func TestSeedIsSecret(t *testing.T) {
	b, err := json.Marshal(newEngine(t, engine.Config{}).Report())
	require.NoError(t, err)
	require.NotContains(t, string(b), "Seed")
}

// Whatever the address, the mask and the port: the endpoint is found again, its
// mapped form is the same one, and its name is an address or a prefix.
func FuzzEndpoint(f *testing.F) {
	f.Add([]byte{192, 0, 2, 1}, uint16(5), "", uint8(24), uint8(64), false)
	f.Add(netip.MustParseAddr("fe80::1").AsSlice(), uint16(0), "eth0", uint8(1), uint8(1), true)
	f.Add(netip.MustParseAddr("::ffff:192.0.2.1").AsSlice(), uint16(9), "x", uint8(32), uint8(128), true)
	f.Fuzz(func(t *testing.T, b []byte, port uint16, zone string, v4, v6 uint8, byPort bool) {
		address, ok := netip.AddrFromSlice(b)
		if !ok {
			return
		}
		e := newEngine(t, engine.Config{
			Default: rate(1, 1e-6), Shards: 1,
			IPv4Prefix: int(v4%32) + 1, IPv6Prefix: int(v6%128) + 1, KeyByPort: byPort,
		})
		if address.Is6() {
			address = address.WithZone(zone)
		}
		ep := netip.AddrPortFrom(address, port)
		require.True(t, e.Evaluate(ep).Allowed)
		require.False(t, e.Evaluate(ep).Allowed)
		if address.Is4() {
			mapped := netip.AddrPortFrom(netip.AddrFrom16(address.As16()), port)
			require.False(t, e.Evaluate(mapped).Allowed)
		}
		row, ok := e.Lookup(ep)
		require.True(t, ok)
		require.NotEmpty(t, row.Endpoint)
		require.Len(t, e.Report().Top, 1)
		require.False(t, e.Unban(netip.PrefixFrom(address.Unmap().WithZone(""), address.Unmap().BitLen())), "nothing to lift")
	})
}

// addressOf is the host of the given number in 10/8.
func addressOf(i int) netip.AddrPort {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], 10<<24+uint32(i))
	return netip.AddrPortFrom(netip.AddrFrom4(b), 7000)
}

func ExampleEngine() {
	e, err := engine.New(engine.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer e.Close()
	from := netip.MustParseAddrPort("192.0.2.1:4000")
	for range 64 {
		e.Evaluate(from)
	}
	d := e.Evaluate(from)
	fmt.Println(d.Allowed, d.Reason)
	fmt.Println(e.Evaluate(netip.MustParseAddrPort("192.0.2.2:4000")).Allowed)
	// Output:
	// false soft_throttle
	// true
}
