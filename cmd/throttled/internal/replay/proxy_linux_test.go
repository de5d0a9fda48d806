package replay

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/netx"
)

// The gateway and a replay of what proxies, and others, have sent to it agree on
// every count, and on who was denied (C58, C59): in earnest, in a dry run, and where
// opcodes pick a policy that is one (C112).
func TestReplayOfProxiesAgreesWithTheGateway(t *testing.T) {
	for more, reasons := range map[string]int{
		"":                5,
		", dry_run: true": 2,
		", opcodes: {policies: {1: trial, 2: live}}": 5,
	} {
		t.Run(more, func(t *testing.T) { replayOfProxies(t, more, reasons) })
	}
}

// replayOfProxies sees so many reasons of drops at a listener with something more.
func replayOfProxies(t *testing.T, more string, reasons int) {
	const yaml = `
engine: {adaptive: {enabled: false}}
deny: [127.0.1.3]
policies:
  - {name: default, capacity: 20, refill: 1/h, violations: {max: 7, window: 1h}, lockout: {base: 1h}}
  - {name: trial, capacity: 9, refill: 1/h, dry_run: true}
  - {name: live, capacity: 9, refill: 1/h}
listeners:
  - {name: game, protocol: udp, listen: "127.0.0.1:%d", upstream: echo, udp: {max_datagram: 20},
     proxy_protocol: {accept_from: [127.0.1.0/30]}%s}
`
	g, e := startLive(t, fmt.Sprintf(yaml, 0, more))

	random := rand.New(rand.NewPCG(5, 6))
	var packets []stamped
	listen := g.Addrs()[0]
	for i := range 8 { // half of them proxies, one of which is kept out
		from := netip.AddrFrom4([4]byte{127, 0, 1, byte(i)})
		conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), net.UDPAddrFromAddrPort(listen))
		require.NoError(t, err)
		defer conn.Close()
		for range 40 {
			// Two behind each proxy: those of several would share a budget in no certain order.
			client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 100, byte(2*i + random.IntN(8)/7)}), uint16(random.IntN(20)))
			payload := brought(client, bytes.Repeat([]byte{byte(random.IntN(4))}, random.IntN(25)))
			payload = payload[random.IntN(8)/7*random.IntN(3):] // some of them damaged
			_, err := conn.Write(payload)
			require.NoError(t, err)
			packets = append(packets, stamped{data: datagramOf(t, conn.LocalAddr().String(), listen.String(), payload)})
		}
	}
	require.Eventually(t, func() bool { return g.Listeners()[0].Packets == int64(len(packets)) }, 10*time.Second, time.Millisecond)

	r := replayed(t, fmt.Sprintf(yaml, listen.Port(), more), sorted(t, layers.LinkTypeRaw, packets))
	live, got := g.Listeners()[0], r.Listeners[0]
	assert.Equal(t, live.Bytes, got.Bytes)
	assert.Equal(t, live.Forwarded, got.Forwarded)
	assert.Equal(t, live.Dropped, got.Dropped)
	assert.Equal(t, live.WouldDrop, got.WouldDrop)
	assert.Len(t, got.Dropped, reasons, "proxy_header, oversize, and soft_throttle, hard_lockout and denied where not in a dry run: %v", got.Dropped)
	denied := map[string]int64{}
	rows, _, _ := e.Endpoints(1000)
	for _, row := range rows {
		if row.Denied > 0 {
			denied[row.Endpoint] = row.Denied
		}
	}
	for _, row := range r.Denied {
		assert.Equal(t, denied[row.Endpoint], row.Denied, row.Endpoint)
	}
	assert.Len(t, r.Denied, len(denied))
}

// The same of connections.
func TestReplayOfProxyConnectionsAgreesWithTheGateway(t *testing.T) {
	const yaml = `
engine: {adaptive: {enabled: false}}
deny: [127.0.1.3, 198.51.100.3]
policies:
  - {name: default, capacity: 20, refill: 1/h, violations: {max: 7, window: 1h}, lockout: {base: 1h}}
listeners:
  - {name: web, protocol: tcp, listen: "127.0.0.1:%d", upstream: echo, dry_run: %v, tcp: {reject: close}, proxy_protocol: {accept_from: [127.0.1.0/30]}}
`
	beginnings := []string{
		"", "PROXY UNKNOWN\r\n", "PROXY TCP4 1.2.3.4", "PROXY TCP4 1.2.3.4 5.6.7.8 0 9\r\n", "PROXY ", "PRO", "\r\n\r\n\x00\r\nQUIT\n\x20\x11\x00\x00",
		"\r\n\r\n", "PROXY TCP4 198.51.100.3 192.0.2.1 1000 80\r\n", "PROXY TCP4 198.51.100.4 192.0.2.1 1000 80\r\n", "PROXY TCP6 2001:db8::1 2001:db8::2 1000 80\r\n",
	}
	for _, dry := range []bool{false, true} {
		g, _ := startLive(t, fmt.Sprintf(yaml, 0, dry))

		random := rand.New(rand.NewPCG(7, 8))
		var packets []stamped
		listen := g.Addrs()[0]
		for i := range uint32(300) {
			from := netip.AddrFrom4([4]byte{127, 0, 1, byte(random.IntN(6))})
			conn, err := net.DialTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), net.TCPAddrFromAddrPort(listen))
			require.NoError(t, err)
			said := beginnings[random.IntN(len(beginnings))] + "hello"[:random.IntN(6)]
			_, _ = conn.Write([]byte(said)) // it may be turned away already
			_ = conn.CloseWrite()
			_, _ = io.Copy(io.Discard, conn)
			require.NoError(t, conn.Close())
			client, syn := conn.LocalAddr().String(), 1000*i // a port may come again
			packets = append(packets,
				stamped{data: stream(t, client, listen.String(), "S", syn, 0)},
				stamped{data: streamOf(t, client, listen.String(), "A", syn+1, []byte(said))},
				stamped{data: stream(t, client, listen.String(), "FA", syn+1+uint32(len(said)), 0)})
		}
		var live netx.ListenerReport
		require.Eventually(t, func() bool {
			live = g.Listeners()[0]
			ended := live.Forwarded
			for _, n := range live.Dropped {
				ended += n
			}
			return ended == 300 && live.ConnectionsActive == 0
		}, 10*time.Second, time.Millisecond)
		got := replayed(t, fmt.Sprintf(yaml, listen.Port(), dry), sorted(t, layers.LinkTypeRaw, packets)).Listeners[0]
		assert.Equal(t, live.Packets, got.Packets)
		assert.Equal(t, live.Bytes, got.Bytes)
		assert.Equal(t, live.Forwarded, got.Forwarded)
		assert.Equal(t, live.Dropped, got.Dropped)
		assert.Equal(t, live.WouldDrop, got.WouldDrop)
		assert.Len(t, got.Dropped, map[bool]int{false: 4, true: 1}[dry], "%v", got.Dropped)
	}
}
