package netx

import (
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/policy/limiter"
)

// A client that gives up makes room at once, long before its time is up.
func TestTCPQueueIsLeft(t *testing.T) {
	reset := func(c *net.TCPConn) { _ = c.SetLinger(0); _ = c.Close() }
	for name, leave := range map[string]func(c *net.TCPConn){
		"end without a word":       func(c *net.TCPConn) { _ = c.Close() },
		"shut down without a word": func(c *net.TCPConn) { _ = c.CloseWrite() },
		"reset":                    reset,
		"reset behind a request":   func(c *net.TCPConn) { _, _ = c.Write([]byte("x")); reset(c) },
		"reset behind an end":      func(c *net.TCPConn) { _, _ = c.Write([]byte("x")); _ = c.CloseWrite(); reset(c) },
	} {
		t.Run(name, func(t *testing.T) {
			g, report := startTCP(t, Echo, TCPOptions{
				MaxConnections: 1, MaxConnectionsPerIP: 2, Queue: queueOf(1, limiter.OldestFirst),
			})
			addr := g.Addrs()[0].String()
			first := keepOpen(t, addr)
			waiter := dialTCP(t, addr)
			awaitQueued(t, g, 1)
			leave(waiter)
			awaitQueued(t, g, 0)
			waiting := g.server(0).(*tcpServer).waiting
			require.Eventually(t, func() bool { return len(waiting) == 0 }, settled, time.Millisecond)
			assert.Equal(t, map[string]int64{"queue_full": 1}, report().Dropped)

			second := dialTCP(t, addr) // of the same address, which may have two
			awaitQueued(t, g, 1)
			require.NoError(t, first.Close())
			isServed(t, second)
			second.Close()
			addsUp(t, report)
			assert.EqualValues(t, 2, report().Forwarded)
		})
	}
}

// A client that has sent its request and then shut its side down still wants
// the answer.
func TestTCPQueueHalfClose(t *testing.T) {
	upstream := upstreamTCP(t, func(c *net.TCPConn) {
		got, err := io.ReadAll(c)
		assert.NoError(t, err)
		_, _ = c.Write(append(got, " and the answer"...))
	})
	g, report := startTCP(t, upstream, TCPOptions{MaxConnections: 1, Queue: queueOf(2, limiter.OldestFirst)})
	addr := g.Addrs()[0].String()
	first := dialTCP(t, addr)
	require.Eventually(t, func() bool { return report().Forwarded == 1 }, settled, time.Millisecond)
	asks, leaves := dialTCP(t, addr), dialTCP(t, addr)
	awaitQueued(t, g, 2)
	_, err := asks.Write([]byte("request"))
	require.NoError(t, err)
	require.NoError(t, asks.CloseWrite())
	require.NoError(t, leaves.Close()) // after that, so its end is seen after that
	awaitQueued(t, g, 1)

	require.NoError(t, first.Close())
	got, err := io.ReadAll(asks)
	require.NoError(t, err)
	assert.Equal(t, "request and the answer", string(got))
	addsUp(t, report)
	assert.EqualValues(t, len("request"), report().Bytes)
	assert.Equal(t, map[string]int64{"queue_full": 1}, report().Dropped)
}

// A countedConn counts how often it is looked at.
type countedConn struct {
	syscall.RawConn
	looks atomic.Int64
}

func (c *countedConn) Read(f func(fd uintptr) bool) error {
	return c.RawConn.Read(func(fd uintptr) bool { c.looks.Add(1); return f(fd) })
}

// Whatever is unread, a waiter sleeps until something happens.
func TestDepartedSleeps(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	client := dialTCP(t, l.Addr().String())
	server, err := l.Accept()
	require.NoError(t, err)
	defer server.Close()
	raw, err := server.(*net.TCPConn).SyscallConn()
	require.NoError(t, err)
	counted := &countedConn{RawConn: raw}
	done := make(chan error, 1)
	go func() { done <- departed(counted, false) }()

	const writes = 20
	for range writes {
		looks := counted.looks.Load()
		_, err = client.Write([]byte("x"))
		require.NoError(t, err)
		require.Eventually(t, func() bool { return counted.looks.Load() > looks }, settled, time.Millisecond)
	}
	looks := counted.looks.Load()
	require.NoError(t, client.CloseWrite())
	require.Eventually(t, func() bool { return counted.looks.Load() > looks }, settled, time.Millisecond)
	looks = counted.looks.Load()
	require.NoError(t, client.SetLinger(0))
	require.NoError(t, client.Close())
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(settled):
		t.Fatal("a client that has left is waited for")
	}
	assert.Greater(t, counted.looks.Load(), looks, "an end behind a request is no leave")
	assert.LessOrEqual(t, counted.looks.Load(), int64(2*writes))
}
