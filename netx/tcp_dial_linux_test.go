package netx

import (
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-ee4278a0/throttled/policy"
)

// deafUpstream is an address whose connects neither succeed nor fail: its queue
// is full and nobody accepts.
func deafUpstream(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	require.NoError(t, unix.Bind(fd, sockaddr(loopback(0))))
	require.NoError(t, unix.Listen(fd, 0))
	sa, err := unix.Getsockname(fd)
	require.NoError(t, err)
	addr := addrPortOf(sa).String()
	for {
		c, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { c.Close() })
	}
}

func TestTCPDialTimeout(t *testing.T) {
	const timeout = 150 * time.Millisecond
	g, report := startTCP(t, deafUpstream(t), TCPOptions{DialTimeout: timeout})
	began := time.Now()
	require.Error(t, fateOf(g.Addrs()[0].String(), "127.0.0.1"))
	assert.GreaterOrEqual(t, time.Since(began), timeout)
	addsUp(t, report)
	assert.EqualValues(t, 1, report().Dropped["upstream_error"])
}

func TestTCPCloseEndsADial(t *testing.T) {
	g, report := startTCP(t, deafUpstream(t), TCPOptions{DialTimeout: time.Hour})
	dialTCP(t, g.Addrs()[0].String())
	require.Eventually(t, func() bool { return report().ConnectionsActive == 1 }, settled, time.Millisecond)
	began := time.Now()
	require.NoError(t, g.Close())
	assert.Less(t, time.Since(began), settled)
	assert.EqualValues(t, 1, report().Dropped["draining"])
}

// A deadline that has passed must not stay with the socket: it is for the dial.
func TestTCPOutlivesTheDialTimeout(t *testing.T) {
	const timeout = 100 * time.Millisecond
	g, _ := startTCP(t, Echo, TCPOptions{DialTimeout: timeout})
	c := keepOpen(t, g.Addrs()[0].String())
	for began := time.Now(); time.Since(began) < 3*timeout; time.Sleep(timeout / 5) {
		require.True(t, echoes(c))
	}
}

// A connection that stays is kept alive, so that a peer that has died without a
// word does not hold its place for ever.
func TestTCPKeepsAliveWhatStays(t *testing.T) {
	g, _ := startTCP(t, Echo, TCPOptions{IdleTimeout: 200 * time.Millisecond})
	c := keepOpen(t, g.Addrs()[0].String())
	w := &g.server(0).(*tcpServer).watch
	require.Eventually(t, func() bool {
		require.True(t, echoes(c))
		w.mu.Lock()
		defer w.mu.Unlock()
		require.Len(t, w.relays, 1)
		for r := range w.relays {
			return keptAlive(r.client) && keptAlive(r.upstream)
		}
		return false
	}, settled, 10*time.Millisecond)
}

func keptAlive(c *net.TCPConn) (on bool) {
	control(c, func(fd int) {
		n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE)
		on = err == nil && n == 1
	})
	return on
}

// However connections end, nothing is logged for each.
func TestTCPResetsAreNotLogged(t *testing.T) {
	var out logBuffer
	upstream := upstreamTCP(t, func(c *net.TCPConn) {
		_, _ = c.Read(make([]byte, 1)) // now the gateway's dial is through
		_, _ = c.Write(make([]byte, 100_000))
		_ = c.SetLinger(0)
	})
	g, err := StartGateway(GatewayConfig{
		Engine: engineOf(t, policy.Policy{}),
		Logger: slog.New(slog.NewTextHandler(&out, nil)),
		Listeners: []ListenerConfig{{
			Name: "tcp", Protocol: TCP, Listen: loopback(0), Upstream: upstream,
			TCP: TCPOptions{MaxConnections: 100},
		}},
	})
	require.NoError(t, err)
	for range 20 {
		c := dialTCP(t, g.Addrs()[0].String())
		_, _ = c.Write(make([]byte, 100_000))
		require.NoError(t, c.SetLinger(0))
		require.NoError(t, c.Close())
	}
	addsUp(t, func() ListenerReport { return g.Listeners()[0] })
	require.NoError(t, g.Close())
	assert.Empty(t, string(out))
}
