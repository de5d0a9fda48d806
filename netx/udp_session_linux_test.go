package netx

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestUDPMaxSessions(t *testing.T) { onEachPath(t, testUDPMaxSessions) } // C64, C65

func testUDPMaxSessions(t *testing.T, on path) {
	var out syncBuffer
	up := manualUpstream(t, "127.0.0.1:0")
	g := on.listener(t, newEngine(t, unlimited), slog.New(slog.NewTextHandler(&out, nil)), ListenerConfig{
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

func TestUDPIdleSessionEnds(t *testing.T) { onEachPath(t, testUDPIdleSessionEnds) } // C69

func testUDPIdleSessionEnds(t *testing.T, on path) {
	up := manualUpstream(t, "127.0.0.1:0")
	g := on.start(t, newEngine(t, unlimited), up.LocalAddr().String(), UDPOptions{SessionIdle: time.Nanosecond})
	c := dialUDP(t, "", g.Addrs()[0])
	for i := range int64(5) {
		send(t, c, []byte("a"))
		readFrom(t, up) // forwarded, however short the idle time
		reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == i+1 && r.SessionsActive == 0 })
	}
}

func TestUDPQuarantine(t *testing.T) { onEachPath(t, testUDPQuarantine) } // C67

func testUDPQuarantine(t *testing.T, on path) {
	up := manualUpstream(t, "127.0.0.1:0")
	g := on.start(t, newEngine(t, unlimited), up.LocalAddr().String(), UDPOptions{})
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

	for _, l := range g.server(0).(*udpServer).loops {
		l.table.sweep(l.now() + int64(quarantine))
	}
	free, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(old))
	require.NoError(t, err)
	free.Close()
}

// endSessions lets those that are open be idle for long enough.
func endSessions(g *Gateway) {
	for _, l := range g.server(0).(*udpServer).loops {
		l.table.endAll(l.now())
	}
}

// Traffic in either direction puts the end of a session off.
func TestUDPActivityEitherWay(t *testing.T) { onEachPath(t, testUDPActivityEitherWay) }

func testUDPActivityEitherWay(t *testing.T, on path) {
	for _, way := range []string{"in", "out"} {
		t.Run(way, func(t *testing.T) {
			up := manualUpstream(t, "127.0.0.1:0")
			g := on.start(t, newEngine(t, unlimited), up.LocalAddr().String(), UDPOptions{SessionIdle: time.Hour})
			c := dialUDP(t, "", g.Addrs()[0])
			send(t, c, []byte("a"))
			_, port := readFrom(t, up)
			l, s := onlySession(t, g)
			opened := seen(l, s)
			if way == "in" {
				send(t, c, []byte("b"))
				readFrom(t, up)
			} else {
				_, err := up.WriteToUDPAddrPort([]byte("b"), port)
				require.NoError(t, err)
				_, ok := receive(t, c, ioTimeout)
				require.True(t, ok)
			}
			last := seen(l, s)
			require.Greater(t, last, opened)
			l.table.sweep(opened + int64(time.Hour))
			require.Equal(t, int64(1), g.Listeners()[0].SessionsActive)
			l.table.sweep(last + int64(time.Hour))
			require.Zero(t, g.Listeners()[0].SessionsActive)
		})
	}
}

func onlySession(t *testing.T, g *Gateway) (*udpLoop, *session) {
	t.Helper()
	for _, l := range g.server(0).(*udpServer).loops {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, s := range l.table.all {
			return l, s
		}
	}
	require.Fail(t, "no session")
	return nil, nil
}

func seen(l *udpLoop, s *session) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return s.seen
}

func TestUDPQuarantineIsBounded(t *testing.T) { onEachPath(t, testUDPQuarantineIsBounded) }

func testUDPQuarantineIsBounded(t *testing.T, on path) {
	up := manualUpstream(t, "127.0.0.1:0")
	g := on.start(t, newEngine(t, unlimited), up.LocalAddr().String(),
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

// A socket that the kernel has given the upstream's own port would answer
// itself, and keep the upstream from that port.
func TestUDPSessionDoesNotTalkToItself(t *testing.T) {
	lock, err := lockAddr(UDP, loopback(0), false)
	require.NoError(t, err)
	lock.release()
	upstream := net.UDPAddrFromAddrPort(lock.addr)
	for name, wrap := range map[path]func(*net.UDPConn) upstreamConn{
		plain: func(c *net.UDPConn) upstreamConn { return plainConn{UDPConn: c} },
		fast: func(c *net.UDPConn) upstreamConn {
			defer c.Close()
			return &fastConn{fd: dup(t, c)}
		},
	} {
		t.Run(string(name), func(t *testing.T) {
			var made []upstreamConn
			dial := func() (upstreamConn, error) {
				var own *net.UDPAddr
				if len(made) == 0 {
					own = upstream
				}
				c, err := net.DialUDP("udp4", own, upstream)
				require.NoError(t, err)
				made = append(made, wrap(c))
				return made[len(made)-1], nil
			}
			c, err := notToItself(dial)
			require.NoError(t, err)
			defer c.close()
			require.Len(t, made, 2)
			assert.Equal(t, made[1], c)
			up := manualUpstream(t, upstream.String()) // the port is free again
			defer up.Close()
			again, err := notToItself(dial)
			require.NoError(t, err)
			defer again.close()
			assert.Len(t, made, 3)
		})
	}
}

func dup(t *testing.T, c *net.UDPConn) (fd int) {
	t.Helper()
	raw, err := c.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(own uintptr) {
		fd, err = unix.Dup(int(own))
	}))
	require.NoError(t, err)
	return fd
}

func TestUDPDrain(t *testing.T) { onEachPath(t, testUDPDrain) }

func testUDPDrain(t *testing.T, on path) {
	g := on.start(t, newEngine(t, unlimited), Echo, UDPOptions{})
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
