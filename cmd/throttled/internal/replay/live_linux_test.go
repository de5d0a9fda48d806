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

// startLive is the gateway of a configuration, and what decides there.
func startLive(t *testing.T, yaml string) (*netx.Gateway, *engine.Engine) {
	t.Helper()
	c := parsed(t, yaml)
	e, err := engine.New(c.Engine)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, e.Close()) })
	require.NoError(t, e.Deny(c.Deny...))
	listeners, err := c.Gateway(e)
	require.NoError(t, err)
	g, err := netx.StartGateway(netx.GatewayConfig{Engine: e, Listeners: listeners})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, g.Close()) })
	return g, e
}

// The gateway itself and a replay of what was sent to it agree on every count, for
// each endpoint too: in earnest, in dry runs of a listener and of a policy, with
// policies by opcode and a list of the denied (C96, C112). Nothing refills, so that
// the time each datagram took on its way does not matter.
func TestReplayAgreesWithTheGateway(t *testing.T) {
	const yaml = `
engine: {adaptive: {enabled: false}}
deny: [127.0.1.6, 127.0.1.7]
policies:
  - {name: default, capacity: 20, refill: 1/h, violations: {max: 7, window: 1h}, lockout: {base: 1h}, bytes: {capacity: 8000, refill: 1/h}}
  - {name: status, capacity: 4, refill: 1/h, dry_run: true, violations: {max: 3, window: 1h}, lockout: {base: 1h}}
  - {name: chat, capacity: 6, refill: 1/h, lockout: off}
listeners:
  - {name: game, protocol: udp, listen: "127.0.0.1:%d", upstream: echo, udp: {max_datagram: 900},
     opcodes: {offset: 1, size: 2, policies: {0x0102: status, 0x0103: chat}}}
  - {name: trial, protocol: udp, listen: "127.0.0.1:%d", upstream: echo, udp: {max_datagram: 900}, dry_run: true,
     opcodes: {offset: 2, policies: {2: status, 3: chat}}}
`
	g, e := startLive(t, fmt.Sprintf(yaml, 0, 0))

	random := rand.New(rand.NewPCG(3, 4))
	var packets []stamped
	for i := range 16 { // each talks to one of the listeners, which share budgets
		listen := g.Addrs()[i%2]
		from := netip.AddrFrom4([4]byte{127, 0, 1, byte(i)})
		conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), net.UDPAddrFromAddrPort(listen))
		require.NoError(t, err)
		defer conn.Close()
		for range 5 * (i + 1) {
			payload := make([]byte, random.IntN(1000))
			if random.IntN(8) == 0 {
				payload = payload[:min(len(payload), random.IntN(4))] // mostly too short for an opcode
			}
			copy(payload, []byte{9, 1, byte(random.IntN(5))})
			_, err := conn.Write(payload)
			require.NoError(t, err)
			packets = append(packets, stamped{data: datagramOf(t, conn.LocalAddr().String(), listen.String(), payload)})
		}
	}
	require.Eventually(t, func() bool {
		return g.Listeners()[0].Packets+g.Listeners()[1].Packets == int64(len(packets))
	}, 10*time.Second, 10*time.Millisecond)

	r := replayed(t, fmt.Sprintf(yaml, g.Addrs()[0].Port(), g.Addrs()[1].Port()), sorted(t, layers.LinkTypeRaw, packets))
	for i, live := range g.Listeners() {
		got := r.Listeners[i]
		assert.Equal(t, live.Packets, got.Packets, live.Name)
		assert.Equal(t, live.Bytes, got.Bytes, live.Name)
		assert.Equal(t, live.Forwarded, got.Forwarded, live.Name)
		assert.Equal(t, live.Dropped, got.Dropped, live.Name)
		assert.Equal(t, live.WouldDrop, got.WouldDrop, live.Name)
	}
	assert.Len(t, r.Listeners[0].Dropped, 4, "soft_throttle, hard_lockout, denied and oversize: %v", r.Listeners[0].Dropped)
	assert.Len(t, r.Listeners[0].WouldDrop, 3, "of the policy")
	assert.Len(t, r.Listeners[1].WouldDrop, 3)
	assert.NotContains(t, r.Listeners[1].Dropped, "soft_throttle")
	denied := map[string]int64{}
	rows, _, _ := e.Endpoints(1000)
	for _, row := range rows {
		if row.Denied > 0 {
			denied[row.Endpoint+" "+row.Policy] = row.Denied
		}
	}
	listed := 0
	for _, row := range r.Denied {
		if row.Endpoint == "127.0.1.6" || row.Endpoint == "127.0.1.7" {
			listed++ // and has no entry
			continue
		}
		who := row.Endpoint + " " + row.Policy
		assert.Equal(t, denied[who], row.Denied, who)
		delete(denied, who)
	}
	assert.Empty(t, denied)
	assert.Equal(t, 6, listed, "under three policies each")
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
