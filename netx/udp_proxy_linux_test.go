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

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/netx/proxyproto"
	"github.com/seed-ee4278a0/throttled/policy"
)

var (
	lb       = "127.0.0.9" // the load balancer
	acceptLB = ProxyOptions{AcceptFrom: []netip.Prefix{netip.MustParsePrefix("127.0.0.9/32"), netip.MustParsePrefix("10.0.0.0/8")}}
	clientA  = netip.MustParseAddrPort("198.51.100.1:1000")
	clientB  = netip.MustParseAddrPort("198.51.100.2:1000")
	client6  = netip.MustParseAddrPort("[2001:db8::7]:1000")
	frontend = netip.MustParseAddrPort("192.0.2.1:27015")
)

// broughtUDP is a datagram as a proxy sends it for a client.
func broughtUDP(client netip.AddrPort, payload string) []byte {
	h := proxyproto.Header{Source: client, Destination: frontend}
	return append(h.AppendV2(nil, proxyproto.Datagram), payload...)
}

func (on path) startProxy(t testing.TB, e *engine.Engine, upstream string, o ProxyOptions, u UDPOptions) *Gateway {
	t.Helper()
	return on.listener(t, e, textLog(&syncBuffer{}), ListenerConfig{
		Name: "u", Listen: netip.AddrPortFrom(localhost, 0), Upstream: upstream, UDP: u, Proxy: o,
	})
}

// unwrapped reads what an upstream got: a header of version 2, and the payload.
func unwrapped(t testing.TB, b []byte) (proxyproto.Header, string) {
	t.Helper()
	h, n, err := proxyproto.Parse(b, proxyproto.Datagram)
	require.NoError(t, err, "%q", b)
	return h, string(b[n:])
}

func sourceOf(c *net.UDPConn) netip.AddrPort { return c.LocalAddr().(*net.UDPAddr).AddrPort() }

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

// Behind a proxy the client is who is limited, has a session and is told of.
func TestUDPAcceptProxyHeader(t *testing.T) {
	onEachPath(t, func(t *testing.T, on path) {
		up := manualUpstream(t, "127.0.0.1:0")
		e := newEngine(t, 2)
		o := acceptLB
		o.Send = SendV2
		g := on.startProxy(t, e, up.LocalAddr().String(), o, UDPOptions{MaxDatagram: 5})
		proxy := dialUDP(t, lb, g.Addrs()[0])
		sessions := map[netip.AddrPort]netip.AddrPort{}
		for _, client := range []netip.AddrPort{clientA, clientB, client6, clientA} {
			send(t, proxy, broughtUDP(client, "hello"))
			got, from := readFrom(t, up)
			h, payload := unwrapped(t, got)
			assert.Equal(t, "hello", payload)
			assert.Equal(t, proxyproto.Header{Source: client, Destination: frontend}, h)
			sessions[from] = client
			_, err := up.WriteToUDPAddrPort([]byte("answer"), from)
			require.NoError(t, err)
			answer, _ := receive(t, proxy, ioTimeout)
			assert.Equal(t, "answer", string(answer), "goes to the proxy")
		}
		assert.Len(t, sessions, 3)
		send(t, proxy, broughtUDP(clientA, "again"))  // has no tokens left
		send(t, proxy, broughtUDP(clientB, "longer")) // than it may be
		r := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == 6 })
		assert.EqualValues(t, 4, r.Forwarded)
		assert.Equal(t, map[string]int64{"soft_throttle": 1, "oversize": 1}, r.Dropped)
		assert.EqualValues(t, 5*5+6, r.Bytes, "without headers")
		a, _ := e.Lookup(clientA)
		assert.EqualValues(t, 1, a.Denied)
		_, known := e.Lookup(sourceOf(proxy))
		assert.False(t, known, "the proxy is not limited")
	})
}

// C58: a header from anybody else is dropped, and whoever sent it pays for it.
func TestUDPProxyHeaderFromElsewhere(t *testing.T) {
	onEachPath(t, func(t *testing.T, on path) {
		e := newEngine(t, 4)
		g := on.startProxy(t, e, Echo, acceptLB, UDPOptions{})
		c := dialUDP(t, "127.0.0.8", g.Addrs()[0])
		exchange(t, c, []byte("plain"))
		for _, forged := range []string{string(broughtUDP(clientA, "x")), "PROXY TCP4 1.2.3.4 5.6.7.8 9 10\r\nx", string(broughtUDP(clientA, "")[:12])} {
			send(t, c, []byte(forged))
		}
		send(t, c, broughtUDP(clientA, "the fifth"))
		r := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == 5 })
		assert.EqualValues(t, 1, r.Forwarded)
		assert.Equal(t, map[string]int64{"proxy_header": 3, "soft_throttle": 1}, r.Dropped)
		_, known := e.Lookup(clientA)
		assert.False(t, known, "who was named has nothing to do with it")
	})
}

// Without accept_from headers are payload.
func TestUDPProxyHeaderIsPayload(t *testing.T) {
	onEachPath(t, func(t *testing.T, on path) {
		g := on.start(t, newEngine(t, 1), Echo, UDPOptions{})
		exchange(t, dialUDP(t, lb, g.Addrs()[0]), broughtUDP(clientA, "x"))
	})
}

// C59: what a proxy sends without a header that is valid is dropped, and keeps
// nobody out: not the proxy, and not who is named.
func TestUDPProxyWithoutHeader(t *testing.T) {
	broken := broughtUDP(clientA, "x")
	broken[14] = 0xff
	stream := broughtUDP(clientA, "x")
	stream[13] = 0x11
	for name, datagram := range map[string][]byte{
		"plain":        []byte("GETSTATUS"),
		"empty":        nil,
		"version 1":    []byte("PROXY TCP4 198.51.100.1 192.0.2.1 1 2\r\nx"),
		"cut":          broughtUDP(clientA, "")[:27],
		"broken":       broken,
		"tcp":          stream,
		"port 0":       broughtUDP(netip.AddrPortFrom(clientA.Addr(), 0), "x"),
		"multicast":    broughtUDP(netip.MustParseAddrPort("224.0.0.1:1000"), "x"),
		"broadcast":    broughtUDP(netip.MustParseAddrPort("255.255.255.255:1000"), "x"),
		"unspecified":  broughtUDP(netip.MustParseAddrPort("0.0.0.0:1000"), "x"),
		"unspecified6": broughtUDP(netip.MustParseAddrPort("[::]:1000"), "x"),
	} {
		t.Run(name, func(t *testing.T) {
			onEachPath(t, func(t *testing.T, on path) {
				const floods = 20
				e := lockingEngine(t, engine.Config{}, 3)
				g := on.startProxy(t, e, Echo, acceptLB, UDPOptions{})
				proxy := dialUDP(t, lb, g.Addrs()[0])
				for range floods {
					send(t, proxy, datagram)
				}
				r := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == floods })
				assert.Equal(t, map[string]int64{"proxy_header": floods}, r.Dropped)
				assert.Zero(t, e.Report().Evaluated)
				send(t, proxy, broughtUDP(clientA, "still served"))
				got, _ := receive(t, proxy, ioTimeout)
				assert.Equal(t, "still served", string(got))
			})
		})
	}
}

// A proxy that speaks for itself, to see whether the gateway is there, is
// somebody like any other.
func TestUDPProxySpeaksForItself(t *testing.T) {
	onEachPath(t, func(t *testing.T, on path) {
		e := newEngine(t, 2)
		g := on.startProxy(t, e, Echo, acceptLB, UDPOptions{})
		proxy := dialUDP(t, lb, g.Addrs()[0])
		local := append([]byte("\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"), "alive?"...)
		for range 2 {
			send(t, proxy, local)
			got, _ := receive(t, proxy, ioTimeout)
			assert.Equal(t, "alive?", string(got))
		}
		send(t, proxy, local)
		r := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == 3 })
		assert.EqualValues(t, 1, r.Dropped["soft_throttle"])
		row, known := e.Lookup(sourceOf(proxy))
		assert.True(t, known)
		assert.EqualValues(t, 1, row.Denied)
	})
}

// The lists apply to the proxy and to the client.
func TestUDPProxyAndLists(t *testing.T) {
	onEachPath(t, func(t *testing.T, on path) {
		e := newEngine(t, 100)
		g := on.startProxy(t, e, Echo, acceptLB, UDPOptions{})
		proxy := dialUDP(t, lb, g.Addrs()[0])
		require.NoError(t, e.Ban(netip.MustParsePrefix("198.51.100.1/32"), 0, ""))
		send(t, proxy, broughtUDP(clientA, "x"))
		reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == 1 })
		require.NoError(t, e.Deny(netip.MustParsePrefix(lb+"/32")))
		send(t, proxy, broughtUDP(clientB, "x"))
		r := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == 2 })
		assert.Equal(t, map[string]int64{"hard_lockout": 1, "denied": 1}, r.Dropped)
		require.NoError(t, e.Deny())
		require.NoError(t, e.Exempt(netip.MustParsePrefix(lb+"/32")))
		send(t, proxy, broughtUDP(clientA, "x"))
		r = reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == 3 })
		assert.EqualValues(t, 2, r.Dropped["hard_lockout"], "its exemption is not that of its clients")
	})
}

// Two proxies may have the same client.
func TestUDPProxySessions(t *testing.T) {
	onEachPath(t, func(t *testing.T, on path) {
		g := on.startProxy(t, newEngine(t, 100), Echo, acceptLB, UDPOptions{})
		one, other := dialUDP(t, lb, g.Addrs()[0]), dialUDP(t, lb, g.Addrs()[0])
		for _, proxy := range []*net.UDPConn{one, other, one} {
			send(t, proxy, broughtUDP(clientA, "x"))
			got, ok := receive(t, proxy, ioTimeout)
			assert.True(t, ok && string(got) == "x")
		}
		reportWhen(t, g, func(r ListenerReport) bool { return r.SessionsActive == 2 })
	})
}

// The kernel knows no headers, so it must not drop what a proxy brings.
func TestProxyHeadersAndTheKernel(t *testing.T) {
	l := ListenerConfig{Protocol: UDP}
	assert.True(t, l.filtered())
	l.Proxy = acceptLB
	assert.False(t, l.filtered())
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

func TestProxyOptionsAreChecked(t *testing.T) {
	l := ListenerConfig{Name: "a", Listen: loopback(1), Upstream: "127.0.0.1:9"}
	for want, o := range map[string]struct {
		ProxyOptions
		Protocol
		echo bool
	}{
		"Proxy.AcceptFrom: invalid Prefix is not a prefix":                                {ProxyOptions{AcceptFrom: make([]netip.Prefix, 1)}, TCP, false},
		"Proxy.Timeout: -1 is negative":                                                   {ProxyOptions{Timeout: -1}, TCP, false},
		"Proxy.Send: 3 is none of SendNone, SendV1 and SendV2":                            {ProxyOptions{Send: 3}, TCP, false},
		"Proxy.Send: SendV1 on a udp listener; version 1 is for TCP alone":                {ProxyOptions{Send: SendV1}, UDP, false},
		"Proxy.Send: the upstream is the built-in echo, which would send the header back": {ProxyOptions{Send: SendV2}, TCP, true},
	} {
		l.Proxy, l.Protocol, l.Upstream = o.ProxyOptions, o.Protocol, "127.0.0.1:9"
		if o.echo {
			l.Upstream = Echo
		}
		err := GatewayConfig{Engine: engineOf(t, policy.Policy{}), Listeners: []ListenerConfig{l}}.validate()
		require.EqualError(t, err, "netx: listener a: "+want)
	}
}
