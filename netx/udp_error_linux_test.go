package netx

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestUDPUpstreamGoesAway(t *testing.T) { onEachPath(t, testUDPUpstreamGoesAway) } // C71

func testUDPUpstreamGoesAway(t *testing.T, on path) {
	up := manualUpstream(t, "127.0.0.9:0") // an address that nobody else takes a port of
	at := up.LocalAddr().String()
	g := on.start(t, newEngine(t, unlimited), at, UDPOptions{})
	c := dialUDP(t, "", g.Addrs()[0])
	send(t, c, []byte("a"))
	_, port := readFrom(t, up)
	require.NoError(t, up.Close())

	const away = 50
	for i := range away {
		send(t, c, []byte("lost"))
		// Every one is refused, and every refusal is counted once: more would
		// be a busy loop.
		reportWhen(t, g, func(r ListenerReport) bool {
			return r.Packets == int64(i+2) && r.UpstreamErrors == int64(i+1)
		})
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
func (on path) startWithSend(t *testing.T, log *slog.Logger, upstream string, send func(upstreamConn, [][]byte) (int, error)) *Gateway {
	t.Helper()
	g := on.listener(t, newEngine(t, unlimited), log, ListenerConfig{
		Name: "u", Listen: loopback(0), Upstream: upstream, UDP: UDPOptions{MaxSessions: 10},
	})
	s := g.server(0).(*udpServer)
	for _, l := range s.loops {
		l.mu.Lock()
		defer l.mu.Unlock()
	}
	s.send = send
	return g
}

func TestUDPSendErrors(t *testing.T) { onEachPath(t, testUDPSendErrors) } // C72

func testUDPSendErrors(t *testing.T, on path) {
	for _, fault := range []error{unix.EPERM, unix.ENOBUFS, unix.EAGAIN, unix.EMSGSIZE, unix.ECONNREFUSED} {
		t.Run(unix.ErrnoName(fault.(unix.Errno)), func(t *testing.T) {
			var (
				out   syncBuffer
				bad   atomic.Bool
				calls atomic.Int64
			)
			bad.Store(true)
			up := newEcho(t)
			g := on.startWithSend(t, slog.New(slog.NewTextHandler(&out, nil)), up.udpAddr().String(), func(c upstreamConn, ps [][]byte) (int, error) {
				calls.Add(1)
				if bad.Load() {
					return 0, fault
				}
				return c.send(ps)
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
func TestUDPStaleRefusal(t *testing.T) { onEachPath(t, testUDPStaleRefusal) } // C71

func testUDPStaleRefusal(t *testing.T, on path) {
	var stale atomic.Bool
	stale.Store(true)
	up := newEcho(t)
	g := on.startWithSend(t, slog.New(slog.DiscardHandler), up.udpAddr().String(), func(c upstreamConn, ps [][]byte) (int, error) {
		if stale.Swap(false) {
			return 0, unix.ECONNREFUSED
		}
		return c.send(ps)
	})
	exchange(t, dialUDP(t, "", g.Addrs()[0]), []byte("first"))
	r := reportWhen(t, g, func(r ListenerReport) bool { return r.Forwarded == 1 })
	assert.Equal(t, int64(1), r.UpstreamErrors)
	assert.Empty(t, r.Dropped)
}

// Without descriptors there are no new sessions, and all else goes on.
func TestUDPOutOfDescriptors(t *testing.T) { onEachPath(t, testUDPOutOfDescriptors) } // C85

func testUDPOutOfDescriptors(t *testing.T, on path) {
	g := on.start(t, newEngine(t, unlimited), Echo, UDPOptions{})
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
}

func TestUDPSocketOptions(t *testing.T) {
	g := startUDP(t, newEngine(t, unlimited), Echo, UDPOptions{})
	loops := g.server(0).(*udpServer).loops
	require.Len(t, loops, loopCount())
	for _, l := range loops {
		fd := l.path.(*fastPath).listen
		gro, err := unix.GetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO)
		require.NoError(t, err)
		assert.Zero(t, gro, "glued datagrams would be taken for one")
		port, err := boundPort(fd)
		require.NoError(t, err)
		assert.Equal(t, g.Addrs()[0].Port(), port)
	}
}

// A listener that is never done with what comes in ends nevertheless.
func TestUDPEndsUnderAFlood(t *testing.T) { onEachPath(t, testUDPEndsUnderAFlood) }

func testUDPEndsUnderAFlood(t *testing.T, on path) {
	const slow, wanted = 5 * time.Millisecond, 20 // relays less than half of what a client sends
	var calls atomic.Int64
	g := on.startWithSend(t, nil, newEcho(t).udpAddr().String(), func(c upstreamConn, ps [][]byte) (int, error) {
		calls.Add(1)
		time.Sleep(slow)
		return c.send(ps)
	})
	ctx, stop := context.WithCancel(t.Context())
	var flood sync.WaitGroup
	c := dialUDP(t, "", g.Addrs()[0])
	flood.Go(func() {
		for ctx.Err() == nil {
			_, _ = c.Write([]byte("x")) // refused in the end
		}
	})
	require.Eventually(t, func() bool { return calls.Load() > wanted }, settled, time.Millisecond)
	closed := make(chan error, 1)
	go func() { closed <- g.Close() }()
	select {
	case err := <-closed:
		assert.NoError(t, err)
	case <-time.After(settled):
		assert.Fail(t, "it goes on as long as there is something to relay")
	}
	stop()
	flood.Wait()
}
