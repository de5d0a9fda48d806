package netx

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// recorder is a gnet echo server that notes what it is told.
type recorder struct {
	gnet.BuiltinEventEngine
	shutdowns, ticks chan struct{}

	mu             sync.Mutex
	engine         gnet.Engine
	opened, closed []string
	got            []string
}

func newRecorder() *recorder {
	return &recorder{
		shutdowns: make(chan struct{}, 1),
		ticks:     make(chan struct{}, 1),
	}
}

func (r *recorder) OnBoot(eng gnet.Engine) gnet.Action {
	r.mu.Lock()
	r.engine = eng
	r.mu.Unlock()
	return gnet.None
}

func (r *recorder) OnShutdown(gnet.Engine) { r.shutdowns <- struct{}{} }

func (r *recorder) OnTick() (time.Duration, gnet.Action) {
	r.ticks <- struct{}{}
	return time.Hour, gnet.None
}

func (r *recorder) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.opened = append(r.opened, addrPort(c.RemoteAddr()).Addr().String())
	c.SetContext("mine")
	return []byte("hello "), gnet.None
}

func (r *recorder) OnClose(c gnet.Conn, _ error) gnet.Action {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = append(r.closed, fmt.Sprint(addrPort(c.RemoteAddr()).Addr(), " ", c.Context()))
	return gnet.None
}

func (r *recorder) OnTraffic(c gnet.Conn) gnet.Action {
	p, _ := c.Next(-1)
	r.mu.Lock()
	r.got = append(r.got, string(p))
	r.mu.Unlock()
	_, _ = c.Write(p)
	return gnet.None
}

// seen gives what was noted so far.
func (r *recorder) seen() (opened, closed, got []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.opened...), append([]string(nil), r.closed...), append([]string(nil), r.got...)
}

// runGuard serves a guarded recorder until the test ends.
func runGuard(t *testing.T, e *engine.Engine, network string) (*recorder, string) {
	t.Helper()
	addr := freeAddr(t, network)
	r := newRecorder()
	ended := make(chan error, 1)
	go func() {
		ended <- gnet.Run(Guard(e, r), network+"://"+addr, gnet.WithReuseAddr(true), gnet.WithTicker(true))
	}()
	<-r.ticks
	t.Cleanup(func() {
		assert.NoError(t, r.engine.Stop(context.Background()))
		assert.NoError(t, <-ended)
		<-r.shutdowns
	})
	return r, addr
}

// freeAddr is an address that nobody listens on.
func freeAddr(t *testing.T, network string) string {
	t.Helper()
	if network == "udp" {
		c, err := net.ListenPacket("udp", "127.0.0.1:0")
		require.NoError(t, err)
		defer c.Close()
		return c.LocalAddr().String()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

func TestGuardTCP(t *testing.T) {
	r, addr := runGuard(t, engineOf(t, atMost(2)), "tcp")
	hello := func() (string, error) {
		c, err := net.DialTimeout("tcp", addr, ioTimeout)
		if err != nil {
			return "", err
		}
		defer c.Close()
		require.NoError(t, c.SetDeadline(time.Now().Add(ioTimeout)))
		if _, err := c.Write([]byte("world")); err != nil {
			return "", err
		}
		got := make([]byte, len("hello world"))
		n, err := io.ReadFull(c, got)
		return string(got[:n]), err
	}
	for i := range 6 {
		got, err := hello()
		if i < 2 {
			require.NoError(t, err)
			require.Equal(t, "hello world", got)
		} else {
			require.Error(t, err)
			require.Empty(t, got)
		}
	}
	require.Eventually(t, func() bool { _, closed, _ := r.seen(); return len(closed) == 2 }, settled, time.Millisecond)
	opened, closed, got := r.seen()
	assert.Equal(t, []string{"127.0.0.1", "127.0.0.1"}, opened)
	assert.Equal(t, []string{"127.0.0.1 mine", "127.0.0.1 mine"}, closed)
	assert.Equal(t, []string{"world", "world"}, got)
}

// A denied datagram goes whole: the next one that passes starts clean.
func TestGuardUDP(t *testing.T) {
	e := engineOf(t, policy.Policy{
		Packets:    tokenbucket.Limit{Capacity: 100, RefillPerSecond: noRefill},
		Bytes:      &tokenbucket.Limit{Capacity: 10, RefillPerSecond: noRefill},
		Escalation: policy.Escalation{Disabled: true},
	})
	r, addr := runGuard(t, e, "udp")
	c, err := net.Dial("udp", addr)
	require.NoError(t, err)
	defer c.Close()
	for _, p := range []string{"12345", "longer than the budget", "", "678", "90ab", "cd"} {
		_, err := c.Write([]byte(p))
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { _, _, got := r.seen(); return len(got) == 4 }, settled, time.Millisecond)
	opened, _, got := r.seen()
	assert.Equal(t, []string{"12345", "", "678", "cd"}, got)
	assert.Empty(t, opened)
}

func TestGuardOfAClosedEngine(t *testing.T) {
	e := engineOf(t, policy.Policy{})
	require.NoError(t, e.Close())
	g := Guard(e, &recorder{})
	c := &fakeConn{remote: &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9}, buffered: 3}
	assert.Equal(t, gnet.None, g.OnTraffic(c))
	assert.Equal(t, 1, c.discards)
}

// fakeConn is the part of a gnet connection that a denial touches.
type fakeConn struct {
	gnet.Conn
	remote   net.Addr
	buffered int
	discards int
	context  any
}

func (c *fakeConn) RemoteAddr() net.Addr       { return c.remote }
func (c *fakeConn) InboundBuffered() int       { return c.buffered }
func (c *fakeConn) Discard(n int) (int, error) { c.discards++; return c.buffered, nil }
func (c *fakeConn) SetContext(v any)           { c.context = v }
func (c *fakeConn) Context() any               { return c.context }

func TestDeniedPathDoesNotAllocate(t *testing.T) {
	e := engineOf(t, atMost(1))
	g := Guard(e, &recorder{})
	udp := &fakeConn{remote: &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1).To4(), Port: 9}, buffered: 3}
	tcp := &fakeConn{remote: &net.TCPAddr{IP: net.ParseIP("2001:db8::1"), Port: 9}}
	e.Evaluate(addrPort(udp.remote))
	e.Evaluate(addrPort(tcp.remote))
	assert.Zero(t, testing.AllocsPerRun(100, func() { g.OnTraffic(udp) }), "UDP")
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		_, _ = g.OnOpen(tcp)
		_ = g.OnClose(tcp, nil)
	}), "TCP")
	assert.Positive(t, udp.discards)
}

func TestAddrPort(t *testing.T) {
	cases := []struct {
		addr net.Addr
		want string
	}{
		{&net.UDPAddr{IP: net.IPv4(192, 0, 2, 1).To4(), Port: 1}, "192.0.2.1:1"},
		{&net.TCPAddr{IP: net.ParseIP("2001:db8::1"), Port: 2}, "[2001:db8::1]:2"},
		{&net.TCPAddr{IP: net.ParseIP("fe80::1"), Port: 3, Zone: "eth0"}, "[fe80::1%eth0]:3"},
		{&net.IPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0"}, "[fe80::1%eth0]:0"},
	}
	for _, c := range cases {
		assert.Equal(t, netip.MustParseAddrPort(c.want), addrPort(c.addr), "%v", c.addr)
	}
	for _, a := range []net.Addr{nil, (*net.UDPAddr)(nil), &net.UDPAddr{Port: 4}, &net.TCPAddr{},
		&net.IPAddr{}, &net.UnixAddr{Name: "@x", Net: "unix"}} {
		assert.False(t, addrPort(a).IsValid(), "%#v", a)
	}
}
