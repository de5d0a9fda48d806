package netx

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// C61: each datagram has the header, byte for byte; answers have none.
func TestUDPSendProxyHeader(t *testing.T) {
	onEachPath(t, func(t *testing.T, on path) {
		up := manualUpstream(t, "127.0.0.1:0")
		g := on.startProxy(t, newEngine(t, 100), up.LocalAddr().String(), ProxyOptions{Send: SendV2}, UDPOptions{})
		c := dialUDP(t, "127.1.2.3", g.Addrs()[0])
		for _, payload := range []string{"one", "", "\r\n\r\n\x00\r\nQUIT\n", strings.Repeat("x", 9000)} {
			send(t, c, []byte(payload))
			got, from := readFrom(t, up)
			want := []byte("\r\n\r\n\x00\r\nQUIT\n\x21\x12\x00\x0c\x7f\x01\x02\x03\x7f\x00\x00\x01")
			want = binary.BigEndian.AppendUint16(want, sourceOf(c).Port())
			want = binary.BigEndian.AppendUint16(want, g.Addrs()[0].Port())
			require.Equal(t, append(want, payload...), got)
			_, err := up.WriteToUDPAddrPort([]byte("answer"), from)
			require.NoError(t, err)
			answer, _ := receive(t, c, ioTimeout)
			assert.Equal(t, "answer", string(answer))
		}
		r := reportWhen(t, g, func(r ListenerReport) bool { return r.Forwarded == 4 })
		assert.EqualValues(t, 3+12+9000, r.Bytes, "of the clients alone")
		repliesSettle(t, g, 4, 24)
	})
}

// The destination is what the client has sent to, as far as it is known.
func TestUDPSendProxyHeaderOnWildcard(t *testing.T) {
	for on, known := range map[path]bool{fast: true, plain: false} {
		for _, wildcard := range []string{"0.0.0.0:0", "[::]:0"} {
			t.Run(string(on)+wildcard, func(t *testing.T) {
				up := manualUpstream(t, "127.0.0.1:0")
				listen := netip.MustParseAddrPort(wildcard)
				g := on.listener(t, newEngine(t, 10), textLog(&syncBuffer{}), ListenerConfig{
					Name: "u", Listen: listen, Upstream: up.LocalAddr().String(), Proxy: ProxyOptions{Send: SendV2},
				})
				at := netip.MustParseAddr("127.0.0.5")
				if listen.Addr().Is6() {
					at = netip.IPv6Loopback()
				}
				c := dialUDP(t, "", netip.AddrPortFrom(at, g.Addrs()[0].Port()))
				send(t, c, []byte("x"))
				got, _ := readFrom(t, up)
				h, payload := unwrapped(t, got)
				assert.Equal(t, "x", payload)
				assert.Equal(t, sourceOf(c), h.Source)
				if !known {
					at = listen.Addr()
				}
				assert.Equal(t, netip.AddrPortFrom(at, g.Addrs()[0].Port()), h.Destination)
			})
		}
	}
}

// C60: of 10,000 flows not one datagram comes without the header of its flow.
func TestUDPSendProxyHeaderOnEach(t *testing.T) {
	onEachPath(t, func(t *testing.T, on path) {
		const flows, atOnce, each = 10_000, 50, 2 // so many at once have room in the sockets
		up := manualUpstream(t, "127.0.0.1:0")
		g := on.startProxy(t, newEngine(t, unlimited), up.LocalAddr().String(), ProxyOptions{Send: SendV2},
			UDPOptions{MaxSessions: 1000, SessionIdle: 20 * time.Millisecond})
		seen := map[netip.AddrPort]int{}
		for range flows / atOnce {
			for i := range atOnce {
				c, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, byte(1+i%8), 1)}, net.UDPAddrFromAddrPort(g.Addrs()[0]))
				require.NoError(t, err)
				for range each {
					send(t, c, []byte(sourceOf(c).String()))
				}
				require.NoError(t, c.Close())
			}
			for range atOnce * each {
				got, _ := readFrom(t, up)
				h, payload := unwrapped(t, got)
				require.Equal(t, payload, h.Source.String())
				require.Equal(t, g.Addrs()[0], h.Destination)
				seen[h.Source]++
			}
		}
		total := 0
		for _, n := range seen {
			total += n
		}
		assert.Equal(t, flows*each, total)
		r := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == flows*each })
		assert.EqualValues(t, flows*each, r.Forwarded)
	})
}

// What the header leaves no room for is too long; the cap is that of the payload.
func TestUDPSendProxyHeaderTooLong(t *testing.T) {
	onEachPath(t, func(t *testing.T, on path) {
		up := manualUpstream(t, "127.0.0.1:0")
		g := on.startProxy(t, newEngine(t, 100), up.LocalAddr().String(), ProxyOptions{Send: SendV2}, UDPOptions{})
		c := dialUDP(t, "", g.Addrs()[0])
		send(t, c, make([]byte, MaxDatagram-28))
		got, _ := readFrom(t, up)
		assert.Len(t, got, MaxDatagram)
		send(t, c, make([]byte, MaxDatagram-27))
		r := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == 2 })
		assert.EqualValues(t, 1, r.Dropped["oversize"])
		assert.EqualValues(t, 1, r.Forwarded)
	})
}

// Headers, taken off and put on, cost no allocation.
func TestUDPProxyAllocates(t *testing.T) {
	up := manualUpstream(t, "127.0.0.1:0")
	var got sync.WaitGroup
	got.Go(func() {
		buf := make([]byte, 1<<16)
		for {
			if _, err := up.Read(buf); err != nil {
				return
			}
		}
	})
	defer got.Wait()
	defer up.Close()
	onEachPath(t, func(t *testing.T, on path) {
		o := acceptLB
		o.Send = SendV2
		g := on.startProxy(t, newEngine(t, unlimited), up.LocalAddr().String(), o, UDPOptions{})
		l := g.server(0).(*udpServer).loops[0]
		datagrams := make([]datagram, 16)
		relay := func() {
			for i := range datagrams {
				datagrams[i] = datagram{src: netip.MustParseAddrPort("127.0.0.9:5000"), payload: wrapped[i%4]}
				datagrams[i].size = len(datagrams[i].payload)
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			l.relay(datagrams)
		}
		relay()
		assert.Zero(t, testing.AllocsPerRun(200, relay))
	})
}

var wrapped = func() (all [4][]byte) {
	for i := range all {
		all[i] = broughtUDP(netip.AddrPortFrom(clientA.Addr(), uint16(1000+i)), "payload")
	}
	return all
}()
