package netx

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// received reads what a client gets until nothing more is on its way.
func received(t *testing.T, c *net.UDPConn, n int) (all []string) {
	t.Helper()
	for range n {
		p, ok := receive(t, c, ioTimeout)
		require.True(t, ok, "got %d", len(all))
		all = append(all, string(p))
	}
	return all
}

// suppressedIs waits until so many replies have not been sent.
func suppressedIs(t *testing.T, g *Gateway, n int64) {
	t.Helper()
	require.Eventually(t, func() bool { return g.Listeners()[0].RepliesSuppressed == n }, ioTimeout, time.Millisecond)
}

func reply(t *testing.T, up *net.UDPConn, to netip.AddrPort, payload string) {
	t.Helper()
	_, err := up.WriteToUDPAddrPort([]byte(payload), to)
	require.NoError(t, err)
}

func TestMaxReplyRatio(t *testing.T) {
	onEachPath(t, func(t *testing.T, on path) {
		up, log := manualUpstream(t, "127.0.0.1:0"), &syncBuffer{}
		l := udpListener(false, Opcodes{})
		l.Upstream, l.UDP = up.LocalAddr().String(), UDPOptions{MaxReplyRatio: 2.5}
		g := on.listener(t, newEngine(t, unlimited), textLog(log), l)
		c := dialUDP(t, "", g.Addrs()[0])
		send(t, c, []byte("1234"))
		_, from := readFrom(t, up)
		for i := range 20 {
			reply(t, up, from, strings.Repeat("x", 4+i%2)) // 4, 5, and 4 is too much for 10
		}
		suppressedIs(t, g, 18)
		reply(t, up, from, "z") // the tenth byte
		assert.Equal(t, []string{"xxxx", "xxxxx", "z"}, received(t, c, 3))

		send(t, c, nil)
		readFrom(t, up)
		for i := range 20 {
			reply(t, up, from, fmt.Sprintf("%01000d", i))
		}
		for i, p := range received(t, c, 20) {
			require.Equal(t, fmt.Sprintf("%01000d", i), p)
		}
		suppressedIs(t, g, 18)
		repliesSettle(t, g, 23, 20_010)
		require.Equal(t, 1, strings.Count(log.String(), "over udp.max_reply_ratio"), "%s", log) // C106

		other := dialUDP(t, "", g.Addrs()[0]) // who has yet to prove itself
		send(t, other, []byte("1234"))
		_, from = readFrom(t, up)
		reply(t, up, from, "12345678901")
		suppressedIs(t, g, 19)
	})
}

// What is not sent to a client that may not be there keeps its session from ending
// no longer than nothing at all.
func TestSuppressedRepliesKeepNoSession(t *testing.T) {
	onEachPath(t, func(t *testing.T, on path) {
		up := manualUpstream(t, "127.0.0.1:0")
		g := on.start(t, newEngine(t, unlimited), up.LocalAddr().String(), UDPOptions{MaxReplyRatio: 1, SessionIdle: 50 * time.Millisecond})
		send(t, dialUDP(t, "", g.Addrs()[0]), []byte("forged"))
		_, from := readFrom(t, up)
		require.Eventually(t, func() bool {
			_, _ = up.WriteToUDPAddrPort([]byte("longer than that"), from)
			r := g.Listeners()[0]
			return r.RepliesSuppressed > 0 && r.SessionsActive == 0
		}, ioTimeout, time.Millisecond)
	})
}

// Replies of many sessions that come at once, of which some are not sent: each
// client gets its own, whole.
func TestMaxReplyRatioAmongMany(t *testing.T) {
	onEachPath(t, func(t *testing.T, on path) {
		const clients, each = 40, 10
		up := manualUpstream(t, "127.0.0.1:0")
		g := on.start(t, newEngine(t, unlimited), up.LocalAddr().String(), UDPOptions{MaxReplyRatio: 20})
		var conns [clients]*net.UDPConn
		var from [clients]netip.AddrPort
		for i := range conns {
			conns[i] = dialUDP(t, "", g.Addrs()[0])
			send(t, conns[i], []byte("x"))
			_, from[i] = readFrom(t, up)
		}
		together(g, func() {
			for k := range each {
				for i := range conns {
					size := 5
					if (i+k)%3 == 0 {
						size = 21 // never
					}
					reply(t, up, from[i], fmt.Sprintf("%0*d", size, 100*i+k))
				}
			}
		})
		for i, c := range conns {
			var want []string
			for k := 0; len(want) < 4; k++ { // four times five bytes
				if (i+k)%3 != 0 {
					want = append(want, fmt.Sprintf("%05d", 100*i+k))
				}
			}
			require.Equal(t, want, received(t, c, len(want)), "client %d", i)
		}
		suppressedIs(t, g, clients*(each-4))
		repliesSettle(t, g, clients*4, clients*20)
	})
}

// C122: whom the upstream has not answered is throttled and not locked out; from
// its first answer on it can be, and then all of the address is.
func TestLockoutRequiresEstablished(t *testing.T) {
	onEachPath(t, func(t *testing.T, on path) {
		up := manualUpstream(t, "127.0.0.1:0")
		e := strictEngine(t, strict("", false))
		l := udpListener(false, Opcodes{})
		l.Upstream, l.UDP = up.LocalAddr().String(), UDPOptions{LockoutRequires: LockoutEstablished}
		g := on.listener(t, e, silent, l)
		forged := dialUDP(t, "127.0.2.1", g.Addrs()[0])
		for range 100 {
			send(t, forged, []byte("who I am not"))
		}
		r := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == 100 })
		assert.Equal(t, map[string]int64{"soft_throttle": 80}, r.Dropped)
		assert.Zero(t, e.Report().Lockouts)

		_, from := readFrom(t, up)
		reply(t, up, from, "hello")
		_, ok := receive(t, forged, ioTimeout)
		require.True(t, ok)
		for range 20 {
			send(t, forged, []byte("known now"))
		}
		r = reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == 120 })
		assert.Equal(t, map[string]int64{"soft_throttle": 100}, r.Dropped, "within the budget that it would have had")
		for range 10 {
			send(t, forged, []byte("too much"))
		}
		r = reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == 130 })
		assert.Equal(t, map[string]int64{"soft_throttle": 106, "hard_lockout": 4}, r.Dropped)
		assert.EqualValues(t, 1, e.Report().Lockouts)

		send(t, dialUDP(t, "127.0.2.1", g.Addrs()[0]), []byte("another port"))
		r = reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == 131 })
		assert.EqualValues(t, 5, r.Dropped["hard_lockout"])
		send(t, dialUDP(t, "127.0.3.1", g.Addrs()[0]), []byte("denied"))
		r = reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == 132 })
		assert.EqualValues(t, 1, r.Dropped["denied"])
	})
}

// C122: a flood in the name of somebody whom the upstream has answered takes his
// tokens, and does not have him locked out.
func TestForgedFloodLocksNobodyOut(t *testing.T) {
	onEachPath(t, func(t *testing.T, on path) {
		up := manualUpstream(t, "127.0.0.1:0")
		e := strictEngine(t, strict("", false))
		l := udpListener(false, Opcodes{})
		l.Upstream, l.UDP = up.LocalAddr().String(), UDPOptions{LockoutRequires: LockoutEstablished}
		g := on.listener(t, e, silent, l)
		owner := dialUDP(t, "127.0.2.1", g.Addrs()[0])
		send(t, owner, []byte("hello"))
		_, from := readFrom(t, up)
		reply(t, up, from, "welcome")
		_, ok := receive(t, owner, ioTimeout)
		require.True(t, ok)
		for range 19 {
			for range 20 {
				send(t, dialUDP(t, "127.0.2.1", g.Addrs()[0]), []byte("forged"))
			}
			send(t, owner, []byte("mine"))
		}
		r := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == 1+19*21 })
		assert.Equal(t, map[string]int64{"soft_throttle": 1 + 19*21 - 20}, r.Dropped)
		assert.Zero(t, e.Report().SoftWarningCount)
	})
}
