package netx

import (
	"bytes"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// bytesPerSecond is a policy with a byte budget and no other limit.
func bytesPerSecond(rate float64, burst int64) policy.Policy {
	return policy.Policy{
		Packets: tokenbucket.Limit{Capacity: 1 << 20, RefillPerSecond: 1e6},
		Bytes:   &tokenbucket.Limit{Capacity: burst, RefillPerSecond: rate},
	}
}

// A sink is an upstream that notes how much it has read by when.
type sink struct {
	mu    sync.Mutex
	began time.Time
	total int64
	most  float64 // the largest excess over burst + rate*t that it has seen
	ended chan error
}

func (s *sink) serve(c *net.TCPConn, rate float64, burst int64) {
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		s.mu.Lock()
		if s.total += int64(n); s.total > 0 {
			may := float64(burst) + rate*time.Since(s.began).Seconds()
			s.most = max(s.most, float64(s.total)-may)
		}
		s.mu.Unlock()
		if err != nil {
			s.ended <- err
			return
		}
	}
}

// Everything that was sent far over the limit arrives, at the rate of the
// limit, though the client has long stopped sending. C92
func TestTCPPausesOverTheByteLimit(t *testing.T) {
	// Whoever is kept from the processor for as long as burst/rate does lose tokens.
	const rate, burst, total = 2 << 20, 1 << 20, 1<<20 + 3<<20
	s := &sink{ended: make(chan error, 1)}
	upstream := upstreamTCP(t, func(c *net.TCPConn) { s.serve(c, rate, burst) })
	g, report := startTCPOn(t, engineOf(t, bytesPerSecond(rate, burst)), 0, upstream, TCPOptions{})
	c := dialTCP(t, g.Addrs()[0].String())
	s.began = time.Now()
	_, err := c.Write(randomBytes(total))
	require.NoError(t, err)
	require.NoError(t, c.CloseWrite())
	require.ErrorIs(t, <-s.ended, io.EOF)
	took := time.Since(s.began)

	assert.EqualValues(t, total, s.total)
	assert.LessOrEqual(t, s.most, 1.0, "bytes more than burst + rate*t")
	const want = 1500 * time.Millisecond // (total-burst)/rate
	assert.Less(t, took, 2*want, "tokens were lost")
	c.Close()
	addsUp(t, report)
	assert.EqualValues(t, total, report().Bytes)
}

// Where no pipe is free a relay copies.
func TestTCPWithoutPipes(t *testing.T) {
	upstream := upstreamTCP(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	g, report := startTCP(t, upstream, TCPOptions{})
	takePipes(t, g)
	c := dialTCP(t, g.Addrs()[0].String())
	want, got := randomBytes(4<<20), make([]byte, 4<<20)
	go c.Write(want)
	_, err := io.ReadFull(c, got)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(want, got), "the bytes differ")
	c.Close()
	addsUp(t, report)
}

// takePipes leaves no pipe to the relays of a gateway's only listener, until
// the end of the test.
func takePipes(t *testing.T, g *Gateway) {
	t.Helper()
	ps := g.server(0).(*tcpServer).pipes
	for range cap(ps.free) {
		p, ok := ps.get()
		require.True(t, ok)
		t.Cleanup(func() { ps.put(p) })
	}
	_, ok := ps.get()
	require.False(t, ok)
}

func TestTCPClosesOverTheByteLimit(t *testing.T) {
	s := &sink{ended: make(chan error, 1)}
	upstream := upstreamTCP(t, func(c *net.TCPConn) { s.serve(c, 0, 1<<20) })
	e := engineOf(t, bytesPerSecond(1, 1000))
	g, report := startTCPOn(t, e, 0, upstream, TCPOptions{OnLimit: CloseConn})
	c := dialTCP(t, g.Addrs()[0].String())
	_, err := c.Write(make([]byte, 1000))
	require.NoError(t, err)
	require.Eventually(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.total == 1000 },
		settled, time.Millisecond, "what is within the limit arrives")
	_, err = c.Write(make([]byte, 1000))
	require.NoError(t, err)
	assert.ErrorIs(t, <-s.ended, syscall.ECONNRESET, "a stream that broke off must not look complete")
	_, err = c.Read(make([]byte, 1))
	assert.ErrorIs(t, err, syscall.ECONNRESET)
	addsUp(t, report)
	assert.EqualValues(t, 1, report().Forwarded)
}

// The byte limit is that of the client; what comes back is free.
func TestTCPByteLimitIsOneWay(t *testing.T) {
	answer := randomBytes(1 << 20)
	upstream := upstreamTCP(t, func(c *net.TCPConn) { _, _ = c.Write(answer) })
	g, _ := startTCPOn(t, engineOf(t, bytesPerSecond(1, 1)), 0, upstream, TCPOptions{})
	c := dialTCP(t, g.Addrs()[0].String())
	got, err := io.ReadAll(c)
	require.NoError(t, err)
	assert.Equal(t, answer, got)
}

// A client that is paused is not idle, and ends at once with the gateway.
func TestTCPPauseIsNotIdle(t *testing.T) {
	s := &sink{ended: make(chan error, 1)}
	upstream := upstreamTCP(t, func(c *net.TCPConn) { s.serve(c, 0, 1<<20) })
	e := engineOf(t, bytesPerSecond(1, 1)) // so that it waits for half a second at first
	g, report := startTCPOn(t, e, 0, upstream, TCPOptions{IdleTimeout: 400 * time.Millisecond})
	c := dialTCP(t, g.Addrs()[0].String())
	_, err := c.Write([]byte("abc"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return report().Bytes == 3 }, settled, time.Millisecond)
	assert.EqualValues(t, 1, report().ConnectionsActive)
	_, err = c.Write(make([]byte, 100))
	require.NoError(t, err)
	began := time.Now()
	require.NoError(t, g.Close())
	assert.Less(t, time.Since(began), 2*time.Second)
}

func TestTCPFirstByteTimeout(t *testing.T) { // C90
	const timeout = 150 * time.Millisecond
	g, report := startTCP(t, Echo, TCPOptions{MaxConnections: 1, FirstByteTimeout: timeout})
	addr := g.Addrs()[0].String()
	began := time.Now()
	mute := dialTCP(t, addr)
	_, err := mute.Read(make([]byte, 1))
	assert.Error(t, err)
	assert.GreaterOrEqual(t, time.Since(began), timeout)
	addsUp(t, report)

	c := keepOpen(t, addr) // the place is free, and who has spoken may be quiet
	for time.Since(began) < 5*timeout {
		require.EqualValues(t, 1, report().ConnectionsActive)
		time.Sleep(timeout / 10)
	}
	_, err = c.Write([]byte("y"))
	require.NoError(t, err)
	_, err = io.ReadFull(c, make([]byte, 1))
	require.NoError(t, err)
}

func TestTCPIdleTimeout(t *testing.T) {
	const timeout = 150 * time.Millisecond
	o := TCPOptions{IdleTimeout: timeout}

	t.Run("nothing moves", func(t *testing.T) {
		g, report := startTCP(t, Echo, o)
		c := keepOpen(t, g.Addrs()[0].String())
		began := time.Now()
		_, err := c.Read(make([]byte, 1))
		assert.ErrorIs(t, err, syscall.ECONNRESET)
		assert.Greater(t, time.Since(began), timeout/2)
		assert.Less(t, time.Since(began), settled)
		addsUp(t, report)
	})
	t.Run("one direction is enough", func(t *testing.T) {
		const ticks = 20
		upstream := upstreamTCP(t, func(c *net.TCPConn) {
			for range ticks {
				if _, err := c.Write([]byte("x")); err != nil {
					return
				}
				time.Sleep(timeout / 5)
			}
		})
		g, _ := startTCP(t, upstream, o)
		got, err := io.ReadAll(dialTCP(t, g.Addrs()[0].String()))
		assert.NoError(t, err)
		assert.Len(t, got, ticks)
	})
	t.Run("a slow reader is not idle", func(t *testing.T) {
		total := 8 << 20
		upstream := upstreamTCP(t, func(c *net.TCPConn) { _, _ = c.Write(make([]byte, total)) })
		g, _ := startTCP(t, upstream, o)
		c := dialTCP(t, g.Addrs()[0].String())
		require.NoError(t, c.SetReadBuffer(32<<10))
		for got := 0; got < total; {
			n, err := io.ReadFull(c, make([]byte, min(256<<10, total-got)))
			require.NoError(t, err, "after %d bytes", got)
			got += n
			time.Sleep(timeout / 4)
		}
	})
	t.Run("a stuck reader is", func(t *testing.T) {
		upstream := upstreamTCP(t, func(c *net.TCPConn) { _, _ = io.Copy(c, neverEnding{}) })
		g, report := startTCP(t, upstream, o)
		dialTCP(t, g.Addrs()[0].String())
		require.Eventually(t, func() bool { return report().Forwarded == 1 }, settled, time.Millisecond)
		addsUp(t, report)
	})
}

type neverEnding struct{}

func (neverEnding) Read(b []byte) (int, error) { return len(b), nil }
