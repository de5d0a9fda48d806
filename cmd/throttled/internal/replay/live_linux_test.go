package replay

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/netx"
)

// The gateway itself and a replay of what was sent to it agree on every count, for
// each endpoint too. Nothing refills, so that the time each datagram took on its
// way does not matter.
func TestReplayAgreesWithTheGateway(t *testing.T) {
	const yaml = `
engine: {adaptive: {enabled: false}}
policies:
  - {name: default, capacity: 20, refill: 1/h, violations: {max: 7, window: 1h}, lockout: {base: 1h}, bytes: {capacity: 8000, refill: 1/h}}
listeners:
  - {name: game, protocol: udp, listen: "127.0.0.1:%d", upstream: echo, udp: {max_datagram: 900}}
`
	c := parsed(t, fmt.Sprintf(yaml, 0))
	e, err := engine.New(c.Engine)
	require.NoError(t, err)
	defer e.Close()
	ls, err := c.Gateway(e)
	require.NoError(t, err)
	g, err := netx.StartGateway(netx.GatewayConfig{Engine: e, Listeners: ls})
	require.NoError(t, err)
	defer g.Close()
	listen := g.Addrs()[0]

	random := rand.New(rand.NewPCG(3, 4))
	var packets []stamped
	for i := range 8 {
		from := netip.AddrFrom4([4]byte{127, 0, 1, byte(i)})
		conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), net.UDPAddrFromAddrPort(listen))
		require.NoError(t, err)
		defer conn.Close()
		for range 5 * (i + 1) {
			size := random.IntN(1000)
			_, err := conn.Write(make([]byte, size))
			require.NoError(t, err)
			packets = append(packets, stamped{data: datagram(t, conn.LocalAddr().String(), listen.String(), size)})
		}
	}
	require.Eventually(t, func() bool {
		return g.Listeners()[0].Packets == int64(len(packets))
	}, 10*time.Second, 10*time.Millisecond)

	r := replayed(t, fmt.Sprintf(yaml, listen.Port()), sorted(t, layers.LinkTypeRaw, packets))
	live, got := g.Listeners()[0], r.Listeners[0]
	assert.Equal(t, live.Packets, got.Packets)
	assert.Equal(t, live.Bytes, got.Bytes)
	assert.Equal(t, live.Forwarded, got.Forwarded)
	assert.Equal(t, live.Dropped, got.Dropped)
	assert.Len(t, got.Dropped, 3)
	denied := map[string]int64{}
	for _, row := range e.Report().Top {
		denied[row.Endpoint] = row.Denied
	}
	for _, row := range r.Denied {
		assert.Equal(t, denied[row.Endpoint], row.Denied, row.Endpoint)
		delete(denied, row.Endpoint)
	}
	assert.Empty(t, denied)
}

// An engine that is asked at the time of each stamp and a replay agree, with
// refill, sweeps and lockouts that end.
func TestReplayAgreesWithTheEngine(t *testing.T) {
	const yaml = `
engine: {adaptive: {enabled: false}, stale_after: 5s, cleanup_interval: 2s}
policies:
  - {name: default, capacity: 6, refill: 2/s, violations: {max: 4, window: 3s}, lockout: {base: 4s, growth: 2, forget_after: 20s}}
listeners:
  - {name: game, protocol: udp, listen: 0.0.0.0:27015, upstream: echo}
`
	var packets []stamped
	random := rand.New(rand.NewPCG(5, 6))
	for at := time.Duration(0); len(packets) < 5000; at += time.Duration(random.ExpFloat64() * 3e7) {
		from := fmt.Sprintf("10.0.0.%d:9", int(random.ExpFloat64()*8))
		packets = append(packets, stamped{at: at, data: datagram(t, from, v4server, 20)})
	}
	r := replayed(t, yaml, sorted(t, layers.LinkTypeRaw, packets))
	denied := map[string]int64{}
	for _, e := range r.Denied {
		denied[e.Endpoint] = e.Denied
	}
	require.Greater(t, len(denied), 5)
	e := parsed(t, yaml).Engine
	synctest.Test(t, func(t *testing.T) {
		live, err := engine.New(e)
		require.NoError(t, err)
		defer live.Close()
		start := time.Now()
		for _, p := range packets {
			time.Sleep(time.Until(start.Add(p.at)))
			synctest.Wait()
			s, _ := parse(101, p.data, len(p.data))
			if !live.Evaluate(s.src).Allowed {
				denied[s.src.Addr().String()]--
			}
		}
		want, got := live.Report(), r.Listeners[0]
		assert.Equal(t, want.Allowed, got.Forwarded)
		assert.Equal(t, want.SoftThrottled, got.Dropped["soft_throttle"])
		assert.Equal(t, want.HardLocked, got.Dropped["hard_lockout"])
		for endpoint, n := range denied {
			assert.Zero(t, n, endpoint)
		}
	})
}
