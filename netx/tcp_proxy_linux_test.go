package netx

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/netx/proxyproto"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

func startProxyTCP(t *testing.T, e *engine.Engine, upstream string, o ProxyOptions, tcp TCPOptions) (*Gateway, func() ListenerReport) {
	t.Helper()
	g, err := StartGateway(GatewayConfig{Engine: e, Listeners: []ListenerConfig{{
		Name: "tcp", Protocol: TCP, Listen: loopback(0), Upstream: upstream, TCP: tcp, Proxy: o,
	}}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, g.Close()) })
	return g, func() ListenerReport { return g.Listeners()[0] }
}

func broughtTCP(client netip.AddrPort) string {
	return string(proxyproto.Header{Source: client, Destination: frontend}.AppendV2(nil, proxyproto.Stream))
}

func lineTCP(client netip.AddrPort) string {
	return string(proxyproto.Header{Source: client, Destination: frontend}.AppendV1(nil))
}

func say(t *testing.T, c net.Conn, s string) {
	t.Helper()
	_, err := c.Write([]byte(s))
	require.NoError(t, err)
}

func hears(t *testing.T, c net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	_, err := io.ReadFull(c, got)
	require.NoError(t, err)
	require.Equal(t, want, string(got))
}

// dropsWhen waits until so many connections were dropped, all for one reason.
func dropsWhen(t *testing.T, report func() ListenerReport, reason dropReason, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return report().Dropped[reason.String()] == int64(n) }, settled, time.Millisecond, "%v", reason)
	assert.Len(t, report().Dropped, 1)
}

// Exactly the header is taken off, in whatever pieces it comes and whatever
// comes with it; both directions go on by themselves.
func TestTCPAcceptProxyHeader(t *testing.T) {
	long := strings.Repeat("long", 100_000)
	tlvs := "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x03\xff" + broughtTCP(clientA)[16:] + "\x04\x03\xf0" + strings.Repeat("\xff", 0x3f0)
	for name, header := range map[string]string{"v1": lineTCP(clientA), "v2": broughtTCP(clientA), "v2 over IPv6": broughtTCP(client6), "v2 with TLVs": tlvs} {
		for _, payload := range []string{"", "hello", "PROXY UNKNOWN\r\n", long} {
			for _, pieces := range []bool{false, true} {
				t.Run(fmt.Sprint(name, len(payload), pieces), func(t *testing.T) {
					g, report := startProxyTCP(t, engineOf(t, policy.Policy{}), Echo, acceptLB, TCPOptions{})
					c, header := dialFrom(t, g.Addrs()[0].String(), lb), header
					if pieces {
						for step := 1 + len(header)/100; len(header) > step; header = header[step:] {
							say(t, c, header[:step])
							time.Sleep(10 * time.Microsecond)
						}
					}
					go func() {
						_, _ = c.Write([]byte(header + payload))
						_ = c.CloseWrite()
					}()
					got, err := io.ReadAll(c)
					require.NoError(t, err)
					assert.True(t, payload == string(got), "%d bytes became %d", len(payload), len(got))
					addsUp(t, report)
					r := report()
					assert.EqualValues(t, 1, r.Forwarded)
					assert.EqualValues(t, len(payload), r.Bytes, "without the header")
				})
			}
		}
	}
}

// The client is who is limited, and of whom there may be so many connections;
// the proxy is not.
func TestTCPProxyClientsAreLimited(t *testing.T) {
	e := engineOf(t, atMost(3))
	g, report := startProxyTCP(t, e, Echo, acceptLB, TCPOptions{MaxConnectionsPerIP: 2})
	addr := g.Addrs()[0].String()
	var open []net.Conn
	for _, client := range []netip.AddrPort{clientA, clientA, clientB, clientB, client6, client6} {
		c := dialFrom(t, addr, lb)
		say(t, c, broughtTCP(client)+"hello")
		hears(t, c, "hello")
		open = append(open, c)
	}
	third := dialFrom(t, addr, lb)
	say(t, third, lineTCP(clientA))
	isTurnedAway(t, third)
	assert.EqualValues(t, 1, report().Dropped["connections_full"], "a third one of its address")
	for _, c := range open {
		c.Close()
	}
	addsUp(t, report)
	fourth := dialFrom(t, addr, lb)
	say(t, fourth, lineTCP(clientA))
	isTurnedAway(t, fourth)
	assert.EqualValues(t, 1, report().Dropped["soft_throttle"], "a fourth one in all")
	_, known := e.Lookup(addrPort(fourth.LocalAddr()))
	assert.False(t, known)
}

// The byte budget is the client's, of its payload alone.
func TestTCPProxyClientsPayForBytes(t *testing.T) {
	e := engineOf(t, policy.Policy{Bytes: &tokenbucket.Limit{Capacity: 5, RefillPerSecond: 1e-6}})
	g, report := startProxyTCP(t, e, Echo, acceptLB, TCPOptions{OnLimit: CloseConn})
	c := dialFrom(t, g.Addrs()[0].String(), lb)
	say(t, c, broughtTCP(clientA)+"five!")
	hears(t, c, "five!")
	assert.EqualValues(t, 5, report().Bytes)
	say(t, c, "6")
	isTurnedAway(t, c)
}

// C58: a connection from anybody else that begins with a header is reset, and
// counted; what of it reaches the upstream is no header, and whoever sent it is
// charged.
func TestTCPProxyHeaderFromElsewhere(t *testing.T) {
	got := make(chan []byte, 100)
	upstream := upstreamTCP(t, func(c *net.TCPConn) {
		b, _ := io.ReadAll(c)
		got <- b
	})
	forged := []string{broughtTCP(clientA) + "x", lineTCP(clientA) + "x", "PROXY ", "PROXY nonsense", broughtTCP(clientA)[:12]}
	e := engineOf(t, atMost(int64(2*len(forged))))
	g, report := startProxyTCP(t, e, upstream, acceptLB, TCPOptions{})
	addr := g.Addrs()[0].String()
	for i, header := range forged {
		for cut := range 2 {
			c, header := dialFrom(t, addr, "127.0.0.8"), header
			if cut == 1 {
				say(t, c, header[:5])
				time.Sleep(time.Millisecond)
				header = header[5:]
			}
			say(t, c, header)
			isTurnedAway(t, c)
			dropsWhen(t, report, dropProxyHeader, 2*i+cut+1)
			assert.LessOrEqual(t, len(<-got), 5*cut)
		}
	}
	addsUp(t, report)
	assert.Zero(t, report().Forwarded)
	assert.LessOrEqual(t, report().Bytes, int64(5*len(forged)))
	_, known := e.Lookup(clientA)
	assert.False(t, known)
	require.ErrorIs(t, fateOf(addr, "127.0.0.8"), syscall.ECONNRESET)
	assert.EqualValues(t, 1, report().Dropped["soft_throttle"])
}

// What others send that is no header goes through whole, also where it begins
// like one, in whatever pieces.
func TestTCPPlainBesideAProxy(t *testing.T) {
	for _, payload := range []string{"", "P", "PROXY", "PROPFIND / HTTP/1.1\r\n\r\n", "\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "\r\n\r\n\x00\r\nQUI_", strings.Repeat("PROX", 100_000)} {
		for _, first := range []int{1, 6, 1 << 20} {
			g, report := startProxyTCP(t, engineOf(t, policy.Policy{}), Echo, acceptLB, TCPOptions{})
			c := dialFrom(t, g.Addrs()[0].String(), "127.0.0.8")
			go func() {
				rest := payload
				for range 20 {
					n := min(first, len(rest))
					_, _ = c.Write([]byte(rest[:n]))
					rest = rest[n:]
					time.Sleep(10 * time.Microsecond)
				}
				_, _ = c.Write([]byte(rest))
				_ = c.CloseWrite()
			}()
			got, err := io.ReadAll(c)
			require.NoError(t, err)
			require.True(t, payload == string(got), "%.20q in pieces of %d", payload, first)
			addsUp(t, report)
			require.EqualValues(t, 1, report().Forwarded)
			require.EqualValues(t, len(payload), report().Bytes)
		}
	}
}

// A server that speaks first is heard by a client that has sent nothing, or a
// byte with which a header could begin.
func TestTCPServerSpeaksFirstBesideAProxy(t *testing.T) {
	upstream := upstreamTCP(t, func(c *net.TCPConn) {
		_, _ = c.Write([]byte("220 hello\r\n"))
		_, _ = io.Copy(c, c)
	})
	g, report := startProxyTCP(t, engineOf(t, policy.Policy{}), upstream, acceptLB, TCPOptions{})
	for _, first := range []string{"", "P"} {
		c := dialFrom(t, g.Addrs()[0].String(), "127.0.0.8")
		say(t, c, first)
		hears(t, c, "220 hello\r\n")
		say(t, c, "ASS x\r\n")
		hears(t, c, first+"ASS x\r\n")
		c.Close()
	}
	addsUp(t, report)
	assert.EqualValues(t, 2, report().Forwarded)
}

// A client may wait for an answer to what a header could begin with, until it is
// one.
func TestTCPAnswersToWhatBeginsLikeAHeader(t *testing.T) {
	for _, header := range []string{"PROXY ", broughtTCP(clientA)[:12]} {
		g, report := startProxyTCP(t, engineOf(t, policy.Policy{}), Echo, acceptLB, TCPOptions{})
		c := dialFrom(t, g.Addrs()[0].String(), "127.0.0.8")
		last := len(header) - 1
		for _, b := range header[:last] {
			say(t, c, string(b))
			hears(t, c, string(b))
		}
		assert.Zero(t, report().Forwarded, "it may still be one")
		say(t, c, header[last:])
		isTurnedAway(t, c)
		dropsWhen(t, report, dropProxyHeader, 1)
		addsUp(t, report)
		assert.EqualValues(t, last, report().Bytes)
	}
}

// Without accept_from headers are payload.
func TestTCPProxyHeaderIsPayload(t *testing.T) {
	g, _ := startTCP(t, Echo, TCPOptions{})
	c := dialFrom(t, g.Addrs()[0].String(), lb)
	say(t, c, lineTCP(clientA))
	hears(t, c, lineTCP(clientA))
}

// C59: a proxy's connection without a header that is valid is turned away before
// there is one to the upstream.
func TestTCPProxyWithoutHeader(t *testing.T) {
	upstream := upstreamTCP(t, func(*net.TCPConn) { t.Error("the upstream was dialled") })
	datagram := []byte(broughtTCP(clientA))
	datagram[13]++
	var log syncBuffer
	g, err := StartGateway(GatewayConfig{Engine: engineOf(t, policy.Policy{}), Logger: textLog(&log), Listeners: []ListenerConfig{{
		Name: "tcp", Protocol: TCP, Listen: loopback(0), Upstream: upstream, Proxy: acceptLB,
	}}})
	require.NoError(t, err)
	defer g.Close()
	all := []string{
		"", "GET / HTTP/1.1\r\n\r\n", "PROXY TCP4 198.51.100.1 192.0.2.1 1\r\n", string(datagram),
		"PROXY UNKNOWN" + strings.Repeat(" ", 100), "\r\n\r\n\x00\r\nQUIT\n\x21\x11\xff\xff", broughtTCP(clientA)[:20],
		lineTCP(netip.MustParseAddrPort("198.51.100.1:0")), broughtTCP(netip.MustParseAddrPort("224.0.0.1:7")), lineTCP(netip.MustParseAddrPort("0.0.0.0:7")),
	}
	for i, sent := range all {
		c := dialFrom(t, g.Addrs()[0].String(), lb)
		say(t, c, sent)
		_ = c.CloseWrite() // which may come too late
		isTurnedAway(t, c)
		dropsWhen(t, func() ListenerReport { return g.Listeners()[0] }, dropProxyHeader, i+1)
	}
	assert.Equal(t, 1, strings.Count(log.String(), "no PROXY header that is valid"), "a line a second at most:\n%s", &log)
	assert.NotContains(t, log.String(), "error=EOF", "of who has only looked whether anybody listens")
}

// A proxy that names nobody speaks for itself, and is limited as itself.
func TestTCPProxySpeaksForItself(t *testing.T) {
	e := engineOf(t, atMost(2))
	g, report := startProxyTCP(t, e, Echo, acceptLB, TCPOptions{})
	for _, header := range []string{"\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00", "PROXY UNKNOWN\r\n"} {
		c := dialFrom(t, g.Addrs()[0].String(), lb)
		say(t, c, header+"alive?")
		hears(t, c, "alive?")
	}
	c := dialFrom(t, g.Addrs()[0].String(), lb)
	say(t, c, "PROXY UNKNOWN\r\n")
	isTurnedAway(t, c)
	dropsWhen(t, report, dropSoftThrottle, 1)
}

// The lists apply to the proxy, which is not even heard then, and to the client.
func TestTCPProxyAndLists(t *testing.T) {
	e := engineOf(t, policy.Policy{})
	g, report := startProxyTCP(t, e, Echo, acceptLB, TCPOptions{})
	require.NoError(t, e.Deny(netip.MustParsePrefix(lb+"/32")))
	require.ErrorIs(t, fateOf(g.Addrs()[0].String(), lb), syscall.ECONNRESET)
	dropsWhen(t, report, dropDenied, 1)
	require.NoError(t, e.Deny(netip.PrefixFrom(clientA.Addr(), 32)))
	c := dialFrom(t, g.Addrs()[0].String(), lb)
	say(t, c, lineTCP(clientA))
	isTurnedAway(t, c)
	dropsWhen(t, report, dropDenied, 2)
}

func TestTCPProxyInADryRun(t *testing.T) {
	e := engineOf(t, policy.Policy{})
	require.NoError(t, e.Deny(netip.MustParsePrefix(lb+"/32"), netip.PrefixFrom(clientA.Addr(), 32)))
	g, err := StartGateway(GatewayConfig{Engine: e, Listeners: []ListenerConfig{{
		Name: "tcp", Protocol: TCP, Listen: loopback(0), Upstream: Echo, Proxy: acceptLB, DryRun: true,
	}}})
	require.NoError(t, err)
	defer g.Close()
	c := dialFrom(t, g.Addrs()[0].String(), lb)
	say(t, c, lineTCP(clientA)+"x")
	hears(t, c, "x")
	assert.Equal(t, map[string]int64{"denied": 1}, g.Listeners()[0].WouldDrop, "once")
	assert.Empty(t, g.Listeners()[0].Dropped)
}

// The upstream gets one header before all else: of the client, and of the address
// that it has sent to.
func TestTCPSendProxyHeader(t *testing.T) {
	got := make(chan []byte, 1)
	upstream := upstreamTCP(t, func(c *net.TCPConn) {
		b, err := io.ReadAll(c)
		assert.NoError(t, err)
		got <- b
		_, _ = c.Write([]byte("answer"))
	})
	for send, append := range map[SendProxy]func(proxyproto.Header) []byte{
		SendV1: func(h proxyproto.Header) []byte { return h.AppendV1(nil) },
		SendV2: func(h proxyproto.Header) []byte { return h.AppendV2(nil, proxyproto.Stream) },
	} {
		o := acceptLB
		o.Send = send
		g, report := startProxyTCP(t, engineOf(t, policy.Policy{}), upstream, o, TCPOptions{})
		for _, brought := range []string{"", lineTCP(clientA), broughtTCP(client6), "PROXY UNKNOWN\r\n"} {
			from := lb
			if brought == "" {
				from = "127.0.0.8"
			}
			c := dialFrom(t, g.Addrs()[0].String(), from)
			want := proxyproto.Header{Source: addrPort(c.LocalAddr()), Destination: g.Addrs()[0]}
			switch brought {
			case lineTCP(clientA):
				want = proxyproto.Header{Source: clientA, Destination: frontend}
			case broughtTCP(client6):
				want = proxyproto.Header{Source: client6, Destination: frontend}
			}
			say(t, c, brought+"payload")
			require.NoError(t, c.CloseWrite())
			hears(t, c, "answer")
			assert.Equal(t, string(append(want))+"payload", string(<-got))
		}
		addsUp(t, report)
		assert.EqualValues(t, 4*len("payload"), report().Bytes)
		assert.EqualValues(t, 4*len("answer"), report().ReplyBytes)
	}
}

// A header goes to the upstream at once, which may speak first.
func TestTCPSendProxyHeaderBeforeTheClientSpeaks(t *testing.T) {
	upstream := upstreamTCP(t, func(c *net.TCPConn) {
		b := make([]byte, 28)
		_, err := io.ReadFull(c, b)
		assert.NoError(t, err)
		_, _ = c.Write([]byte("welcome"))
	})
	g, _ := startProxyTCP(t, engineOf(t, policy.Policy{}), upstream, ProxyOptions{Send: SendV2}, TCPOptions{})
	hears(t, dialFrom(t, g.Addrs()[0].String(), ""), "welcome")
}

// An upstream that resets the connection before it has the header has not
// answered.
func TestTCPSendProxyHeaderToNobody(t *testing.T) {
	upstream, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	require.NoError(t, upstream.Close())
	g, report := startProxyTCP(t, engineOf(t, policy.Policy{}), upstream.Addr().String(), ProxyOptions{Send: SendV1}, TCPOptions{})
	require.ErrorIs(t, fateOf(g.Addrs()[0].String(), "127.0.0.1"), syscall.ECONNRESET)
	dropsWhen(t, report, dropUpstreamError, 1)
}

// Bulk is spliced behind a header as it is without one.
func TestTCPProxyBulk(t *testing.T) {
	o := acceptLB
	g, report := startProxyTCP(t, engineOf(t, policy.Policy{}), Echo, o, TCPOptions{})
	c := dialFrom(t, g.Addrs()[0].String(), lb)
	want := randomBytes(8 << 20)
	go func() {
		_, _ = c.Write(append([]byte(lineTCP(clientA)), want...))
		_ = c.CloseWrite()
	}()
	got, err := io.ReadAll(c)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(want, got))
	addsUp(t, report)
	assert.Positive(t, g.server(0).(*tcpServer).pipes.made.Load(), "nothing was spliced")
}
