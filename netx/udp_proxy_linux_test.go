package netx

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/netx/proxyproto"
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

// A dry run counts what the lists would keep out, once where they know the proxy
// and the client, and lets it through; what has no header is nobody's, and is
// dropped.
func TestUDPProxyInADryRun(t *testing.T) {
	onEachPath(t, func(t *testing.T, on path) {
		e := newEngine(t, 100)
		require.NoError(t, e.Deny(netip.MustParsePrefix(lb+"/32"), netip.PrefixFrom(clientA.Addr(), 32)))
		g := on.listener(t, e, textLog(&syncBuffer{}), ListenerConfig{
			Name: "u", Listen: netip.AddrPortFrom(localhost, 0), Upstream: Echo, Proxy: acceptLB, DryRun: true,
		})
		proxy := dialUDP(t, lb, g.Addrs()[0])
		send(t, proxy, broughtUDP(clientA, "x"))
		got, _ := receive(t, proxy, ioTimeout)
		assert.Equal(t, "x", string(got))
		send(t, proxy, []byte("x"))
		r := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == 2 })
		assert.EqualValues(t, 1, r.Forwarded)
		assert.Equal(t, map[string]int64{"proxy_header": 1}, r.Dropped)
		assert.Equal(t, map[string]int64{"denied": 2}, r.WouldDrop)
	})
}

// A client that sends to several addresses of its proxy has a session with each,
// so that the upstream is told which.
func TestUDPProxyTellsWhereTo(t *testing.T) {
	onEachPath(t, func(t *testing.T, on path) {
		up := manualUpstream(t, "127.0.0.1:0")
		o := acceptLB
		o.Send = SendV2
		g := on.startProxy(t, newEngine(t, 100), up.LocalAddr().String(), o, UDPOptions{})
		proxy := dialUDP(t, lb, g.Addrs()[0])
		for _, to := range []string{"192.0.2.1:1", "192.0.2.1:2", "192.0.2.2:1", "[2001:db8::5]:1", "192.0.2.1:1"} {
			h := proxyproto.Header{Source: clientA, Destination: netip.MustParseAddrPort(to)}
			send(t, proxy, append(h.AppendV2(nil, proxyproto.Datagram), to...))
			b, _ := readFrom(t, up)
			told, payload := unwrapped(t, b)
			require.Equal(t, to, payload)
			require.Equal(t, h, told)
		}
		reportWhen(t, g, func(r ListenerReport) bool { return r.SessionsActive == 4 })
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
