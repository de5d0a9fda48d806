package engine

import (
	"net/netip"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/policy"
)

// An identity is what the contract says an endpoint is.
type identity struct {
	prefix netip.Prefix
	zone   string
	port   uint16
}

// linkLocals is where zones count.
var linkLocals = netip.MustParsePrefix("fe80::/10")

func identityOf(e *Engine, ep netip.AddrPort) identity {
	a, bits := ep.Addr().Unmap(), e.cfg.IPv6Prefix
	if a.Is4() {
		bits = e.cfg.IPv4Prefix
	}
	id := identity{prefix: netip.PrefixFrom(a.WithZone(""), bits).Masked()}
	if linkLocals.Contains(id.prefix.Addr()) {
		id.zone = a.Zone()
		b := id.prefix.Addr().As16()
		clear(b[2:8]) // and the low bits of b[1]: they make no endpoint
		b[1] &= 0xc0
		id.prefix = netip.PrefixFrom(netip.AddrFrom16(b), bits)
	}
	if e.cfg.KeyByPort {
		id.port = ep.Port()
	}
	return id
}

// parseEndpoint reads what endpoint has written.
func parseEndpoint(t *testing.T, e *Engine, s string) (id identity) {
	t.Helper()
	if e.cfg.KeyByPort {
		i := strings.LastIndexByte(s, ':')
		port, err := strconv.ParseUint(s[i+1:], 10, 16)
		require.NoError(t, err)
		id.port = uint16(port)
		s = strings.Trim(s[:i], "[]")
	}
	s, length, cut := strings.Cut(s, "/")
	a, err := netip.ParseAddr(s)
	require.NoError(t, err)
	bits := a.BitLen()
	if cut {
		bits, err = strconv.Atoi(length)
		require.NoError(t, err)
	}
	id.zone, id.prefix = a.Zone(), netip.PrefixFrom(a.WithZone(""), bits)
	require.Equal(t, id.prefix.Masked(), id.prefix)
	return id
}

// ordinary is a zone that can be read back.
var ordinary = regexp.MustCompile(`^[a-z0-9]*$`)

// Two endpoints have one key exactly where they are one by the rules; the key
// does not change, is that of the mapped address too, and its name reads back.
// 46, 47, C13
func FuzzKey(f *testing.F) {
	add := func(a, zoneA, b, zoneB string, v4, v6 uint8, byPort bool) {
		f.Add(netip.MustParseAddr(a).AsSlice(), zoneA, uint16(1), netip.MustParseAddr(b).AsSlice(), zoneB, uint16(2), v4, v6, byPort)
	}
	add("192.0.2.1", "", "::ffff:192.0.2.1", "eth0", 31, 63, false)
	add("::1", "", "0.0.0.1", "", 31, 127, true)
	add("2001:db8::ffff:192.0.2.1", "", "2001:db8::ffff:192.0.2.2", "", 0, 127, false)
	add("fe80::1", "eth0", "fe80::1", "eth1", 0, 63, false)
	add("fe80::1", "eth0", "fe80:0:0:1::1", "", 0, 63, false)
	add("fe80::1", "eth0", "fe80:1::1", "eth0", 0, 127, false)
	add("fe80:0:0:1::1", "", "fe80:0:0:2::1", "", 0, 63, true)
	add("febf:ffff:ffff:ffff::", "eth0", "fec0::", "eth0", 0, 8, true)
	f.Fuzz(func(t *testing.T, a []byte, zoneA string, portA uint16, b []byte, zoneB string, portB uint16, v4, v6 uint8, byPort bool) {
		e := &Engine{cfg: Config{IPv4Prefix: int(v4%32) + 1, IPv6Prefix: int(v6%128) + 1, KeyByPort: byPort}}
		e.masks = newMasks(e.cfg)
		addrA, okA := netip.AddrFromSlice(a)
		addrB, okB := netip.AddrFromSlice(b)
		if !okA || !okB {
			return
		}
		epA, epB := netip.AddrPortFrom(addrA.WithZone(zoneA), portA), netip.AddrPortFrom(addrB.WithZone(zoneB), portB)
		keyA, keyB := e.key(epA, 3), e.key(epB, 3)
		idA, idB := identityOf(e, epA), identityOf(e, epB)
		require.Equal(t, idA == idB, keyA == keyB, "%v and %v", idA, idB)
		require.Equal(t, keyA, e.key(epA, 3))
		require.NotEqual(t, keyA, e.key(epA, 4))
		if addrA.Is4() {
			require.Equal(t, keyA, e.key(netip.AddrPortFrom(netip.AddrFrom16(addrA.As16()), portA), 3))
		}
		if ordinary.MatchString(idA.zone) {
			require.Equal(t, idA, parseEndpoint(t, e, e.endpoint(keyA)))
		}
	})
}

// There is no end of zones that somebody could invent; beyond a bound they
// share one bucket.
func TestZonesAreBounded(t *testing.T) {
	z := zones{names: make([]string, maxZones-2)}
	numbers := map[uint16]bool{}
	for _, name := range []string{"eth0", "eth1", "eth2", "eth3"} {
		numbers[z.number(name)] = true
	}
	require.Len(t, numbers, 2)
	require.Len(t, z.names, maxZones)
	require.Equal(t, "eth0", z.name(z.number("eth0")))
}

// The seed is another one for each engine. C14
func TestSeeds(t *testing.T) {
	seeds := map[uint64]bool{}
	for range 100 {
		e := start(t, policy.Policy{})
		seeds[reflect.ValueOf(e.table).Elem().FieldByName("seed").Uint()] = true
	}
	require.Len(t, seeds, 100)
}
