package netx

import (
	"math"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// shrink leaves the listening sockets of a gateway room for a few datagrams.
func shrink(t *testing.T, g *Gateway) {
	t.Helper()
	for _, l := range g.server(0).(*udpServer).loops {
		switch p := l.path.(type) {
		case *fastPath:
			require.NoError(t, unix.SetsockoptInt(p.listen, unix.SOL_SOCKET, unix.SO_RCVBUF, 1))
		case *plainPath:
			require.NoError(t, p.listen.socket.SetReadBuffer(1))
		}
	}
}

// burst sends more than the buffers take while nothing is read.
func burst(t *testing.T, g *Gateway, c *net.UDPConn, n int) {
	t.Helper()
	together(g, func() {
		for range n {
			send(t, c, make([]byte, 100))
		}
	})
}

// settle sends datagrams until one is answered, so that all before it have been
// read. It returns how many that took, and what is counted then.
func settle(t *testing.T, g *Gateway, c *net.UDPConn) (sent int64, r ListenerReport) {
	t.Helper()
	for sent < 100 {
		sent++
		last := strconv.FormatInt(time.Now().UnixNano(), 10)
		send(t, c, []byte(last))
		for {
			got, ok := receive(t, c, 100*time.Millisecond)
			if string(got) == last {
				return sent, reportWhen(t, g, func(ListenerReport) bool { return true })
			}
			if !ok {
				break // it has found no room
			}
		}
	}
	require.Fail(t, "no answer")
	return 0, r
}

// C84: each datagram that finds no room is counted once, on the path that can, and the
// log tells of all of them.
func TestReceiveBufferDrops(t *testing.T) {
	onEachPath(t, func(t *testing.T, on path) {
		const bursts, size = 3, 500
		var log syncBuffer
		l := udpTo("u", Echo)
		l.UDP.SessionIdle = 200 * time.Millisecond // the log looks four times as often
		g := on.listener(t, newEngine(t, unlimited), textLog(&log), l)
		shrink(t, g)
		c := dialUDP(t, "127.0.0.2", g.Addrs()[0])
		var (
			sent int64
			r    ListenerReport
		)
		for range bursts {
			var more int64
			burst(t, g, c, size)
			more, r = settle(t, g, c)
			sent += size + more
			require.Less(t, r.Packets, sent, "the buffer takes all")
			want := sent - r.Packets
			if on == plain {
				want = 0
			}
			require.Equal(t, want, r.ReceiveBufferDropped)
			require.Equal(t, want, g.Listeners()[0].ReceiveBufferDropped, "asked again")
		}
		if on == plain {
			return
		}
		require.Eventually(t, func() bool { return logged(t, &log) == r.ReceiveBufferDropped }, ioTimeout, time.Millisecond)
		burst(t, g, c, size)
		want := dropped(t, g)
		require.NoError(t, g.Close())
		assert.Greater(t, want, r.ReceiveBufferDropped)
		assert.Equal(t, want, g.Listeners()[0].ReceiveBufferDropped, "after Close")
	})
}

// dropped is what the kernel says of the listening sockets.
func dropped(t *testing.T, g *Gateway) (sum int64) {
	for _, l := range g.server(0).(*udpServer).loops {
		n, err := droppedAt(l.path.(*fastPath).listen)
		require.NoError(t, err)
		sum += int64(n)
	}
	return sum
}

// logged is how many drops the log tells of.
func logged(t *testing.T, log *syncBuffer) (n int64) {
	for _, m := range regexp.MustCompile(`receive buffer was full.* listener=u dropped=(\d+)`).FindAllStringSubmatch(log.String(), -1) {
		more, err := strconv.ParseInt(m[1], 10, 64)
		require.NoError(t, err)
		n += more
	}
	return n
}

// Reloads that take the socket over, and what a filter drops on it, make no
// difference: all that was sent is in Packets or has found no room. A listener of
// another name begins with 0.
func TestReceiveBufferDropsOverReloads(t *testing.T) {
	const rounds, size = 10, 200
	e := newEngine(t, unlimited)
	require.NoError(t, e.Ban(netip.MustParsePrefix("127.0.0.3/32"), 0, ""))
	g := startKernelDrop(t, e, localhost, 0)
	at := g.Addrs()[0]
	c, flooder := dialUDP(t, "127.0.0.2", at), dialUDP(t, "127.0.0.3", at)
	var (
		flooded atomic.Int64
		stop    atomic.Bool
		wg      sync.WaitGroup
	)
	wg.Go(func() {
		for ; !stop.Load(); flooded.Add(1) {
			send(t, flooder, []byte("banned"))
		}
	})
	wg.Go(func() {
		for last := int64(0); !stop.Load(); {
			now := g.Listeners()[0].ReceiveBufferDropped
			assert.GreaterOrEqual(t, now, last, "the counter has stepped back")
			last = now
		}
	})
	for i := range rounds {
		shrink(t, g)
		before := g.Listeners()[0].Dropped["kernel"]
		burst(t, g, c, size)
		l := changed(udpTo("a", Echo), i)
		require.NoError(t, g.Reload([]ListenerConfig{l}, time.Duration(i%2)*time.Hour))
		require.Eventually(t, func() bool { return g.Listeners()[0].Dropped["kernel"] > before }, ioTimeout, time.Millisecond)
	}
	stop.Store(true)
	wg.Wait()
	more, r := settle(t, g, c)
	assert.Greater(t, r.ReceiveBufferDropped, int64(rounds*size/2))
	assert.Equal(t, rounds*size+more+flooded.Load(), r.Packets+r.ReceiveBufferDropped)

	l := udpTo("b", Echo)
	l.Listen = at
	require.NoError(t, g.Reload([]ListenerConfig{l}, 0))
	burst(t, g, c, size)
	more, r = settle(t, g, c)
	assert.Positive(t, r.ReceiveBufferDropped)
	assert.Equal(t, size+more, r.Packets+r.ReceiveBufferDropped)
}

// The kernel counts modulo 2^32.
func TestReceiveBufferDropsWrapAround(t *testing.T) {
	var n atomic.Int64
	d := newSocketDrops(-1, &n)
	for _, now := range []uint32{0, 7, 1 << 31, math.MaxUint32, 2, 2} {
		d.advance(now)
	}
	assert.Equal(t, int64(1<<32+2), n.Load())
}
