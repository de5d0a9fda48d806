package netx

import (
	"bytes"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

var localhost = netip.MustParseAddr("127.0.0.1")

// newEngine has a policy of the given capacity and next to no refill.
func newEngine(t testing.TB, capacity int64) *engine.Engine {
	t.Helper()
	e, err := engine.New(engine.Config{
		Default: policy.Policy{Packets: tokenbucket.Limit{Capacity: capacity, RefillPerSecond: 1e-6}},
		Load:    engine.NoLoad,
	})
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	return e
}

const unlimited = tokenbucket.MaxCapacity

// A path is the way that the UDP datagrams of a gateway go.
type path string

const (
	fast  path = "fast"
	plain path = "plain" // that of other systems
)

func onEachPath(t *testing.T, test func(t *testing.T, on path)) {
	for _, on := range []path{fast, plain} {
		t.Run(string(on), func(t *testing.T) { test(t, on) })
	}
}

func (on path) start(t testing.TB, e *engine.Engine, upstream string, o UDPOptions) *Gateway {
	t.Helper()
	return on.listener(t, e, slog.New(slog.DiscardHandler), ListenerConfig{
		Name: "u", Listen: netip.AddrPortFrom(localhost, 0), Upstream: upstream, UDP: o,
	})
}

func (on path) listener(t testing.TB, e *engine.Engine, log *slog.Logger, l ListenerConfig) *Gateway {
	t.Helper()
	g, err := StartGateway(GatewayConfig{
		Engine: e, Logger: log, Listeners: []ListenerConfig{l}, plainUDP: on == plain,
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, g.Close()) })
	return g
}

func startUDP(t testing.TB, e *engine.Engine, upstream string, o UDPOptions) *Gateway {
	t.Helper()
	return fast.start(t, e, upstream, o)
}

// dialUDP connects from a loopback address; "" is any.
func dialUDP(t testing.TB, from string, to netip.AddrPort) *net.UDPConn {
	t.Helper()
	var local *net.UDPAddr
	if from != "" {
		local = &net.UDPAddr{IP: net.ParseIP(from)}
	}
	c, err := net.DialUDP("udp", local, net.UDPAddrFromAddrPort(to))
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func send(t testing.TB, c *net.UDPConn, p []byte) {
	t.Helper()
	_, err := c.Write(p)
	require.NoError(t, err)
}

// receive waits for one datagram, at most so long.
func receive(t testing.TB, c *net.UDPConn, wait time.Duration) ([]byte, bool) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(wait)))
	buf := make([]byte, 1<<16)
	n, err := c.Read(buf)
	return buf[:n], err == nil
}

func exchange(t testing.TB, c *net.UDPConn, p []byte) {
	t.Helper()
	send(t, c, p)
	got, ok := receive(t, c, ioTimeout)
	require.True(t, ok, "no answer to %d bytes", len(p))
	require.True(t, bytes.Equal(p, got), "%d bytes came back as %d", len(p), len(got))
}

// reportWhen polls the first listener's report until ok says so, and checks
// that what came in is what went on and what was dropped.
func reportWhen(t testing.TB, g *Gateway, ok func(ListenerReport) bool) ListenerReport {
	t.Helper()
	var r ListenerReport
	require.Eventually(t, func() bool {
		r = g.Listeners()[0]
		sum := r.Forwarded
		for _, n := range r.Dropped {
			sum += n
		}
		return sum == r.Packets && ok(r) // C111
	}, ioTimeout, time.Millisecond, "never as wanted: %+v", &r)
	return r
}

// manualUpstream is a UDP server that a test reads and answers by hand.
func manualUpstream(t testing.TB, at string) *net.UDPConn {
	t.Helper()
	a, err := net.ResolveUDPAddr("udp", at)
	require.NoError(t, err)
	c, err := net.ListenUDP("udp", a)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func readFrom(t testing.TB, c *net.UDPConn) ([]byte, netip.AddrPort) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(ioTimeout)))
	buf := make([]byte, 1<<16)
	n, from, err := c.ReadFromUDPAddrPort(buf)
	require.NoError(t, err)
	return buf[:n], from
}

// syncBuffer is a log that a test may read.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
