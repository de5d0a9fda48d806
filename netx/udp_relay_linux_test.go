package netx

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUDPSizes(t *testing.T) { onEachPath(t, testUDPSizes) } // C75, C76

func testUDPSizes(t *testing.T, on path) {
	g := on.start(t, newEngine(t, unlimited), Echo, UDPOptions{})
	c := dialUDP(t, "", g.Addrs()[0])
	sizes := []int{0, 1, 0, 1472, MaxDatagram, 0, 5}
	total := 0
	for _, n := range sizes {
		exchange(t, c, randomBytes(n))
		total += n
	}
	r := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == int64(len(sizes)) })
	assert.Equal(t, int64(total), r.Bytes)
	assert.Equal(t, int64(len(sizes)), r.Forwarded)
	assert.Equal(t, int64(1), r.SessionsActive)
	assert.Zero(t, r.UpstreamErrors)
	assert.Equal(t, "udp", r.Protocol)
	assert.Equal(t, g.Addrs()[0].String(), r.Listen)
}

func TestUDPOverIPv6(t *testing.T) { onEachPath(t, testUDPOverIPv6) }

func testUDPOverIPv6(t *testing.T, on path) {
	up := manualUpstream(t, "[::1]:0")
	g := on.listener(t, newEngine(t, unlimited), nil, ListenerConfig{
		Name: "six", Listen: netip.MustParseAddrPort("[::1]:0"), Upstream: up.LocalAddr().String(),
	})
	c := dialUDP(t, "", g.Addrs()[0])
	send(t, c, []byte("ping"))
	got, from := readFrom(t, up)
	assert.Equal(t, "ping", string(got))
	_, err := up.WriteToUDPAddrPort([]byte("pong"), from)
	require.NoError(t, err)
	got, ok := receive(t, c, ioTimeout)
	require.True(t, ok)
	assert.Equal(t, "pong", string(got))
}

func TestUDPBackToBack(t *testing.T) { onEachPath(t, testUDPBackToBack) } // C70

func testUDPBackToBack(t *testing.T, on path) {
	up := manualUpstream(t, "127.0.0.1:0")
	g := on.start(t, newEngine(t, unlimited), up.LocalAddr().String(), UDPOptions{})
	c := dialUDP(t, "", g.Addrs()[0])
	send(t, c, []byte("fifteen letters"))
	send(t, c, []byte("short"))
	first, from := readFrom(t, up)
	second, _ := readFrom(t, up)
	assert.Equal(t, []string{"fifteen letters", "short"}, []string{string(first), string(second)})

	for _, p := range []string{"one reply", "2"} {
		_, err := up.WriteToUDPAddrPort([]byte(p), from)
		require.NoError(t, err)
	}
	first, _ = receive(t, c, ioTimeout)
	second, _ = receive(t, c, ioTimeout)
	assert.Equal(t, []string{"one reply", "2"}, []string{string(first), string(second)})
}

func TestUDPOversizeIsDroppedWhole(t *testing.T) { onEachPath(t, testUDPOversizeIsDroppedWhole) } // C75

func testUDPOversizeIsDroppedWhole(t *testing.T, on path) {
	g := on.start(t, newEngine(t, unlimited), Echo, UDPOptions{MaxDatagram: 2048})
	c := dialUDP(t, "", g.Addrs()[0])
	send(t, c, randomBytes(4000))
	send(t, c, randomBytes(2049))
	exchange(t, c, randomBytes(2048))
	r := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == 3 })
	assert.Equal(t, map[string]int64{"oversize": 2}, r.Dropped)
	assert.Equal(t, int64(4000+2049+2048), r.Bytes)
}

func TestUDPRepliesReachTheirClients(t *testing.T) { onEachPath(t, testUDPRepliesReachTheirClients) }

func testUDPRepliesReachTheirClients(t *testing.T, on path) {
	up := manualUpstream(t, "127.0.0.1:0")
	g := on.start(t, newEngine(t, unlimited), up.LocalAddr().String(), UDPOptions{})
	const n = 40
	var (
		clients [n]*net.UDPConn
		ports   = map[netip.AddrPort]int{} // of the session -> client
	)
	for i := range clients {
		clients[i] = dialUDP(t, fmt.Sprintf("127.0.0.%d", 2+i%7), g.Addrs()[0])
		send(t, clients[i], []byte{byte(i)})
		got, from := readFrom(t, up)
		require.Equal(t, []byte{byte(i)}, got)
		ports[from] = i
	}
	require.Len(t, ports, n, "two clients share a port")
	for from, i := range ports { // in another order
		_, err := up.WriteToUDPAddrPort([]byte{byte(i), 1}, from)
		require.NoError(t, err)
	}
	for i, c := range clients {
		got, ok := receive(t, c, ioTimeout)
		require.True(t, ok)
		assert.Equal(t, []byte{byte(i), 1}, got)
	}
	reportWhen(t, g, func(r ListenerReport) bool { return r.SessionsActive == n })
}

// IPv6 carries 20 bytes more than IPv4: such a reply cannot go on.
func TestUDPReplyTooLong(t *testing.T) { onEachPath(t, testUDPReplyTooLong) } // C74

func testUDPReplyTooLong(t *testing.T, on path) {
	up := manualUpstream(t, "[::1]:0")
	g := on.start(t, newEngine(t, unlimited), up.LocalAddr().String(), UDPOptions{})
	c := dialUDP(t, "", g.Addrs()[0])
	send(t, c, []byte("a"))
	_, port := readFrom(t, up)
	_, err := up.WriteToUDPAddrPort(randomBytes(MaxDatagram+20), port)
	require.NoError(t, err)
	_, err = up.WriteToUDPAddrPort(randomBytes(MaxDatagram), port)
	require.NoError(t, err)
	got, ok := receive(t, c, ioTimeout)
	require.True(t, ok)
	assert.Len(t, got, MaxDatagram)
	assert.Equal(t, int64(1), g.Listeners()[0].UpstreamErrors)
}
