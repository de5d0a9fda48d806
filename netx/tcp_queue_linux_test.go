package netx

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/policy/limiter"
)

// patient is longer than any test: nobody leaves the queue for it.
const patient = time.Minute

func queueOf(limit int, order limiter.Order) limiter.Queue {
	return limiter.Queue{Limit: limit, Order: order, MaxWait: patient}
}

// awaitQueued waits until so many connections are in the queue.
func awaitQueued(t *testing.T, g *Gateway, n int) {
	t.Helper()
	s := g.server(0).(*tcpServer)
	require.Eventually(t, func() bool { return s.places.Stats().Queued == int64(n) }, settled, time.Millisecond,
		"in the queue: %d", s.places.Stats().Queued)
}

// dialFrom connects from an address of the loopback network.
func dialFrom(t *testing.T, addr, from string) *net.TCPConn {
	t.Helper()
	d := net.Dialer{Timeout: ioTimeout, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(ioTimeout)))
	return c.(*net.TCPConn)
}

// isTurnedAway checks that the connection is reset.
func isTurnedAway(t *testing.T, c net.Conn, which ...any) {
	t.Helper()
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET, which...)
}

// isServed checks that the echo answers.
func isServed(t *testing.T, c net.Conn) {
	t.Helper()
	_, err := c.Write([]byte("x"))
	require.NoError(t, err)
	_, err = io.ReadFull(c, make([]byte, 1))
	require.NoError(t, err)
}

// A diary is an upstream that notes who comes. Each client begins with its
// number, which comes back; then it stays until the client goes.
type diary struct {
	mu   sync.Mutex
	came []int
}

func (d *diary) serve(c *net.TCPConn) {
	b := make([]byte, 2)
	if _, err := io.ReadFull(c, b); err != nil {
		return
	}
	d.mu.Lock()
	d.came = append(d.came, int(binary.BigEndian.Uint16(b)))
	d.mu.Unlock()
	_, _ = c.Write(b)
	_, _ = io.Copy(io.Discard, c)
}

// who says who has come since it was last asked.
func (d *diary) who() []int {
	d.mu.Lock()
	defer d.mu.Unlock()
	came := d.came
	d.came = nil
	return came
}

func sayNumber(t *testing.T, c net.Conn, n int) {
	t.Helper()
	_, err := c.Write(binary.BigEndian.AppendUint16(nil, uint16(n)))
	require.NoError(t, err)
}

func hearNumber(t *testing.T, c net.Conn, n int) {
	t.Helper()
	b := make([]byte, 2)
	_, err := io.ReadFull(c, b)
	require.NoError(t, err, "number %d", n)
	require.EqualValues(t, n, binary.BigEndian.Uint16(b))
}

// They come as fast as they can, and all speak before there is a place.
func TestTCPQueueKeepsTheOrder(t *testing.T) {
	const waiters = 100
	for _, order := range []limiter.Order{limiter.OldestFirst, limiter.NewestFirst} {
		t.Run(order.String(), func(t *testing.T) {
			var d diary
			g, report := startTCPOn(t, newEngine(t, unlimited), 0, upstreamTCP(t, d.serve), TCPOptions{MaxConnections: 1, Queue: queueOf(waiters, order)})
			addr := g.Addrs()[0].String()
			first := dialTCP(t, addr)
			sayNumber(t, first, 0)
			hearNumber(t, first, 0)
			assert.Equal(t, []int{0}, d.who())
			clients, want := make([]*net.TCPConn, waiters), []int(nil)
			for i := range clients {
				clients[i] = dialTCP(t, addr)
				sayNumber(t, clients[i], i+1)
				if order == limiter.OldestFirst {
					want = append(want, i+1)
				} else {
					want = append(want, waiters-i)
				}
			}
			awaitQueued(t, g, waiters)
			assert.EqualValues(t, 1, report().ConnectionsActive, "who waits is not served")
			assert.EqualValues(t, waiters+1, g.active(), "but a drain waits for them")
			assert.Empty(t, d.who(), "an upstream that was dialled too early")

			require.NoError(t, first.Close())
			for _, n := range want {
				hearNumber(t, clients[n-1], n)
				require.NoError(t, clients[n-1].Close())
			}
			assert.Equal(t, want, d.who())
			addsUp(t, report)
			r := report()
			assert.EqualValues(t, waiters+1, r.Forwarded)
			assert.EqualValues(t, 2*(waiters+1), r.Bytes)
			assert.Empty(t, r.Dropped)
		})
	}
}

func TestTCPQueueMaxWait(t *testing.T) {
	const most = 100 * time.Millisecond
	g, report := startTCP(t, Echo, TCPOptions{MaxConnections: 1, Queue: limiter.Queue{Limit: 3, MaxWait: most}})
	addr := g.Addrs()[0].String()
	first := keepOpen(t, addr)
	began := time.Now()
	waiters := []*net.TCPConn{dialTCP(t, addr), dialTCP(t, addr)}
	for _, c := range waiters {
		isTurnedAway(t, c)
		assert.GreaterOrEqual(t, time.Since(began), most)
	}
	assert.Less(t, time.Since(began), settled)
	isServed(t, first)
	assert.Equal(t, map[string]int64{"queue_full": 2}, report().Dropped)

	require.NoError(t, first.Close())
	require.NoError(t, fateOf(addr, "127.0.0.1"), "a queue that is empty again")
	addsUp(t, report)
}

func TestTCPQueueFull(t *testing.T) {
	g, report := startTCP(t, Echo, TCPOptions{MaxConnections: 1, Queue: queueOf(2, limiter.OldestFirst)})
	addr := g.Addrs()[0].String()
	first := keepOpen(t, addr)
	second, third := dialTCP(t, addr), dialTCP(t, addr)
	for range 5 {
		require.ErrorIs(t, fateOf(addr, "127.0.0.2"), syscall.ECONNRESET)
	}
	assert.Equal(t, map[string]int64{"queue_full": 5}, report().Dropped)

	require.NoError(t, first.Close())
	isServed(t, second)
	fourth := dialTCP(t, addr) // there is room for one again
	awaitQueued(t, g, 2)
	require.NoError(t, second.Close())
	isServed(t, third)
	require.NoError(t, third.Close())
	isServed(t, fourth)
	require.NoError(t, fourth.Close())
	addsUp(t, report)
}

// Under newest_first it is exactly the oldest waiters that are turned away, and
// those that stay are served from the last to the first.
func TestTCPQueueEvictsTheOldest(t *testing.T) {
	const (
		connects = 10_000
		places   = 100
		queue    = 50
		lag      = 100 // so many are not looked at yet, so that they come in a burst
	)
	var d diary
	g, report := startTCPOn(t, newEngine(t, unlimited), 0, upstreamTCP(t, d.serve), TCPOptions{
		MaxConnections: places, Queue: queueOf(queue, limiter.NewestFirst),
	})
	addr := g.Addrs()[0].String()
	clients := make([]*net.TCPConn, connects)
	evicted := func(i int) {
		if i >= places {
			isTurnedAway(t, clients[i], "connection %d", i)
			clients[i].Close()
			clients[i] = nil
		}
	}
	for i := range clients {
		c, err := net.DialTimeout("tcp", addr, ioTimeout)
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.SetDeadline(time.Now().Add(3*ioTimeout)))
		clients[i] = c.(*net.TCPConn)
		if i < places {
			sayNumber(t, c, i)
			hearNumber(t, c, i)
		}
		evicted(i - queue - lag)
	}
	for i := connects - queue - lag; i < connects-queue; i++ {
		evicted(i)
	}
	r := report()
	assert.EqualValues(t, connects, r.Packets)
	assert.EqualValues(t, places, r.ConnectionsActive)
	assert.Equal(t, map[string]int64{"queue_full": connects - places - queue}, r.Dropped)

	assert.Len(t, d.who(), places)
	var want []int
	for i := range queue {
		require.NoError(t, clients[i].Close())
		n := connects - 1 - i
		sayNumber(t, clients[n], n)
		hearNumber(t, clients[n], n)
		want = append(want, n)
	}
	assert.Equal(t, want, d.who())
	for _, c := range clients {
		if c != nil {
			c.Close()
		}
	}
	addsUp(t, report)
	assert.EqualValues(t, places+queue, report().Forwarded)
}

func TestTCPQueueCountsForTheAddress(t *testing.T) {
	g, report := startTCP(t, Echo, TCPOptions{
		MaxConnections: 1, MaxConnectionsPerIP: 2, Queue: queueOf(10, limiter.OldestFirst),
	})
	addr := g.Addrs()[0].String()
	first := keepOpen(t, addr)
	second := dialTCP(t, addr)
	awaitQueued(t, g, 1)
	require.ErrorIs(t, fateOf(addr, "127.0.0.1"), syscall.ECONNRESET)
	assert.Equal(t, map[string]int64{"connections_full": 1}, report().Dropped)
	other := dialFrom(t, addr, "127.0.0.2")
	awaitQueued(t, g, 2)

	require.NoError(t, first.Close())
	isServed(t, second)
	third := dialTCP(t, addr) // in the place of the first
	awaitQueued(t, g, 2)
	require.NoError(t, second.Close())
	isServed(t, other)
	require.NoError(t, other.Close())
	isServed(t, third)
}

// The engine is asked once for a connection, when it comes.
func TestTCPQueueDecidesOnce(t *testing.T) {
	g, report := startTCPOn(t, engineOf(t, atMost(2)), 0, Echo, TCPOptions{MaxConnections: 1, Queue: queueOf(10, limiter.OldestFirst)})
	addr := g.Addrs()[0].String()
	first := keepOpen(t, addr)
	second := dialTCP(t, addr)
	awaitQueued(t, g, 1)
	require.ErrorIs(t, fateOf(addr, "127.0.0.1"), syscall.ECONNRESET)
	assert.Equal(t, map[string]int64{"soft_throttle": 1}, report().Dropped)
	require.NoError(t, first.Close())
	isServed(t, second)
}

// Time in the queue is not the client's silence.
func TestTCPQueueFirstByteTimeout(t *testing.T) {
	const timeout = 150 * time.Millisecond
	g, report := startTCP(t, Echo, TCPOptions{
		MaxConnections: 1, FirstByteTimeout: timeout, Queue: queueOf(1, limiter.OldestFirst),
	})
	addr := g.Addrs()[0].String()
	first := keepOpen(t, addr)
	mute := dialTCP(t, addr)
	awaitQueued(t, g, 1)
	time.Sleep(2 * timeout)
	awaitQueued(t, g, 1)
	began := time.Now()
	require.NoError(t, first.Close())
	_, err := mute.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	assert.GreaterOrEqual(t, time.Since(began), timeout)
	addsUp(t, report)
	assert.EqualValues(t, 2, report().Forwarded)
}
