package netx

import (
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ownPorts counts up, from anywhere, so that no two addresses of a test are the same.
var (
	ownPorts     atomic.Uint32
	ownPortsFrom = rand.Uint32N(12_000)
)

// ownAddr is an address whose port nobody has, nor gets while a test lets go of it
// or wants it on all addresses: not one of those that the kernel gives to clients
// (ip_local_port_range), who may have any on another address of the loopback net.
func ownAddr(t *testing.T, proto Protocol) netip.AddrPort {
	t.Helper()
	for range 1000 {
		port := uint16(20_000 + (ownPortsFrom+ownPorts.Add(1))%12_000)
		if lock, err := lockAddr(proto, netip.AddrPortFrom(netip.IPv4Unspecified(), port), false); err == nil {
			lock.release()
			return loopback(port)
		}
	}
	t.Fatal("no port is free")
	return netip.AddrPort{}
}

// A walk through many configurations: listeners come, go, change, swap names and
// addresses. After each step every listener serves on its address, and whoever
// has a name and a protocol since before has not forgotten what he has counted.
func TestReloadWalk(t *testing.T) { onEachPath(t, testReloadWalk) }

func testReloadWalk(t *testing.T, on path) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var addrs [TCP + 1][]netip.AddrPort
	for proto := range addrs {
		for range 3 {
			addrs[proto] = append(addrs[proto], ownAddr(t, Protocol(proto)))
		}
	}
	// draw makes up to three listeners for each protocol.
	draw := func() (listeners []ListenerConfig) {
		names := random.Perm(8)
		for proto := range addrs {
			for _, i := range random.Perm(3)[:random.IntN(4)] {
				l := udpTo("", Echo)
				if Protocol(proto) == TCP {
					l = tcpTo("", Echo)
				}
				l.Name, names = string(rune('a'+names[0])), names[1:]
				l.Listen = addrs[proto][i]
				listeners = append(listeners, changed(l, random.IntN(2)))
			}
		}
		if len(listeners) == 0 {
			listeners = append(listeners, udpTo("only", Echo))
		}
		return listeners
	}
	g := on.startOn(t, nil, draw()...)
	counted := map[[2]string]int64{}
	for range 60 {
		next := draw()
		require.NoError(t, g.Reload(next, time.Duration(random.IntN(20))*time.Millisecond))
		still := map[[2]string]int64{}
		for i, l := range next {
			at := g.Addrs()[i]
			if l.Protocol == TCP {
				require.NoError(t, fateOf(at.String(), "127.0.0.1"), l.Name)
			} else {
				c := dialUDP(t, "", at)
				exchange(t, c, []byte(l.Name))
				c.Close()
			}
			r := g.Listeners()[i]
			require.Equal(t, l.Name, r.Name)
			series := [2]string{l.Name, l.Protocol.String()}
			require.Equal(t, counted[series]+1, r.Packets, series)
			still[series] = r.Packets
		}
		counted = still
	}
	require.Eventually(t, func() bool { return len(g.all()) == len(g.Listeners()) }, settled, time.Millisecond)
}

// Addresses change hands among the listeners of one reload, and to others that
// overlap.
func TestReloadMovesAddresses(t *testing.T) {
	for _, proto := range []Protocol{UDP, TCP} {
		t.Run(proto.String(), func(t *testing.T) {
			listener := func(name string, at netip.AddrPort) ListenerConfig {
				l := udpTo(name, Echo)
				if proto == TCP {
					l = tcpTo(name, Echo)
				}
				l.Listen = at
				return l
			}
			serves := func(at netip.AddrPort) {
				t.Helper()
				if proto == TCP {
					require.NoError(t, fateOf(at.String(), "127.0.0.1"))
				} else {
					exchange(t, dialUDP(t, "", at), []byte("x"))
				}
			}
			x, y := ownAddr(t, proto), ownAddr(t, proto)
			g := fast.startOn(t, nil, listener("a", x), listener("b", y))
			serves(x)
			serves(y)
			require.NoError(t, g.Reload([]ListenerConfig{listener("a", y), listener("b", x)}, 0), "swapped")
			serves(x)
			serves(y)
			wide := netip.AddrPortFrom(netip.IPv4Unspecified(), x.Port())
			require.NoError(t, g.Reload([]ListenerConfig{listener("a", y), listener("b", wide)}, 0), "widened")
			serves(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.9"), x.Port()))
			require.NoError(t, g.Reload([]ListenerConfig{listener("a", y), listener("c", x)}, 0), "narrowed")
			serves(x)
			serves(y)
			assert.EqualValues(t, 1, g.Listeners()[1].Packets, "another name, other counters")
			assert.EqualValues(t, 3, g.Listeners()[0].Packets)
			assert.Equal(t, []netip.AddrPort{y, x}, g.Addrs())
		})
	}
}

// On a system whose sockets share no address, one that overlaps that of a
// listener which is to go is refused, and that one goes on.
func TestReloadOverlapOnPlainPath(t *testing.T) {
	a := udpTo("a", Echo)
	g := plain.startOn(t, nil, a)
	at := g.Addrs()[0]
	a.Listen = netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port())
	require.ErrorIs(t, g.Reload([]ListenerConfig{a}, 0), syscall.EADDRINUSE)
	exchange(t, dialUDP(t, "", at), []byte("x"))
}

// One address is taken over once, also where two listeners want it: the one whose
// port is any, and one that names the port which that has got.
func TestReloadOfAnAddressThatTwoWant(t *testing.T) {
	for _, proto := range []Protocol{UDP, TCP} {
		t.Run(proto.String(), func(t *testing.T) {
			a, b := udpTo("a", Echo), udpTo("b", Echo)
			a.Protocol, b.Protocol = proto, proto
			g := fast.startOn(t, nil, a)
			b.Listen = g.Addrs()[0]
			require.ErrorContains(t, g.Reload([]ListenerConfig{changed(a, 1), b}, 0), "listener b: "+proto.String())
			require.NoError(t, g.Reload([]ListenerConfig{b, changed(a, 1)}, 0))
			require.NotEqual(t, g.Addrs()[0], g.Addrs()[1])
		})
	}
}
