package netx

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/policy/limiter"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// keepOpen connects and makes sure that the connection is served.
func keepOpen(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	c := dialTCP(t, addr)
	_, err := c.Write([]byte("x"))
	require.NoError(t, err)
	_, err = io.ReadFull(c, make([]byte, 1))
	require.NoError(t, err)
	return c
}

// C52: who connects too often is refused before the dial, and keeps what is open,
// as does who is banned.
func TestTCPDecidesBeforeTheDial(t *testing.T) {
	var dialled atomic.Int64
	upstream := upstreamTCP(t, func(c *net.TCPConn) {
		dialled.Add(1)
		_, _ = io.Copy(c, c)
	})
	e := engineOf(t, policy.Policy{
		Packets:    tokenbucket.Limit{Capacity: 3, RefillPerSecond: noRefill},
		Escalation: policy.Escalation{MaxSoftViolations: 3},
	})
	g, report := startTCPOn(t, e, 0, upstream, TCPOptions{})
	addr := g.Addrs()[0].String()
	kept := keepOpen(t, addr)
	for i := range 8 {
		err := fateOf(addr, "127.0.0.1")
		if i < 2 {
			require.NoError(t, err, "connection %d", i)
		} else {
			require.ErrorIs(t, err, syscall.ECONNRESET, "connection %d", i)
		}
	}
	require.NoError(t, fateOf(addr, "127.0.0.2"), "another address pays for itself")
	require.NoError(t, e.Ban(netip.MustParsePrefix("127.0.0.1/32"), 0, ""))
	_, err := kept.Write([]byte("y"))
	require.NoError(t, err)
	_, err = io.ReadFull(kept, make([]byte, 1))
	require.NoError(t, err, "an open connection stays")
	kept.Close()
	addsUp(t, report)
	r := report()
	assert.EqualValues(t, 4, dialled.Load())
	assert.EqualValues(t, 10, r.Packets)
	assert.EqualValues(t, 4, r.Forwarded)
	assert.Equal(t, map[string]int64{"soft_throttle": 2, "hard_lockout": 4}, r.Dropped)
	assert.EqualValues(t, 5, r.Bytes)
}

// C88: many addresses at once, each held to its own limit.
func TestTCPEachAddressHasItsLimit(t *testing.T) {
	const addresses, connects, limit = 100, 10, 3
	g, report := startTCPOn(t, engineOf(t, atMost(limit)), 0, Echo, TCPOptions{})
	var (
		wg     sync.WaitGroup
		served [addresses]atomic.Int64
		places = make(chan struct{}, 64)
	)
	for i := range addresses {
		for range connects {
			wg.Go(func() {
				places <- struct{}{}
				defer func() { <-places }()
				if fateOf(g.Addrs()[0].String(), fmt.Sprintf("127.0.1.%d", i+1)) == nil {
					served[i].Add(1)
				}
			})
		}
	}
	wg.Wait()
	for i := range served {
		assert.EqualValues(t, limit, served[i].Load(), "address %d", i)
	}
	addsUp(t, report)
	r := report()
	assert.EqualValues(t, addresses*connects, r.Packets)
	assert.EqualValues(t, addresses*limit, r.Forwarded)
}

func TestTCPCaps(t *testing.T) {
	t.Run("in all", func(t *testing.T) {
		g, report := startTCP(t, Echo, TCPOptions{MaxConnections: 2})
		addr := g.Addrs()[0].String()
		first := keepOpen(t, addr)
		keepOpen(t, addr)
		require.ErrorIs(t, fateOf(addr, "127.0.0.2"), syscall.ECONNRESET)
		assert.EqualValues(t, 2, report().ConnectionsActive)
		assert.Equal(t, map[string]int64{"connections_full": 1}, report().Dropped)

		first.Close()
		require.Eventually(t, func() bool { return fateOf(addr, "127.0.0.2") == nil }, settled, 5*time.Millisecond)
	})
	t.Run("of an address", func(t *testing.T) {
		g, report := startTCP(t, Echo, TCPOptions{MaxConnectionsPerIP: 1})
		addr := g.Addrs()[0].String()
		first := keepOpen(t, addr)
		require.ErrorIs(t, fateOf(addr, "127.0.0.1"), syscall.ECONNRESET)
		require.NoError(t, fateOf(addr, "127.0.0.2"))
		assert.Equal(t, map[string]int64{"connections_full": 1}, report().Dropped)

		first.Close()
		require.Eventually(t, func() bool { return fateOf(addr, "127.0.0.1") == nil }, settled, 5*time.Millisecond)
	})
}

// The log names the cap that was hit, as the configuration does, and no other.
func TestTCPLogsWhichCap(t *testing.T) {
	for want, o := range map[string]TCPOptions{
		"max_connections=1":                          {MaxConnections: 1},
		"max_connections_per_ip=1 address=127.0.0.1": {MaxConnections: 2, MaxConnectionsPerIP: 1, Queue: queueOf(1, limiter.OldestFirst)},
		"queue.limit=1":                              {MaxConnections: 1, Queue: queueOf(1, limiter.OldestFirst)},
	} {
		t.Run(want, func(t *testing.T) {
			var out logBuffer
			g, err := StartGateway(GatewayConfig{Engine: newEngine(t, unlimited), Logger: textLog(&out), Listeners: []ListenerConfig{{
				Name: "game", Protocol: TCP, Listen: loopback(0), Upstream: Echo, TCP: o,
			}}})
			require.NoError(t, err)
			defer g.Close()
			addr := g.Addrs()[0].String()
			keepOpen(t, addr)
			if o.Queue.Limit > 0 && o.MaxConnectionsPerIP == 0 {
				dialTCP(t, addr)
				awaitQueued(t, g, 1)
			}
			require.ErrorIs(t, fateOf(addr, "127.0.0.1"), syscall.ECONNRESET)
			require.NoError(t, g.Close()) // and nobody writes to the log any more
			var lines []string
			for line := range strings.Lines(string(out)) {
				if strings.Contains(line, "no room") {
					_, line, _ = strings.Cut(line, "msg=")
					lines = append(lines, line)
				}
			}
			assert.Equal(t, []string{`"no room for a connection" listener=game ` + want + " suppressed=0\n"}, lines)
		})
	}
}

// Who knocks while there is no place is in violation all the same.
func TestTCPAsksTheEngineBeforeTheCaps(t *testing.T) {
	e := engineOf(t, policy.Policy{
		Packets:    tokenbucket.Limit{Capacity: 3, RefillPerSecond: noRefill},
		Escalation: policy.Escalation{MaxSoftViolations: 2},
	})
	g, report := startTCPOn(t, e, 0, Echo, TCPOptions{MaxConnections: 1})
	addr := g.Addrs()[0].String()
	keepOpen(t, addr)
	for range 6 {
		require.ErrorIs(t, fateOf(addr, "127.0.0.1"), syscall.ECONNRESET)
	}
	assert.Equal(t, map[string]int64{"connections_full": 2, "soft_throttle": 1, "hard_lockout": 3}, report().Dropped)
}

func TestTCPReject(t *testing.T) {
	full := TCPOptions{MaxConnections: 1}
	tryTCP := func(t *testing.T, how Reject, wait time.Duration) error {
		o := full
		o.Reject = how
		g, _ := startTCP(t, Echo, o)
		keepOpen(t, g.Addrs()[0].String())
		c, err := net.DialTimeout("tcp", g.Addrs()[0].String(), ioTimeout)
		if err != nil {
			return err
		}
		defer c.Close()
		require.NoError(t, c.SetReadDeadline(time.Now().Add(wait)))
		_, err = c.Read(make([]byte, 1))
		return err
	}
	t.Run("rst", func(t *testing.T) {
		assert.ErrorIs(t, tryTCP(t, RejectRST, ioTimeout), syscall.ECONNRESET)
	})
	t.Run("close", func(t *testing.T) {
		assert.ErrorIs(t, tryTCP(t, RejectClose, ioTimeout), io.EOF)
	})
	t.Run("silent", func(t *testing.T) {
		want := os.ErrDeadlineExceeded
		if !mayMute(t) { // loopback has no router where the reset would end
			want = syscall.ECONNRESET
		}
		assert.ErrorIs(t, tryTCP(t, RejectSilent, 300*time.Millisecond), want)
	})
}

// mayMute says whether this process may close a connection silently.
func mayMute(t *testing.T) bool {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return muteClose(dialTCP(t, l.Addr().String())) == nil
}

func TestTCPDrain(t *testing.T) {
	g, report := startTCP(t, Echo, TCPOptions{})
	addr := g.Addrs()[0].String()
	c := keepOpen(t, addr)
	drained := make(chan error, 1)
	go func() { drained <- g.Drain(context.Background()) }()
	require.Eventually(t, g.Draining, settled, time.Millisecond)
	require.Eventually(t, func() bool { return fateOf(addr, "127.0.0.1") != nil }, settled, time.Millisecond)
	assert.Positive(t, report().Dropped["draining"])

	_, err := c.Write([]byte("y"))
	require.NoError(t, err)
	_, err = io.ReadFull(c, make([]byte, 1))
	require.NoError(t, err, "an open connection goes on")
	select {
	case err := <-drained:
		t.Fatalf("Drain returned with a connection open: %v", err)
	default:
	}
	c.Close()
	require.NoError(t, <-drained)
}

// C86: a gateway that ended with connections open, and with some in TIME_WAIT
// on its port, can be started again at once.
func TestTCPStartsAgainAtOnce(t *testing.T) {
	upstream := upstreamTCP(t, func(c *net.TCPConn) {
		b := make([]byte, 1)
		if _, err := io.ReadFull(c, b); err == nil && b[0] == 'x' {
			_, _ = c.Write(b)
			_, _ = io.Copy(c, c)
		}
	})
	g, _ := startTCP(t, upstream, TCPOptions{})
	addr := g.Addrs()[0]
	for range 5 { // the gateway closes these first
		c := dialTCP(t, addr.String())
		_, err := c.Write([]byte("q"))
		require.NoError(t, err)
		_, err = io.ReadAll(c)
		require.NoError(t, err)
		c.Close()
	}
	open := make([]*net.TCPConn, 10)
	for i := range open {
		open[i] = keepOpen(t, addr.String())
	}
	require.NoError(t, g.Close())
	for _, c := range open {
		_, err := c.Read(make([]byte, 1))
		assert.Error(t, err, "a connection outlived Close")
	}
	buf := make([]byte, 1<<20)
	assert.NotContains(t, string(buf[:runtime.Stack(buf, true)]), "netx.(*relay)")

	again, err := StartGateway(GatewayConfig{Engine: engineOf(t, policy.Policy{}), Listeners: []ListenerConfig{{
		Name: "again", Protocol: TCP, Listen: addr, Upstream: Echo,
	}}})
	require.NoError(t, err)
	defer again.Close()
	require.NoError(t, fateOf(addr.String(), "127.0.0.1"))
}
