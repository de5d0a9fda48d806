package netx

import (
	"context"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/policy/limiter"
)

// Those who do not come out with their header are closed in time, and cost little
// meanwhile.
func TestTCPProxySlowHeader(t *testing.T) {
	const slow = 1000
	o := acceptLB
	o.Timeout = 4 * time.Second
	g, report := startProxyTCP(t, engineOf(t, policy.Policy{}), Echo, o, TCPOptions{MaxConnections: slow})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var all []net.Conn
	began := time.Now()
	for range slow {
		c := dialFrom(t, g.Addrs()[0].String(), lb)
		say(t, c, "P")
		all = append(all, c)
	}
	require.Eventually(t, func() bool { return g.active() == slow }, settled, time.Millisecond)
	require.ErrorIs(t, fateOf(g.Addrs()[0].String(), lb), syscall.ECONNRESET)
	assert.EqualValues(t, 1, report().Dropped["connections_full"], "they count as connections")
	runtime.GC()
	runtime.ReadMemStats(&after)
	inUse := func(m runtime.MemStats) uint64 { return m.HeapAlloc + m.StackInuse }
	assert.Less(t, (int64(inUse(after))-int64(inUse(before)))/slow, int64(16<<10), "bytes for each, the ends of the test included")
	for _, c := range all { // a byte more wins no time
		_, _ = c.Write([]byte("R"))
	}
	for _, c := range all {
		_, err := c.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
	}
	assert.Less(t, time.Since(began), o.Timeout+settled)
	require.Eventually(t, func() bool { return report().Dropped["proxy_header"] == slow }, settled, time.Millisecond)
	addsUp(t, report)
	assert.Zero(t, g.active())
}

// In the queue the client is known, and one whose request has been read with the
// header has not left because it has sent its end.
func TestTCPProxyQueue(t *testing.T) {
	g, report := startProxyTCP(t, engineOf(t, policy.Policy{}), Echo, acceptLB, TCPOptions{
		MaxConnections: 1, MaxConnectionsPerIP: 2, Queue: limiter.Queue{Limit: 2, MaxWait: ioTimeout},
	})
	addr := g.Addrs()[0].String()
	first := dialFrom(t, addr, lb)
	say(t, first, broughtTCP(clientA)+"1")
	hears(t, first, "1")
	second := dialFrom(t, addr, lb)
	say(t, second, broughtTCP(clientA)+"2")
	require.NoError(t, second.CloseWrite())
	awaitQueued(t, g, 1)
	third := dialFrom(t, addr, lb)
	say(t, third, broughtTCP(clientA)+"3")
	isTurnedAway(t, third)
	assert.EqualValues(t, 1, report().Dropped["connections_full"], "those of an address, the waiting included")
	fourth := dialFrom(t, addr, lb)
	say(t, fourth, "PROXY ")
	require.Eventually(t, func() bool { return g.active() == 3 }, settled, time.Millisecond)
	require.ErrorIs(t, fateOf(addr, lb), syscall.ECONNRESET)
	assert.EqualValues(t, 1, report().Dropped["queue_full"], "one that is heard may come to wait")
	first.Close()
	hears(t, second, "2")
	addsUp(t, report)
}

// Where the last to come puts the oldest out, it is heard although there is no
// room for it yet.
func TestTCPProxyQueueNewestFirst(t *testing.T) {
	g, report := startProxyTCP(t, engineOf(t, policy.Policy{}), Echo, acceptLB, TCPOptions{
		MaxConnections: 1, Queue: limiter.Queue{Limit: 1, Order: limiter.NewestFirst, MaxWait: ioTimeout},
	})
	addr := g.Addrs()[0].String()
	var all [3]*net.TCPConn
	for i := range all {
		all[i] = dialFrom(t, addr, lb)
		say(t, all[i], broughtTCP(clientA)+"x")
		if i == 0 {
			hears(t, all[0], "x")
		} else {
			awaitQueued(t, g, 1)
		}
	}
	isTurnedAway(t, all[1])
	dropsWhen(t, report, dropQueueFull, 1)
	all[0].Close()
	hears(t, all[2], "x")
}

// A drain waits for no header, nor does a close.
func TestTCPProxyDrain(t *testing.T) {
	o := acceptLB
	o.Timeout = time.Hour
	g, report := startProxyTCP(t, engineOf(t, policy.Policy{}), Echo, o, TCPOptions{})
	c := dialFrom(t, g.Addrs()[0].String(), lb)
	say(t, c, "PROXY ")
	require.Eventually(t, func() bool { return g.active() == 1 }, settled, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), settled)
	defer cancel()
	require.NoError(t, g.Drain(ctx))
	isTurnedAway(t, c)
	dropsWhen(t, report, dropDraining, 1)
}

// Nothing is left of those whose header was refused.
func TestTCPProxyRefusedLeavesNothing(t *testing.T) {
	g, report := startProxyTCP(t, engineOf(t, policy.Policy{}), Echo, acceptLB, TCPOptions{})
	refused := 0
	heapAfter := func(n int) int64 {
		for range n {
			require.ErrorIs(t, fateOf(g.Addrs()[0].String(), lb), syscall.ECONNRESET)
		}
		refused += n
		dropsWhen(t, report, dropProxyHeader, refused)
		require.Eventually(t, func() bool { return g.active() == 0 }, settled, time.Millisecond)
		runtime.GC()
		runtime.GC() // and what had a finalizer
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	const n = 1000
	before := heapAfter(n)
	assert.Less(t, (heapAfter(n)-before)/n, int64(200), "bytes for each")
}

// A load balancer may look whether anybody listens and leave with a reset, as
// haproxy does every other second: that is counted and not logged. One that goes in
// the middle of a header is.
func TestTCPProxyLooksIn(t *testing.T) {
	var log syncBuffer
	g, err := StartGateway(GatewayConfig{Engine: engineOf(t, policy.Policy{}), Logger: textLog(&log), Listeners: []ListenerConfig{{
		Name: "tcp", Protocol: TCP, Listen: loopback(0), Upstream: Echo, Proxy: acceptLB,
	}}})
	require.NoError(t, err)
	defer g.Close()
	for i, said := range []string{"", "PROXY TCP4"} {
		c := dialFrom(t, g.Addrs()[0].String(), lb)
		say(t, c, said)
		if said == "" {
			require.NoError(t, c.SetLinger(0))
		}
		require.NoError(t, c.Close())
		dropsWhen(t, func() ListenerReport { return g.Listeners()[0] }, dropProxyHeader, i+1)
		require.Equal(t, i, strings.Count(log.String(), "no PROXY header"), "%s", &log)
	}
}
