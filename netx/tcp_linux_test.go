package netx

import (
	"bytes"
	"crypto/sha256"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
)

// startTCP starts a gateway with one TCP listener and gives the listener's
// report, too.
func startTCP(t *testing.T, upstream string, o TCPOptions) (*Gateway, func() ListenerReport) {
	t.Helper()
	return startTCPOn(t, engineOf(t, policy.Policy{}), 0, upstream, o)
}

func startTCPOn(t *testing.T, e *engine.Engine, p engine.PolicyID, upstream string, o TCPOptions) (*Gateway, func() ListenerReport) {
	t.Helper()
	g, err := StartGateway(GatewayConfig{Engine: e, Listeners: []ListenerConfig{{
		Name:     "tcp",
		Protocol: TCP,
		Listen:   loopback(0),
		Upstream: upstream,
		Policy:   p,
		TCP:      o,
	}}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, g.Close()) })
	return g, func() ListenerReport { return g.Listeners()[0] }
}

// upstreamTCP is a server whose connections go to serve, each in a goroutine
// of its own. They are closed when serve returns.
func upstreamTCP(t *testing.T, serve func(c *net.TCPConn)) string {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.AcceptTCP()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(ioTimeout))
				serve(c)
			})
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return l.Addr().String()
}

// fateOf connects from an address, sends a byte to an echo and returns nil
// where it came back. A reset may be as early as in the connect.
func fateOf(addr, from string) error {
	d := net.Dialer{Timeout: ioTimeout, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(ioTimeout)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	_, err = io.ReadFull(c, make([]byte, 1))
	return err
}

// addsUp checks that at rest every connection has ended under one head.
func addsUp(t *testing.T, report func() ListenerReport) {
	t.Helper()
	require.Eventually(t, func() bool {
		r := report()
		sum := r.Forwarded
		for _, n := range r.Dropped {
			sum += n
		}
		return r.Packets == sum && r.ConnectionsActive == 0
	}, settled, 5*time.Millisecond, "%+v", report())
}

func TestTCPBothWays(t *testing.T) {
	g, report := startTCP(t, Echo, TCPOptions{})
	c := dialTCP(t, g.Addrs()[0].String())
	want := randomBytes(20 << 20)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := c.Write(want)
		assert.NoError(t, err)
		assert.NoError(t, c.CloseWrite())
	})
	got := sha256.New()
	n, err := io.Copy(got, c)
	wg.Wait()
	require.NoError(t, err)
	sum := sha256.Sum256(want)
	assert.EqualValues(t, len(want), n)
	assert.True(t, bytes.Equal(sum[:], got.Sum(nil)), "the bytes differ")
	c.Close()
	addsUp(t, report)
	r := report()
	assert.EqualValues(t, 1, r.Packets)
	assert.EqualValues(t, 1, r.Forwarded)
	assert.EqualValues(t, len(want), r.Bytes)
	assert.Empty(t, r.Dropped)
}

func TestTCPOverIPv6(t *testing.T) {
	upstream := upstreamTCP(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	g, err := StartGateway(GatewayConfig{Engine: engineOf(t, atMost(1)), Listeners: []ListenerConfig{{
		Name: "six", Protocol: TCP, Listen: netip.MustParseAddrPort("[::1]:0"), Upstream: upstream,
	}}})
	require.NoError(t, err)
	defer g.Close()
	addr := g.Addrs()[0].String()
	require.NoError(t, fateOf(addr, "::1"))
	require.ErrorIs(t, fateOf(addr, "::1"), syscall.ECONNRESET)
}

func TestTCPHalfClose(t *testing.T) { // C91
	upstream := upstreamTCP(t, func(c *net.TCPConn) {
		got, err := io.ReadAll(c)
		assert.NoError(t, err)
		_, _ = c.Write(append(got, " and the answer"...))
	})
	g, report := startTCP(t, upstream, TCPOptions{})
	c := dialTCP(t, g.Addrs()[0].String())
	_, err := c.Write([]byte("request"))
	require.NoError(t, err)
	require.NoError(t, c.CloseWrite())
	got, err := io.ReadAll(c)
	require.NoError(t, err)
	assert.Equal(t, "request and the answer", string(got))
	addsUp(t, report)
}

// The upstream shuts its side first; what the client still sends arrives.
func TestTCPHalfCloseFromUpstream(t *testing.T) {
	arrived := make(chan string, 1)
	upstream := upstreamTCP(t, func(c *net.TCPConn) {
		_ = c.CloseWrite()
		got, err := io.ReadAll(c)
		assert.NoError(t, err)
		arrived <- string(got)
	})
	g, report := startTCP(t, upstream, TCPOptions{})
	c := dialTCP(t, g.Addrs()[0].String())
	got, err := io.ReadAll(c)
	require.NoError(t, err)
	assert.Empty(t, got)
	_, err = c.Write([]byte("late words"))
	require.NoError(t, err)
	require.NoError(t, c.Close())
	assert.Equal(t, "late words", <-arrived)
	addsUp(t, report)
}

func TestTCPResetPassesOn(t *testing.T) {
	t.Run("from the client", func(t *testing.T) {
		ended := make(chan error, 1)
		upstream := upstreamTCP(t, func(c *net.TCPConn) {
			_, _ = c.Write([]byte("x"))
			_, err := io.Copy(io.Discard, c)
			ended <- err
		})
		g, report := startTCP(t, upstream, TCPOptions{})
		c := dialTCP(t, g.Addrs()[0].String())
		_, err := io.ReadFull(c, make([]byte, 1))
		require.NoError(t, err)
		require.NoError(t, c.SetLinger(0))
		require.NoError(t, c.Close())
		assert.ErrorIs(t, <-ended, syscall.ECONNRESET)
		addsUp(t, report)
	})
	t.Run("from the upstream", func(t *testing.T) {
		upstream := upstreamTCP(t, func(c *net.TCPConn) {
			_, _ = io.ReadFull(c, make([]byte, 1))
			_ = c.SetLinger(0)
		})
		g, report := startTCP(t, upstream, TCPOptions{})
		c := dialTCP(t, g.Addrs()[0].String())
		_, err := c.Write([]byte("x"))
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, c)
		assert.ErrorIs(t, err, syscall.ECONNRESET)
		addsUp(t, report)
	})
}

// The client has shut its side down and then vanishes: its stream has ended
// well, and only a write to it shows that it is gone.
func TestTCPResetAfterHalfClose(t *testing.T) {
	gone, ended := make(chan struct{}), make(chan error, 1)
	upstream := upstreamTCP(t, func(c *net.TCPConn) {
		_, err := io.Copy(io.Discard, c)
		assert.NoError(t, err)
		<-gone
		for err == nil {
			_, err = c.Write([]byte("x"))
		}
		ended <- err
	})
	g, report := startTCP(t, upstream, TCPOptions{})
	c := dialTCP(t, g.Addrs()[0].String())
	require.NoError(t, c.CloseWrite())
	require.Eventually(t, func() bool { return report().Forwarded == 1 }, settled, time.Millisecond)
	require.NoError(t, c.SetLinger(0))
	require.NoError(t, c.Close())
	close(gone)
	assert.NotErrorIs(t, <-ended, os.ErrDeadlineExceeded)
	addsUp(t, report)
}

// A server that answers and closes before it has read everything resets the
// connection. Its answer must arrive all the same.
func TestTCPAnswerBeforeReset(t *testing.T) {
	answer := randomBytes(400_000) // within what a relay buffers
	answered := make(chan struct{})
	upstream := upstreamTCP(t, func(c *net.TCPConn) {
		_, _ = io.ReadFull(c, make([]byte, 1))
		_, err := c.Write(answer)
		assert.NoError(t, err)
		assert.Eventually(t, func() bool { pending, _ := sendState(c); return !pending },
			settled, time.Millisecond)
		_ = c.Close()
		close(answered)
	})
	g, report := startTCP(t, upstream, TCPOptions{})
	c := dialTCP(t, g.Addrs()[0].String())
	_, err := c.Write(make([]byte, 200_000))
	require.NoError(t, err)
	<-answered
	time.Sleep(settleMost / 10) // a slow reader: the reset is there before it begins
	got := make([]byte, len(answer))
	_, err = io.ReadFull(c, got)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(answer, got))
	c.Close()
	addsUp(t, report)
}

func TestTCPUpstreamAway(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	upstream := l.Addr().String()
	require.NoError(t, l.Close())

	g, report := startTCP(t, upstream, TCPOptions{})
	assert.ErrorIs(t, fateOf(g.Addrs()[0].String(), "127.0.0.1"), syscall.ECONNRESET)
	addsUp(t, report)
	r := report()
	assert.EqualValues(t, 1, r.Packets)
	assert.EqualValues(t, 1, r.UpstreamErrors)
	assert.Equal(t, map[string]int64{"upstream_error": 1}, r.Dropped)
}

// A name that leads back to the gateway is seen when it is looked up: no
// connection goes round and round.
func TestTCPUpstreamNameIsAListener(t *testing.T) {
	lock, err := lockAddr(TCP, loopback(0), false)
	require.NoError(t, err)
	lock.release()
	g, err := StartGateway(GatewayConfig{Engine: engineOf(t, policy.Policy{}), Listeners: []ListenerConfig{{
		Name: "tcp", Protocol: TCP, Listen: lock.addr, Upstream: "localhost:" + strconv.Itoa(int(lock.addr.Port())),
	}}})
	require.NoError(t, err)
	defer g.Close()
	require.Error(t, fateOf(lock.addr.String(), "127.0.0.1"))
	report := func() ListenerReport { return g.Listeners()[0] }
	addsUp(t, report)
	assert.EqualValues(t, 1, report().Packets)
	assert.Equal(t, map[string]int64{"upstream_error": 1}, report().Dropped)
}
