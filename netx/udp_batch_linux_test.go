package netx

import (
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// together lets what f makes clients send arrive as if at once: the loops find
// it all when they may go on.
func together(g *Gateway, f func()) {
	loops := g.server(0).(*udpServer).loops
	for _, l := range loops {
		l.mu.Lock()
	}
	defer func() {
		for _, l := range loops {
			l.mu.Unlock()
		}
	}()
	f()
}

// relayed gives a loop a batch and returns what the listener has counted.
func relayed(g *Gateway, ds ...datagram) ListenerReport {
	l := g.server(0).(*udpServer).loops[0]
	l.mu.Lock()
	l.relay(ds)
	l.mu.Unlock()
	return g.Listeners()[0]
}

func from(client, text string) datagram {
	return datagram{src: netip.MustParseAddrPort(client), payload: []byte(text), size: len(text)}
}

// A sendRecorder is a send that notes how many datagrams it is given at a time.
type sendRecorder struct {
	mu   sync.Mutex
	most int
}

func (r *sendRecorder) send(c upstreamConn, ps [][]byte) (int, error) {
	r.mu.Lock()
	r.most = max(r.most, len(ps))
	r.mu.Unlock()
	return c.send(ps)
}

// Clients that are new have one session each, however often they are in the
// batch, and their datagrams keep their order.
func TestUDPBatchOfTwoClients(t *testing.T) { onEachPath(t, testUDPBatchOfTwoClients) }

func testUDPBatchOfTwoClients(t *testing.T, on path) {
	const each = 100 // more than a batch takes
	up := manualUpstream(t, "127.0.0.1:0")
	var rec sendRecorder
	g := on.startWithSend(t, textLog(io.Discard), up.LocalAddr().String(), rec.send)
	a, b := dialUDP(t, "127.0.0.2", g.Addrs()[0]), dialUDP(t, "127.0.0.3", g.Addrs()[0])
	together(g, func() {
		for i := range each {
			send(t, a, []byte{'a', byte(i)})
			send(t, b, []byte{'b', byte(i)})
		}
	})
	ports := map[byte]netip.AddrPort{}
	next := map[byte]int{}
	for range 2 * each {
		p, port := readFrom(t, up)
		who := p[0]
		require.Equal(t, byte(next[who]), p[1], "out of order: %c", who)
		next[who]++
		if _, known := ports[who]; !known {
			ports[who] = port
		}
		require.Equal(t, ports[who], port, "a second session of %c", who)
	}
	r := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == 2*each })
	assert.Equal(t, int64(2), r.SessionsActive)
	assert.Equal(t, int64(2*each), r.Forwarded)
	assert.Equal(t, on == fast, rec.most > 1, "%d datagrams at a time", rec.most)
}

// What cannot go on leaves the rest of its batch alone.
func TestUDPBatchWithGaps(t *testing.T) { onEachPath(t, testUDPBatchWithGaps) }

func testUDPBatchWithGaps(t *testing.T, on path) {
	up := manualUpstream(t, "127.0.0.1:0")
	g := on.start(t, newEngine(t, unlimited), up.LocalAddr().String(), UDPOptions{MaxDatagram: 100})
	const client = "127.0.0.2:1000"
	cut := from(client, "the beginning of a longer one")
	cut.size = 70_000
	long := from(client, string(make([]byte, 101)))
	self := from(g.Addrs()[0].String(), "self")
	r := relayed(g, from("0.0.0.0:5", "bogon"), from(client, "first"), cut, from(client, ""), self, long,
		from("127.0.0.2:0", "bogon"), from(client, string(make([]byte, 100))), from(client, "last"))
	assert.Equal(t, map[string]int64{"bogon": 2, "oversize": 2, "self": 1}, r.Dropped)
	assert.Equal(t, int64(9), r.Packets)
	assert.Equal(t, int64(4), r.Forwarded)
	assert.Equal(t, int64(5+5+70_000+0+4+101+5+100+4), r.Bytes)
	for _, want := range []string{"first", "", string(make([]byte, 100)), "last"} {
		got, _ := readFrom(t, up)
		assert.Equal(t, want, string(got))
	}
}

func TestUDPBatchMeetsTheSessionCap(t *testing.T) { onEachPath(t, testUDPBatchMeetsTheSessionCap) }

func testUDPBatchMeetsTheSessionCap(t *testing.T, on path) {
	up := manualUpstream(t, "127.0.0.1:0")
	g := on.start(t, newEngine(t, unlimited), up.LocalAddr().String(), UDPOptions{MaxSessions: 2})
	const a, b, c, d = "127.0.0.2:1", "127.0.0.2:2", "127.0.0.2:3", "127.0.0.2:4"
	r := relayed(g, from(a, "a1"), from(b, "b1"), from(c, "c1"), from(a, "a2"), from(d, "d1"), from(b, "b2"), from(c, "c2"))
	assert.Equal(t, map[string]int64{"sessions_full": 3}, r.Dropped)
	assert.Equal(t, int64(3), r.SessionsRejected)
	assert.Equal(t, int64(2), r.SessionsActive)
	for _, want := range []string{"a1", "a2", "b1", "b2"} { // a session's go together
		got, _ := readFrom(t, up)
		assert.Equal(t, want, string(got))
	}
}

func TestUDPBatchWhileDraining(t *testing.T) { onEachPath(t, testUDPBatchWhileDraining) }

func testUDPBatchWhileDraining(t *testing.T, on path) {
	up := manualUpstream(t, "127.0.0.1:0")
	g := on.start(t, newEngine(t, unlimited), up.LocalAddr().String(), UDPOptions{})
	const old, late = "127.0.0.2:1", "127.0.0.2:2"
	relayed(g, from(old, "before"))
	g.server(0).drain()
	r := relayed(g, from(late, "x"), from(old, "meanwhile"), from(late, "y"))
	assert.Equal(t, map[string]int64{"draining": 2}, r.Dropped)
	assert.Equal(t, int64(2), r.Forwarded)
	assert.Equal(t, int64(1), r.SessionsActive)
}

// One batch holds what a client may and may not send.
func TestUDPBatchMeetsTheLimit(t *testing.T) { onEachPath(t, testUDPBatchMeetsTheLimit) }

func testUDPBatchMeetsTheLimit(t *testing.T, on path) {
	up := manualUpstream(t, "127.0.0.1:0")
	g := on.start(t, newEngine(t, 3), up.LocalAddr().String(), UDPOptions{})
	var ds []datagram
	for range 12 {
		ds = append(ds, from("127.0.0.2:1", "flood"), from("127.0.0.2:2", "the same address"))
	}
	ds = append(ds, from("127.0.0.3:1", "honest"))
	r := relayed(g, ds...)
	assert.Equal(t, map[string]int64{"soft_throttle": 4, "hard_lockout": 17}, r.Dropped)
	assert.Equal(t, int64(4), r.Forwarded)
	assert.Equal(t, int64(3), r.SessionsActive)
}

// Every datagram is forwarded or dropped, whatever the kernel answers.
func TestUDPSendsAll(t *testing.T) {
	type answer struct {
		n   int
		err error
	}
	const refused, full = unix.ECONNREFUSED, unix.EAGAIN
	for _, tc := range []struct {
		name                       string
		answers                    []answer // the last one again and again
		forwarded, dropped, errors int64
		order                      string
	}{
		{"all at once", []answer{{5, nil}}, 5, 0, 0, "01234"},
		{"refused again and again", []answer{{1, nil}}, 5, 0, 4, "01234"},
		{"refused before", []answer{{0, refused}, {5, nil}}, 5, 0, 1, "01234"},
		{"refused in the middle", []answer{{2, nil}, {3, nil}}, 5, 0, 1, "01234"},
		{"refused each time", []answer{{0, refused}}, 0, 5, 10, ""},
		{"refused, then full", []answer{{0, refused}, {0, full}, {4, nil}}, 4, 1, 2, "1234"},
		{"full in the middle", []answer{{2, nil}, {0, full}, {2, nil}}, 4, 1, 1, "0134"},
		{"full at the end", []answer{{4, nil}, {0, full}}, 4, 1, 1, "0123"},
		{"full", []answer{{0, full}}, 0, 5, 5, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var order []byte
			calls := 0
			g := fast.startWithSend(t, textLog(io.Discard), "127.0.0.1:9", func(_ upstreamConn, ps [][]byte) (int, error) {
				a := tc.answers[min(calls, len(tc.answers)-1)]
				calls++
				for _, p := range ps[:min(a.n, len(ps))] {
					order = append(order, p...)
				}
				return a.n, a.err
			})
			const client = "127.0.0.2:1"
			r := relayed(g, from(client, "0"), from(client, "1"), from(client, "2"), from(client, "3"), from(client, "4"))
			assert.Equal(t, tc.forwarded, r.Forwarded)
			assert.Equal(t, tc.dropped, r.Dropped["upstream_error"])
			assert.Equal(t, tc.errors, r.UpstreamErrors)
			assert.Equal(t, tc.order, string(order))
			assert.Equal(t, int64(5), r.Packets)
		})
	}
}

// The upstream is away for a batch and back for the next one.
func TestUDPBatchIsRefused(t *testing.T) { onEachPath(t, testUDPBatchIsRefused) }

func testUDPBatchIsRefused(t *testing.T, on path) {
	up := manualUpstream(t, "127.0.0.9:0")
	at := up.LocalAddr().String()
	g := on.start(t, newEngine(t, unlimited), at, UDPOptions{})
	const client = "127.0.0.2:1"
	relayed(g, from(client, "before"))
	require.NoError(t, up.Close())
	var ds []datagram
	for range 20 {
		ds = append(ds, from(client, "lost"))
	}
	relayed(g, ds...)
	r := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == 21 && r.UpstreamErrors > 0 })
	assert.LessOrEqual(t, r.UpstreamErrors, int64(40))

	up = manualUpstream(t, at)
	before := r.Forwarded
	r = relayed(g, from(client, "0"), from(client, "1"), from(client, "2"))
	assert.Equal(t, before+3, r.Forwarded)
	for _, want := range []string{"0", "1", "2"} {
		got, _ := readFrom(t, up)
		assert.Equal(t, want, string(got))
	}
}

// More replies than fit into one turn, of several sessions, some of which
// cannot go on.
func TestUDPRepliesOfManySessions(t *testing.T) { onEachPath(t, testUDPRepliesOfManySessions) }

func testUDPRepliesOfManySessions(t *testing.T, on path) {
	const each = 50
	up := manualUpstream(t, "[::1]:0")
	g := on.start(t, newEngine(t, unlimited), up.LocalAddr().String(), UDPOptions{})
	var (
		clients [7]*net.UDPConn
		ports   [len(clients)]netip.AddrPort
	)
	for i := range clients {
		clients[i] = dialUDP(t, "", g.Addrs()[0])
		send(t, clients[i], []byte("a"))
		_, ports[i] = readFrom(t, up)
	}
	answer := func(i int, p []byte) {
		_, err := up.WriteToUDPAddrPort(p, ports[i])
		require.NoError(t, err)
	}
	together(g, func() {
		for j := range each {
			for i := range clients {
				answer(i, []byte{byte(i), byte(j)})
			}
			if j == each/2 {
				answer(0, make([]byte, MaxDatagram+20)) // too long for IPv4
			}
		}
	})
	for i, c := range clients {
		for j := range each {
			got, ok := receive(t, c, ioTimeout)
			require.True(t, ok)
			require.Equal(t, []byte{byte(i), byte(j)}, got)
		}
	}
	assert.Equal(t, int64(1), g.Listeners()[0].UpstreamErrors)
}
