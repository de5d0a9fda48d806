package netx

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// The sender shares the port of a listener, as only the fast path allows it to.
func TestUDPFromTheGatewayItself(t *testing.T) { // C77
	any := netip.AddrPortFrom(localhost, 0)
	g, err := StartGateway(GatewayConfig{Engine: newEngine(t, unlimited), Listeners: []ListenerConfig{
		{Name: "a", Listen: any, Upstream: Echo}, {Name: "b", Listen: any, Upstream: Echo},
	}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, g.Close()) })
	b := g.Addrs()[1]
	forged := besideListener(t, b)
	_, err = forged.WriteTo([]byte("round and round"), net.UDPAddrFromAddrPort(g.Addrs()[0]))
	require.NoError(t, err)
	r := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == 1 })
	assert.Equal(t, map[string]int64{"self": 1}, r.Dropped)
}

// besideListener is a socket on the address of a listener.
func besideListener(t *testing.T, at netip.AddrPort) net.PacketConn {
	t.Helper()
	lc := net.ListenConfig{Control: func(_, _ string, c syscallRawConn) error {
		return c.Control(func(fd uintptr) {
			assert.NoError(t, unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
		})
	}}
	c, err := lc.ListenPacket(context.Background(), "udp4", at.String())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// An address that the machine got while the gateway was running is its own, too.
func TestUDPFromANewAddressOfTheGateway(t *testing.T) { // C77
	if !inNamespace(t) {
		return
	}
	upLoopback(t)
	up := manualUpstream(t, "127.0.0.1:0")
	g := fast.listener(t, newEngine(t, unlimited), nil, ListenerConfig{
		Name: "any", Listen: netip.MustParseAddrPort("0.0.0.0:7000"), Upstream: up.LocalAddr().String(),
		UDP: UDPOptions{SessionIdle: time.Millisecond},
	})
	added := netip.MustParseAddrPort("10.1.1.1:7000")
	addLoopback(t, added.Addr())
	forged := besideListener(t, added)
	require.Eventually(t, func() bool {
		_, err := forged.WriteTo([]byte("round and round"), &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7000})
		return err == nil && g.Listeners()[0].Dropped["self"] > 0
	}, ioTimeout, time.Millisecond)
}

// Where a datagram was sent to is the gateway's own, whether an interface has that
// address or a route alone.
func TestUDPFromWhereItWasSent(t *testing.T) { // C77
	g := fast.listener(t, newEngine(t, unlimited), nil, ListenerConfig{
		Name: "any", Listen: netip.MustParseAddrPort("0.0.0.0:0"), Upstream: Echo,
	})
	port := g.Addrs()[0].Port()
	own, other := netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("198.51.100.2")
	l := g.server(0).(*udpServer).loops[0]
	l.mu.Lock()
	defer l.mu.Unlock()
	rest := l.known([]datagram{
		{src: netip.AddrPortFrom(own, port), local: own},
		{src: netip.AddrPortFrom(other, port), local: own},
		{src: netip.AddrPortFrom(own, port+1), local: own},
	})
	require.Len(t, rest, 2)
	assert.Equal(t, other, rest[0].src.Addr())
	assert.Equal(t, port+1, rest[1].src.Port())
	assert.EqualValues(t, 1, l.batch.dropped[dropSelf])
}

func TestUDPThrottles(t *testing.T) { onEachPath(t, testUDPThrottles) } // C08, C02

func testUDPThrottles(t *testing.T, on path) {
	e := newEngine(t, 8)
	g := on.start(t, e, Echo, UDPOptions{})
	for i := range 4 { // another port is no way out
		c := dialUDP(t, "127.0.0.66", g.Addrs()[0])
		for j := range 5 {
			if 5*i+j < 8 {
				exchange(t, c, []byte("flood"))
			} else {
				send(t, c, []byte("flood"))
			}
		}
	}
	exchange(t, dialUDP(t, "127.0.0.67", g.Addrs()[0]), []byte("honest"))

	r := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == 21 })
	assert.Equal(t, map[string]int64{"soft_throttle": 4, "hard_lockout": 8}, r.Dropped)
	assert.Equal(t, int64(9), r.Forwarded)
	assert.LessOrEqual(t, r.SessionsActive, int64(3), "a session for a client that was denied")
	top := e.Report().Top
	require.NotEmpty(t, top)
	assert.Equal(t, "127.0.0.66", top[0].Endpoint)
}

func TestUDPByteBudget(t *testing.T) { onEachPath(t, testUDPByteBudget) }

func testUDPByteBudget(t *testing.T, on path) {
	e, err := engine.New(engine.Config{
		Default: policy.Policy{
			Packets: tokenbucket.Limit{Capacity: 1000, RefillPerSecond: 1e-6},
			Bytes:   &tokenbucket.Limit{Capacity: 5000, RefillPerSecond: 1e-6},
		},
		Load: engine.NoLoad,
	})
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	g := on.start(t, e, Echo, UDPOptions{})
	c := dialUDP(t, "", g.Addrs()[0])
	exchange(t, c, randomBytes(3000))
	send(t, c, randomBytes(3000))
	exchange(t, c, randomBytes(2000))
	r := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == 3 })
	assert.Equal(t, map[string]int64{"soft_throttle": 1}, r.Dropped)
	assert.Equal(t, int64(8000), r.Bytes)
}

func TestBogon(t *testing.T) {
	for addr, want := range map[string]bool{
		"0.0.0.0:5": true, "[::]:5": true, "224.0.0.1:5": true, "[ff02::1]:5": true,
		"255.255.255.255:5": true, "10.0.0.1:0": true, "10.0.0.1:5": false, "[2001:db8::1]:5": false,
	} {
		assert.Equal(t, want, Bogon(netip.MustParseAddrPort(addr)), addr)
	}
}

// An honest client gets all its answers beside a flood.
func TestUDPFlood(t *testing.T) { onEachPath(t, testUDPFlood) }

func testUDPFlood(t *testing.T, on path) {
	e, err := engine.New(engine.Config{Load: engine.NoLoad}) // the default policy
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	g := on.start(t, e, Echo, UDPOptions{})
	ctx, cancel := context.WithCancel(context.Background())
	var (
		wg   sync.WaitGroup
		sent int64
	)
	flood := dialUDP(t, "127.0.0.66", g.Addrs()[0])
	wg.Go(func() {
		p := make([]byte, 64)
		for tick := time.NewTicker(time.Millisecond); ctx.Err() == nil; <-tick.C {
			for range 20 {
				if _, err := flood.Write(p); err == nil {
					sent++
				}
			}
		}
	})
	honest := dialUDP(t, "127.0.0.10", g.Addrs()[0])
	const packets = 25
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for i := range packets {
		p := binary.BigEndian.AppendUint64(nil, uint64(i))
		exchange(t, honest, p)
		<-tick.C
	}
	cancel()
	wg.Wait()

	rep := e.Report()
	require.NotEmpty(t, rep.Top)
	assert.Equal(t, "127.0.0.66", rep.Top[0].Endpoint)
	for _, row := range rep.Top {
		assert.NotEqual(t, "127.0.0.10", row.Endpoint)
	}
	r := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets > packets })
	assert.Greater(t, r.Dropped["hard_lockout"], int64(1000))
	assert.LessOrEqual(t, r.Packets, sent+packets)
}

// Nothing of ours is allocated for a datagram that a session or a denial is
// known for.
func TestUDPDatagramAllocates(t *testing.T) { onEachPath(t, testUDPDatagramAllocates) }

func testUDPDatagramAllocates(t *testing.T, on path) {
	for _, tc := range []struct {
		name     string
		capacity int64
	}{{"forwarded", unlimited}, {"denied", 1}} {
		t.Run(tc.name, func(t *testing.T) {
			up := manualUpstream(t, "127.0.0.1:0")
			g := on.start(t, newEngine(t, tc.capacity), up.LocalAddr().String(), UDPOptions{})
			l := g.server(0).(*udpServer).loops[0]
			src, p := netip.MustParseAddrPort("127.0.0.9:1234"), make([]byte, 64)
			ds := make([]datagram, batchSize)
			relay := func() {
				for i := range ds {
					ds[i] = datagram{src: src, payload: p, size: len(p)}
				}
				l.mu.Lock()
				defer l.mu.Unlock()
				l.relay(ds)
			}
			relay()
			assert.Zero(t, testing.AllocsPerRun(200, relay))
		})
	}
}
