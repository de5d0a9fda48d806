package netx

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

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

func startUDP(t testing.TB, e *engine.Engine, upstream string, o UDPOptions) *Gateway {
	t.Helper()
	return startListener(t, e, slog.New(slog.DiscardHandler), ListenerConfig{
		Name: "u", Listen: netip.AddrPortFrom(localhost, 0), Upstream: upstream, UDP: o,
	})
}

func startListener(t testing.TB, e *engine.Engine, log *slog.Logger, l ListenerConfig) *Gateway {
	t.Helper()
	g, err := StartGateway(GatewayConfig{Engine: e, Logger: log, Listeners: []ListenerConfig{l}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, g.Close()) })
	return g
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

func TestUDPSizes(t *testing.T) { // C75, C76
	g := startUDP(t, newEngine(t, unlimited), Echo, UDPOptions{})
	c := dialUDP(t, "", g.Addrs()[0])
	sizes := []int{0, 1, 0, 1472, MaxDatagram, 0, 5}
	total := 0
	for _, n := range sizes {
		exchange(t, c, randomBytes(n))
		total += n
	}
	r := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == int64(len(sizes)) })
	assert.Equal(t, int64(total), r.Bytes)
	assert.Equal(t, int64(len(sizes)), r.Forwarded)
	assert.Equal(t, int64(1), r.SessionsActive)
	assert.Zero(t, r.UpstreamErrors)
	assert.Equal(t, "udp", r.Protocol)
	assert.Equal(t, g.Addrs()[0].String(), r.Listen)
}

func TestUDPOverIPv6(t *testing.T) {
	up := manualUpstream(t, "[::1]:0")
	g := startListener(t, newEngine(t, unlimited), nil, ListenerConfig{
		Name: "six", Listen: netip.MustParseAddrPort("[::1]:0"), Upstream: up.LocalAddr().String(),
	})
	c := dialUDP(t, "", g.Addrs()[0])
	send(t, c, []byte("ping"))
	got, from := readFrom(t, up)
	assert.Equal(t, "ping", string(got))
	_, err := up.WriteToUDPAddrPort([]byte("pong"), from)
	require.NoError(t, err)
	got, ok := receive(t, c, ioTimeout)
	require.True(t, ok)
	assert.Equal(t, "pong", string(got))
}

func TestUDPBackToBack(t *testing.T) { // C70
	up := manualUpstream(t, "127.0.0.1:0")
	g := startUDP(t, newEngine(t, unlimited), up.LocalAddr().String(), UDPOptions{})
	c := dialUDP(t, "", g.Addrs()[0])
	send(t, c, []byte("fifteen letters"))
	send(t, c, []byte("short"))
	first, from := readFrom(t, up)
	second, _ := readFrom(t, up)
	assert.Equal(t, []string{"fifteen letters", "short"}, []string{string(first), string(second)})

	for _, p := range []string{"one reply", "2"} {
		_, err := up.WriteToUDPAddrPort([]byte(p), from)
		require.NoError(t, err)
	}
	first, _ = receive(t, c, ioTimeout)
	second, _ = receive(t, c, ioTimeout)
	assert.Equal(t, []string{"one reply", "2"}, []string{string(first), string(second)})
}

func TestUDPOversizeIsDroppedWhole(t *testing.T) { // C75
	g := startUDP(t, newEngine(t, unlimited), Echo, UDPOptions{MaxDatagram: 2048})
	c := dialUDP(t, "", g.Addrs()[0])
	send(t, c, randomBytes(4000))
	send(t, c, randomBytes(2049))
	exchange(t, c, randomBytes(2048))
	r := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == 3 })
	assert.Equal(t, map[string]int64{"oversize": 2}, r.Dropped)
	assert.Equal(t, int64(4000+2049+2048), r.Bytes)
}

func TestUDPRepliesReachTheirClients(t *testing.T) {
	up := manualUpstream(t, "127.0.0.1:0")
	g := startUDP(t, newEngine(t, unlimited), up.LocalAddr().String(), UDPOptions{})
	const n = 40
	var (
		clients [n]*net.UDPConn
		ports   = map[netip.AddrPort]int{} // of the session -> client
	)
	for i := range clients {
		clients[i] = dialUDP(t, fmt.Sprintf("127.0.0.%d", 2+i%7), g.Addrs()[0])
		send(t, clients[i], []byte{byte(i)})
		got, from := readFrom(t, up)
		require.Equal(t, []byte{byte(i)}, got)
		ports[from] = i
	}
	require.Len(t, ports, n, "two clients share a port")
	for from, i := range ports { // in another order
		_, err := up.WriteToUDPAddrPort([]byte{byte(i), 1}, from)
		require.NoError(t, err)
	}
	for i, c := range clients {
		got, ok := receive(t, c, ioTimeout)
		require.True(t, ok)
		assert.Equal(t, []byte{byte(i), 1}, got)
	}
	reportWhen(t, g, func(r ListenerReport) bool { return r.SessionsActive == n })
}

func TestUDPMaxSessions(t *testing.T) { // C64, C65
	var out syncBuffer
	up := manualUpstream(t, "127.0.0.1:0")
	g := startListener(t, newEngine(t, unlimited), slog.New(slog.NewTextHandler(&out, nil)), ListenerConfig{
		Name: "u", Listen: netip.AddrPortFrom(localhost, 0), Upstream: up.LocalAddr().String(),
		UDP: UDPOptions{MaxSessions: 20},
	})
	var first *net.UDPConn
	for i := range 120 {
		c := dialUDP(t, "", g.Addrs()[0])
		send(t, c, []byte{byte(i)})
		if i == 0 {
			first = c
			readFrom(t, up)
		}
	}
	r := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == 120 })
	assert.Equal(t, int64(20), r.SessionsActive)
	assert.Equal(t, int64(100), r.SessionsRejected)
	assert.Equal(t, map[string]int64{"sessions_full": 100}, r.Dropped)
	assert.LessOrEqual(t, strings.Count(out.String(), "session table full"), 2)

	send(t, first, []byte("still here"))
	require.Eventually(t, func() bool {
		got, _ := readFrom(t, up)
		return string(got) == "still here"
	}, ioTimeout, time.Nanosecond)
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

func TestUDPIdleSessionEnds(t *testing.T) { // C69
	up := manualUpstream(t, "127.0.0.1:0")
	g := startUDP(t, newEngine(t, unlimited), up.LocalAddr().String(), UDPOptions{SessionIdle: time.Nanosecond})
	c := dialUDP(t, "", g.Addrs()[0])
	for i := range int64(5) {
		send(t, c, []byte("a"))
		readFrom(t, up) // forwarded, however short the idle time
		reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == i+1 && r.SessionsActive == 0 })
	}
}

func TestUDPQuarantine(t *testing.T) { // C67
	up := manualUpstream(t, "127.0.0.1:0")
	g := startUDP(t, newEngine(t, unlimited), up.LocalAddr().String(), UDPOptions{})
	c := dialUDP(t, "", g.Addrs()[0])
	send(t, c, []byte("a"))
	_, old := readFrom(t, up)
	endSessions(g)

	// The port of the session that ended is nobody's yet.
	_, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(old))
	require.ErrorIs(t, err, unix.EADDRINUSE)
	send(t, c, []byte("b"))
	got, from := readFrom(t, up)
	require.Equal(t, "b", string(got))
	require.NotEqual(t, old, from)
	_, err = up.WriteToUDPAddrPort([]byte("late"), old)
	require.NoError(t, err)
	_, err = up.WriteToUDPAddrPort([]byte("answer"), from)
	require.NoError(t, err)
	got, ok := receive(t, c, ioTimeout)
	require.True(t, ok)
	assert.Equal(t, "answer", string(got))

	for _, l := range g.servers[0].(*udpServer).loops {
		l.table.sweep(l.now() + int64(quarantine))
	}
	free, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(old))
	require.NoError(t, err)
	free.Close()
}

// endSessions lets those that are open be idle for long enough.
func endSessions(g *Gateway) {
	for _, l := range g.servers[0].(*udpServer).loops {
		now := l.now()
		l.table.mu.Lock()
		for _, ss := range l.table.byClient {
			l.table.end(ss, now)
		}
		l.table.mu.Unlock()
	}
}

// Traffic in either direction puts the end of a session off.
func TestUDPActivityEitherWay(t *testing.T) {
	for _, way := range []string{"in", "out"} {
		t.Run(way, func(t *testing.T) {
			up := manualUpstream(t, "127.0.0.1:0")
			g := startUDP(t, newEngine(t, unlimited), up.LocalAddr().String(), UDPOptions{SessionIdle: time.Hour})
			c := dialUDP(t, "", g.Addrs()[0])
			send(t, c, []byte("a"))
			_, port := readFrom(t, up)
			l, s := onlySession(t, g)
			opened := s.seen.Load()
			if way == "in" {
				send(t, c, []byte("b"))
				readFrom(t, up)
			} else {
				_, err := up.WriteToUDPAddrPort([]byte("b"), port)
				require.NoError(t, err)
				_, ok := receive(t, c, ioTimeout)
				require.True(t, ok)
			}
			seen := s.seen.Load()
			require.Greater(t, seen, opened)
			l.table.sweep(opened + int64(time.Hour))
			require.Equal(t, int64(1), g.Listeners()[0].SessionsActive)
			l.table.sweep(seen + int64(time.Hour))
			require.Zero(t, g.Listeners()[0].SessionsActive)
		})
	}
}

func onlySession(t *testing.T, g *Gateway) (*udpLoop, *session) {
	t.Helper()
	for _, l := range g.servers[0].(*udpServer).loops {
		l.table.mu.Lock()
		defer l.table.mu.Unlock()
		for _, s := range l.table.byClient {
			return l, s
		}
	}
	require.Fail(t, "no session")
	return nil, nil
}

func TestUDPQuarantineIsBounded(t *testing.T) {
	up := manualUpstream(t, "127.0.0.1:0")
	g := startUDP(t, newEngine(t, unlimited), up.LocalAddr().String(),
		UDPOptions{SessionIdle: 20 * time.Millisecond, MaxSessions: 16})
	before := openDescriptors(t)
	for round := range int64(10) { // each fills the table and lets it run empty
		for range 16 {
			c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(g.Addrs()[0]))
			require.NoError(t, err)
			send(t, c, []byte("a"))
			c.Close()
		}
		reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == 16*(round+1) && r.SessionsActive == 0 })
	}
	assert.LessOrEqual(t, openDescriptors(t)-before, 16/quarantineShare+loopCount())
}

func TestUDPUpstreamGoesAway(t *testing.T) { // C71
	up := manualUpstream(t, "127.0.0.1:0")
	at := up.LocalAddr().String()
	g := startUDP(t, newEngine(t, unlimited), at, UDPOptions{})
	c := dialUDP(t, "", g.Addrs()[0])
	send(t, c, []byte("a"))
	_, port := readFrom(t, up)
	require.NoError(t, up.Close())

	const away = 50
	for i := range away {
		send(t, c, []byte("lost"))
		// Every one is refused, and every refusal is counted once: more would
		// be a busy loop.
		r := reportWhen(t, g, func(r ListenerReport) bool { return r.UpstreamErrors == int64(i+1) })
		require.Equal(t, int64(i+2), r.Packets)
	}

	up = manualUpstream(t, at)
	send(t, c, []byte("back"))
	got, from := readFrom(t, up)
	assert.Equal(t, "back", string(got))
	assert.Equal(t, port, from, "another session")
	_, err := up.WriteToUDPAddrPort([]byte("answer"), from)
	require.NoError(t, err)
	got, ok := receive(t, c, ioTimeout)
	require.True(t, ok)
	assert.Equal(t, "answer", string(got))
	assert.Equal(t, int64(away), g.Listeners()[0].UpstreamErrors)
}

// startWithSend is a gateway whose datagrams to the upstream go through send.
func startWithSend(t *testing.T, log *slog.Logger, upstream string, send func(int, []byte) error) *Gateway {
	t.Helper()
	lock, err := lockAddr(UDP, netip.AddrPortFrom(localhost, 0))
	require.NoError(t, err)
	f := &frame{engine: newEngine(t, unlimited), log: log}
	cfg := ListenerConfig{Name: "u", Listen: lock.addr, Upstream: upstream}.withDefaults()
	cfg.UDP.MaxSessions = 10
	s, err := newUDPServer(cfg, f, lock)
	require.NoError(t, err)
	s.(*udpServer).send = send
	g := &Gateway{servers: []server{s}, locks: []*addrLock{lock}}
	t.Cleanup(func() { assert.NoError(t, g.Close()) })
	require.NoError(t, s.start())
	return g
}

func TestUDPSendErrors(t *testing.T) { // C72
	for _, fault := range []error{unix.EPERM, unix.ENOBUFS, unix.EAGAIN, unix.EMSGSIZE, unix.ECONNREFUSED} {
		t.Run(unix.ErrnoName(fault.(unix.Errno)), func(t *testing.T) {
			var (
				out   syncBuffer
				bad   atomic.Bool
				calls atomic.Int64
			)
			bad.Store(true)
			up := newEcho(t)
			g := startWithSend(t, slog.New(slog.NewTextHandler(&out, nil)), up.udpAddr().String(), func(fd int, p []byte) error {
				calls.Add(1)
				if bad.Load() {
					return fault
				}
				return sendNow(fd, p)
			})
			c := dialUDP(t, "", g.Addrs()[0])
			for range 100 {
				send(t, c, []byte("lost"))
			}
			r := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == 100 })
			assert.Equal(t, map[string]int64{"upstream_error": 100}, r.Dropped)
			assert.LessOrEqual(t, calls.Load(), int64(200), "tried again and again")
			assert.LessOrEqual(t, strings.Count(out.String(), "\n"), 2)
			bad.Store(false)
			exchange(t, c, []byte("normal again"))
		})
	}
}

// A datagram that finds the refusal of an earlier one waiting goes out itself.
func TestUDPStaleRefusal(t *testing.T) { // C71
	var stale atomic.Bool
	stale.Store(true)
	up := newEcho(t)
	g := startWithSend(t, slog.New(slog.DiscardHandler), up.udpAddr().String(), func(fd int, p []byte) error {
		if stale.Swap(false) {
			return unix.ECONNREFUSED
		}
		return sendNow(fd, p)
	})
	exchange(t, dialUDP(t, "", g.Addrs()[0]), []byte("first"))
	r := reportWhen(t, g, func(r ListenerReport) bool { return r.Forwarded == 1 })
	assert.Equal(t, int64(1), r.UpstreamErrors)
	assert.Empty(t, r.Dropped)
}

// IPv6 carries 20 bytes more than IPv4: such a reply cannot go on.
func TestUDPReplyTooLong(t *testing.T) { // C74
	up := manualUpstream(t, "[::1]:0")
	g := startUDP(t, newEngine(t, unlimited), up.LocalAddr().String(), UDPOptions{})
	c := dialUDP(t, "", g.Addrs()[0])
	send(t, c, []byte("a"))
	_, port := readFrom(t, up)
	_, err := up.WriteToUDPAddrPort(randomBytes(MaxDatagram+20), port)
	require.NoError(t, err)
	_, err = up.WriteToUDPAddrPort(randomBytes(MaxDatagram), port)
	require.NoError(t, err)
	got, ok := receive(t, c, ioTimeout)
	require.True(t, ok)
	assert.Len(t, got, MaxDatagram)
	assert.Equal(t, int64(1), g.Listeners()[0].UpstreamErrors)
}

func TestUDPFromTheGatewayItself(t *testing.T) { // C77
	any := netip.AddrPortFrom(localhost, 0)
	g, err := StartGateway(GatewayConfig{Engine: newEngine(t, unlimited), Listeners: []ListenerConfig{
		{Name: "a", Listen: any, Upstream: Echo}, {Name: "b", Listen: any, Upstream: Echo},
	}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, g.Close()) })
	b := g.Addrs()[1]
	lc := net.ListenConfig{Control: func(_, _ string, c syscallRawConn) error {
		return c.Control(func(fd uintptr) {
			assert.NoError(t, unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
		})
	}}
	forged, err := lc.ListenPacket(context.Background(), "udp4", b.String())
	require.NoError(t, err)
	defer forged.Close()
	_, err = forged.WriteTo([]byte("round and round"), net.UDPAddrFromAddrPort(g.Addrs()[0]))
	require.NoError(t, err)
	r := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == 1 })
	assert.Equal(t, map[string]int64{"self": 1}, r.Dropped)
}

func TestUDPThrottles(t *testing.T) { // C08, C02
	e := newEngine(t, 8)
	g := startUDP(t, e, Echo, UDPOptions{})
	for i := range 4 { // another port is no way out
		c := dialUDP(t, "127.0.0.66", g.Addrs()[0])
		for j := range 5 {
			if 5*i+j < 8 {
				exchange(t, c, []byte("flood"))
			} else {
				send(t, c, []byte("flood"))
			}
		}
	}
	exchange(t, dialUDP(t, "127.0.0.67", g.Addrs()[0]), []byte("honest"))

	r := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == 21 })
	assert.Equal(t, map[string]int64{"soft_throttle": 4, "hard_lockout": 8}, r.Dropped)
	assert.Equal(t, int64(9), r.Forwarded)
	assert.LessOrEqual(t, r.SessionsActive, int64(3), "a session for a client that was denied")
	top := e.Report().Top
	require.NotEmpty(t, top)
	assert.Equal(t, "127.0.0.66", top[0].Endpoint)
}

func TestUDPByteBudget(t *testing.T) {
	e, err := engine.New(engine.Config{
		Default: policy.Policy{
			Packets: tokenbucket.Limit{Capacity: 1000, RefillPerSecond: 1e-6},
			Bytes:   &tokenbucket.Limit{Capacity: 5000, RefillPerSecond: 1e-6},
		},
		Load: engine.NoLoad,
	})
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	g := startUDP(t, e, Echo, UDPOptions{})
	c := dialUDP(t, "", g.Addrs()[0])
	exchange(t, c, randomBytes(3000))
	send(t, c, randomBytes(3000))
	exchange(t, c, randomBytes(2000))
	r := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == 3 })
	assert.Equal(t, map[string]int64{"soft_throttle": 1}, r.Dropped)
	assert.Equal(t, int64(8000), r.Bytes)
}

func TestUDPDrain(t *testing.T) {
	g := startUDP(t, newEngine(t, unlimited), Echo, UDPOptions{})
	old, late := dialUDP(t, "", g.Addrs()[0]), dialUDP(t, "", g.Addrs()[0])
	exchange(t, old, []byte("before"))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.False(t, g.Draining())
	require.ErrorIs(t, g.Drain(ctx), context.Canceled, "a session was open")
	require.True(t, g.Draining())

	exchange(t, old, []byte("meanwhile"))
	send(t, late, []byte("too late"))
	reportWhen(t, g, func(r ListenerReport) bool { return r.Dropped["draining"] == 1 })
	drained := make(chan error, 1)
	go func() { drained <- g.Drain(context.Background()) }()
	endSessions(g)
	select {
	case err := <-drained:
		require.NoError(t, err)
	case <-time.After(ioTimeout):
		require.Fail(t, "still draining")
	}
	assert.Zero(t, g.Listeners()[0].SessionsActive)
}

// The engine of a listener ends though nobody stopped it: the sessions stay.
func TestUDPEngineRestarts(t *testing.T) {
	up := manualUpstream(t, "127.0.0.1:0")
	g := startUDP(t, newEngine(t, unlimited), up.LocalAddr().String(), UDPOptions{})
	c := dialUDP(t, "", g.Addrs()[0])
	send(t, c, []byte("a"))
	_, port := readFrom(t, up)
	loops := g.servers[0].(*udpServer).loops
	for _, l := range loops {
		l.super.mu.Lock()
		eng := l.super.engine
		l.super.mu.Unlock()
		l.super.halt(eng)
	}
	require.Eventually(t, func() bool { return g.Restarts() == int64(len(loops)) }, ioTimeout, time.Millisecond)
	// The sockets are new, so the kernel may send the client to another loop
	// and so into another session; once there it stays.
	require.Eventually(t, func() bool {
		send(t, c, []byte("b"))
		require.NoError(t, up.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
		_, from, err := up.ReadFromUDPAddrPort(make([]byte, 10))
		if err != nil {
			return false
		}
		port = from
		return true
	}, ioTimeout, time.Millisecond)
	_, err := up.WriteToUDPAddrPort([]byte("answer"), port)
	require.NoError(t, err)
	got, ok := receive(t, c, ioTimeout)
	require.True(t, ok)
	assert.Equal(t, "answer", string(got))
}

// Without descriptors there are no new sessions, and all else goes on.
func TestUDPOutOfDescriptors(t *testing.T) { // C85
	g := startUDP(t, newEngine(t, unlimited), Echo, UDPOptions{})
	old, late := dialUDP(t, "", g.Addrs()[0]), dialUDP(t, "", g.Addrs()[0])
	exchange(t, old, []byte("before"))

	var was unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	none := was
	none.Cur = 3 // every descriptor is beyond it
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &none))
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was)) }()
	send(t, late, []byte("no room"))
	r := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == 2 })
	assert.Equal(t, map[string]int64{"upstream_error": 1}, r.Dropped)
	exchange(t, old, []byte("meanwhile"))

	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was))
	exchange(t, late, []byte("now"))
	assert.Zero(t, g.Restarts())
}

func TestUDPSocketOptions(t *testing.T) {
	g := startUDP(t, newEngine(t, unlimited), Echo, UDPOptions{})
	loops := g.servers[0].(*udpServer).loops
	require.Len(t, loops, loopCount())
	for _, l := range loops {
		l.super.mu.Lock()
		fd, err := l.super.engine.Dup()
		l.super.mu.Unlock()
		require.NoError(t, err)
		defer unix.Close(fd)
		gro, err := unix.GetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO)
		require.NoError(t, err)
		assert.Zero(t, gro, "gnet would take glued datagrams for one")
		port, err := boundPort(fd)
		require.NoError(t, err)
		assert.Equal(t, g.Addrs()[0].Port(), port)
	}
}

// Nothing of ours is allocated for a datagram that a session or a denial is
// known for.
func TestUDPDatagramAllocates(t *testing.T) {
	for _, tc := range []struct {
		name     string
		capacity int64
	}{{"forwarded", unlimited}, {"denied", 1}} {
		t.Run(tc.name, func(t *testing.T) {
			up := manualUpstream(t, "127.0.0.1:0")
			g := startUDP(t, newEngine(t, tc.capacity), up.LocalAddr().String(), UDPOptions{})
			l := g.servers[0].(*udpServer).loops[0]
			src, p := netip.MustParseAddrPort("127.0.0.9:1234"), make([]byte, 64)
			for range 20 {
				l.datagram(src, p)
			}
			assert.Zero(t, testing.AllocsPerRun(200, func() { l.datagram(src, p) }))
		})
	}
}

func TestBogon(t *testing.T) {
	for addr, want := range map[string]bool{
		"0.0.0.0:5": true, "[::]:5": true, "224.0.0.1:5": true, "[ff02::1]:5": true,
		"255.255.255.255:5": true, "10.0.0.1:0": true, "10.0.0.1:5": false, "[2001:db8::1]:5": false,
	} {
		assert.Equal(t, want, bogon(netip.MustParseAddrPort(addr)), addr)
	}
}

// An honest client gets all its answers beside a flood.
func TestUDPFlood(t *testing.T) {
	e, err := engine.New(engine.Config{Load: engine.NoLoad}) // the default policy
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	g := startUDP(t, e, Echo, UDPOptions{})
	ctx, cancel := context.WithCancel(context.Background())
	var (
		wg   sync.WaitGroup
		sent int64
	)
	flood := dialUDP(t, "127.0.0.66", g.Addrs()[0])
	wg.Go(func() {
		p := make([]byte, 64)
		for tick := time.NewTicker(time.Millisecond); ctx.Err() == nil; <-tick.C {
			for range 20 {
				if _, err := flood.Write(p); err == nil {
					sent++
				}
			}
		}
	})
	honest := dialUDP(t, "127.0.0.10", g.Addrs()[0])
	const packets = 25
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for i := range packets {
		p := binary.BigEndian.AppendUint64(nil, uint64(i))
		exchange(t, honest, p)
		<-tick.C
	}
	cancel()
	wg.Wait()

	rep := e.Report()
	require.NotEmpty(t, rep.Top)
	assert.Equal(t, "127.0.0.66", rep.Top[0].Endpoint)
	for _, row := range rep.Top {
		assert.NotEqual(t, "127.0.0.10", row.Endpoint)
	}
	r := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets > packets })
	assert.Greater(t, r.Dropped["hard_lockout"], int64(1000))
	assert.LessOrEqual(t, r.Packets, sent+packets)
}
