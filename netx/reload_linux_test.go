package netx

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// startOn starts a gateway with these listeners.
func (on path) startOn(t testing.TB, log *slog.Logger, listeners ...ListenerConfig) *Gateway {
	t.Helper()
	g, err := StartGateway(GatewayConfig{
		Engine: newEngine(t, unlimited), Logger: log, Listeners: listeners, plainUDP: on == plain,
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, g.Close()) })
	return g
}

func udpTo(name, upstream string) ListenerConfig {
	return ListenerConfig{Name: name, Listen: loopback(0), Upstream: upstream, UDP: UDPOptions{MaxSessions: 100}}
}

func tcpTo(name, upstream string) ListenerConfig {
	return ListenerConfig{Name: name, Protocol: TCP, Listen: loopback(0), Upstream: upstream, TCP: TCPOptions{MaxConnections: 100}}
}

// changed is a listener that is not as it was, though it does the same.
func changed(l ListenerConfig, i int) ListenerConfig {
	l.UDP.SessionIdle = time.Minute + time.Duration(i)*time.Millisecond
	l.TCP.IdleTimeout = l.UDP.SessionIdle
	return l
}

// Listeners that stay as they are live through 50 reloads that others come and
// go with: no session gets another port, no connection ends, nothing is counted
// anew, and what comes and goes leaves nothing behind.
func TestReloadLeavesAlone(t *testing.T) { onEachPath(t, testReloadLeavesAlone) }

func testReloadLeavesAlone(t *testing.T, on path) {
	up := manualUpstream(t, "127.0.0.1:0")
	stay := []ListenerConfig{udpTo("u", up.LocalAddr().String()), tcpTo("t", Echo)}
	g := on.startOn(t, nil, stay...)
	addrs := g.Addrs()
	udp, tcp := dialUDP(t, "", addrs[0]), dialTCP(t, addrs[1].String())
	send(t, udp, []byte("first"))
	_, port := readFrom(t, up)
	require.True(t, echoes(tcp))

	var goroutines, descriptors int
	for i := range 50 {
		with := append([]ListenerConfig{}, stay...)
		if i%3 != 0 {
			with = append(with, changed(udpTo("u2", Echo), i), changed(tcpTo("t2", Echo), i))
		}
		require.NoError(t, g.Reload(with, 0))
		require.Equal(t, addrs, g.Addrs()[:2])
		send(t, udp, []byte{byte(i)})
		_, now := readFrom(t, up)
		require.Equal(t, port, now, "another session")
		require.True(t, echoes(tcp), "the connection has ended")
		if i%3 != 0 {
			exchange(t, dialUDP(t, "", g.Addrs()[2]), []byte("x"))
			require.NoError(t, fateOf(g.Addrs()[3].String(), "127.0.0.1"))
		}
		if i == 0 {
			goroutines, descriptors = runtime.NumGoroutine(), openDescriptors(t)
		}
	}
	require.NoError(t, g.Reload(stay, 0))
	r := g.Listeners()
	require.Eventually(t, func() bool { r = g.Listeners(); return r[0].Forwarded == 51 }, settled, time.Millisecond)
	assert.EqualValues(t, 1, r[0].SessionsActive)
	assert.EqualValues(t, 1, r[1].Packets)
	assert.EqualValues(t, 1, r[1].ConnectionsActive)
	// The clients of each round are the test's own: 33 UDP sockets.
	require.Eventually(t, func() bool {
		return runtime.NumGoroutine() <= goroutines+4 && openDescriptors(t) <= descriptors+33+4
	}, settled, 10*time.Millisecond, "%d goroutines were %d, %d descriptors were %d", runtime.NumGoroutine(), goroutines, openDescriptors(t), descriptors)
}

// Where a listener is replaced on its address nothing that clients send
// meanwhile is lost, and what it has counted goes on.
func TestReloadReplacesUDP(t *testing.T) { onEachPath(t, testReloadReplacesUDP) } // C82

func testReloadReplacesUDP(t *testing.T, on path) {
	const rounds, clients = 20, 8
	g := on.startOn(t, nil, udpTo("u", Echo))
	at := g.Addrs()[0]
	var (
		sent, back, least atomic.Int64
		wg                sync.WaitGroup
	)
	ctx, stop := context.WithCancel(t.Context())
	for range clients {
		c := dialUDP(t, "", at)
		wg.Go(func() {
			for n := uint32(0); ctx.Err() == nil; n++ {
				send(t, c, binary.BigEndian.AppendUint32(nil, n))
				sent.Add(1)
				if _, ok := receive(t, c, 20*time.Millisecond); ok {
					back.Add(1)
				}
			}
		})
	}
	wg.Go(func() { // as Prometheus does
		for ctx.Err() == nil {
			r := g.Listeners()[0]
			assert.GreaterOrEqual(t, r.Packets, least.Swap(r.Packets), "the counter has stepped back")
		}
	})
	for i := range rounds {
		before := back.Load()
		require.NoError(t, g.Reload([]ListenerConfig{changed(udpTo("u", Echo), i)}, time.Hour))
		require.Equal(t, at, g.Addrs()[0])
		// Answers to a session that has just ended are lost, as they always are.
		require.Eventually(t, func() bool { return back.Load() > before+100 }, settled, time.Millisecond)
	}
	stop()
	wg.Wait()
	r := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == sent.Load() })
	assert.Equal(t, sent.Load(), r.Forwarded, "%+v", r)
}

// Connections of a listener that is replaced go on, and none that is made
// meanwhile is turned away.
func TestReloadReplacesTCP(t *testing.T) {
	const rounds, clients = 20, 4
	g := fast.startOn(t, nil, tcpTo("t", Echo))
	at := g.Addrs()[0]
	old := dialTCP(t, at.String())
	require.True(t, echoes(old))
	var (
		dials atomic.Int64
		wg    sync.WaitGroup
	)
	ctx, stop := context.WithCancel(t.Context())
	for range clients {
		wg.Go(func() {
			for ctx.Err() == nil {
				dials.Add(1)
				if !assert.NoError(t, fateOf(at.String(), "127.0.0.1")) {
					return
				}
			}
		})
	}
	for i := range rounds {
		before := dials.Load()
		require.NoError(t, g.Reload([]ListenerConfig{changed(tcpTo("t", Echo), i)}, time.Hour))
		require.Eventually(t, func() bool { return dials.Load() > before+2*clients }, settled, time.Millisecond)
		require.True(t, echoes(old))
	}
	stop()
	wg.Wait()
	r := reportWhen(t, g, func(r ListenerReport) bool { return r.ConnectionsActive == 1 })
	assert.Equal(t, dials.Load()+1, r.Forwarded)
	assert.Equal(t, dials.Load()+1, r.Bytes-rounds)
	require.NoError(t, old.Close())
	reportWhen(t, g, func(r ListenerReport) bool { return r.ConnectionsActive == 0 })
	require.Eventually(t, func() bool { return len(g.all()) == 1 }, settled, time.Millisecond, "old ones are kept")
}

// A listener that is gone: UDP sessions have ended, TCP connections have until
// the grace, and the addresses are free at once.
func TestReloadRemoves(t *testing.T) { onEachPath(t, testReloadRemoves) } // C82

func testReloadRemoves(t *testing.T, on path) {
	var log syncBuffer
	up := manualUpstream(t, "127.0.0.1:0")
	stay := udpTo("stay", Echo)
	g := on.startOn(t, textLog(&log), udpTo("u", up.LocalAddr().String()), stay, tcpTo("t", Echo))
	addrs := g.Addrs()
	udp, brief, long := dialUDP(t, "", addrs[0]), dialTCP(t, addrs[2].String()), dialTCP(t, addrs[2].String())
	send(t, udp, []byte("x"))
	_, session := readFrom(t, up)
	require.True(t, echoes(brief))
	require.True(t, echoes(long))

	require.NoError(t, g.Reload([]ListenerConfig{stay}, 400*time.Millisecond))
	gone := time.Now()
	require.Len(t, g.Listeners(), 1)
	for i, proto := range map[int]Protocol{0: UDP, 2: TCP} {
		lock, err := lockAddr(proto, addrs[i], false)
		require.NoError(t, err, "still held")
		lock.release()
	}
	_, err := up.WriteToUDPAddrPort([]byte("late"), session)
	require.NoError(t, err)
	_, ok := receive(t, udp, 50*time.Millisecond)
	assert.False(t, ok, "the session goes on")
	_, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(session))
	assert.ErrorIs(t, err, syscall.EADDRINUSE, "the port can be that of another session already (C67)")
	require.True(t, echoes(brief), "not before the grace is over")
	require.NoError(t, brief.Close())

	require.NoError(t, long.SetDeadline(time.Now().Add(ioTimeout)))
	_, err = long.Read(make([]byte, 1))
	assert.Error(t, err)
	assert.NotErrorIs(t, err, io.EOF, "a stream that is cut must not look complete")
	assert.GreaterOrEqual(t, time.Since(gone), 400*time.Millisecond)
	require.Eventually(t, func() bool { return len(g.all()) == 1 }, settled, time.Millisecond)
	assert.Contains(t, log.String(), `msg="listener removed" listener=t protocol=tcp listen=`+addrs[2].String()+" connections=2")
}

// Whatever is wrong with one listener, nothing changes for any of them.
func TestReloadIsAllOrNothing(t *testing.T) { onEachPath(t, testReloadIsAllOrNothing) }

func testReloadIsAllOrNothing(t *testing.T, on path) {
	a, b := udpTo("a", Echo), tcpTo("b", Echo)
	g := on.startOn(t, nil, a, b)
	udp, tcp := dialUDP(t, "", g.Addrs()[0]), dialTCP(t, g.Addrs()[1].String())
	exchange(t, udp, []byte("x"))
	require.True(t, echoes(tcp))
	foreignUDP := manualUpstream(t, "127.0.0.1:0")
	foreignTCP, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer foreignTCP.Close()
	lock, err := lockAddr(UDP, loopback(0), false)
	require.NoError(t, err)
	lock.release()
	at := func(l ListenerConfig, addr string) ListenerConfig {
		l.Listen = netip.MustParseAddrPort(addr)
		return l
	}
	many := udpTo("many", Echo)
	many.UDP.MaxSessions = MaxCap
	free := lock.addr.String()
	listeners := *g.listeners.Load()
	descriptors := openDescriptors(t)
	for name, c := range map[string]struct {
		with []ListenerConfig
		want string
	}{
		"none":         {nil, "no listeners"},
		"a mistake":    {[]ListenerConfig{a, tcpTo("c", "nowhere")}, "listener c: Upstream"},
		"udp is held":  {[]ListenerConfig{changed(a, 1), at(udpTo("c", Echo), foreignUDP.LocalAddr().String())}, "listener c: udp " + foreignUDP.LocalAddr().String() + " is held by another process"},
		"tcp is held":  {[]ListenerConfig{at(udpTo("n", Echo), free), at(tcpTo("c", Echo), foreignTCP.Addr().String())}, "listener c: tcp " + foreignTCP.Addr().String() + " is held by another process"},
		"no such name": {[]ListenerConfig{at(udpTo("n", Echo), free), udpTo("c", "no such host:80")}, "listener c: upstream no such host:80"},
		"a new circle": {[]ListenerConfig{a, b, udpTo("c", g.Addrs()[0].String())}, "listener c: upstream " + g.Addrs()[0].String() + " is a listener of this gateway"},
		"too many":     {[]ListenerConfig{changed(a, 1), many}, "descriptors"},
		"no address":   {[]ListenerConfig{changed(b, 1), at(udpTo("c", Echo), "192.0.2.1:7000")}, "listener c: udp 192.0.2.1:7000"},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, g.Reload(c.with, 0), c.want)
			assert.Equal(t, listeners, *g.listeners.Load())
			require.Eventually(t, func() bool { return openDescriptors(t) <= descriptors }, settled, time.Millisecond)
			exchange(t, udp, []byte("goes on"))
			assert.True(t, echoes(tcp))
			assert.NoError(t, fateOf(g.Addrs()[1].String(), "127.0.0.1"))
		})
	}
	assert.EqualValues(t, 1, g.Listeners()[0].SessionsActive)
	require.NoError(t, g.Reload([]ListenerConfig{b, at(udpTo("n", Echo), free)}, 0), "the address of those that failed is free")
}

// Listeners that were to take over sockets, and do not come to it, leave them to
// those who have them.
func TestReloadUndone(t *testing.T) { onEachPath(t, testReloadUndone) }

func testReloadUndone(t *testing.T, on path) {
	a, b := udpTo("a", Echo), tcpTo("b", Echo)
	g := on.startOn(t, nil, a, b)
	c := &change{Gateway: g, now: *g.listeners.Load()}
	require.NoError(t, c.compare([]ListenerConfig{changed(a, 1), changed(b, 1)}))
	g.mu.Lock()
	require.NoError(t, c.prepare())
	require.NoError(t, c.undo())
	g.mu.Unlock()
	for range 2 {
		exchange(t, dialUDP(t, "", g.Addrs()[0]), []byte("x"))
		require.NoError(t, fateOf(g.Addrs()[1].String(), "127.0.0.1"))
	}
}

// A listener that stays learns of the addresses of those that come and go.
func TestReloadAndOwnAddresses(t *testing.T) {
	up := manualUpstream(t, "127.0.0.1:0")
	stay := udpTo("stay", up.LocalAddr().String())
	g := fast.startOn(t, nil, stay)
	require.NoError(t, g.Reload([]ListenerConfig{stay, udpTo("new", Echo)}, 0))
	added := g.Addrs()[1]
	assert.True(t, g.self.of(UDP).has(added))
	require.NoError(t, g.Reload([]ListenerConfig{stay}, 0))
	assert.False(t, g.self.of(UDP).has(added))

	at := up.LocalAddr().(*net.UDPAddr).AddrPort()
	require.NoError(t, up.Close())
	circle := udpTo("circle", Echo)
	circle.Listen = at
	require.ErrorContains(t, g.Reload([]ListenerConfig{stay, circle}, 0), "listener stay: upstream "+at.String()+" is a listener of this gateway")
}

// What a drain waits for are also the connections of listeners that are gone,
// and nothing new comes after it.
func TestReloadAndDrain(t *testing.T) {
	g := fast.startOn(t, nil, tcpTo("t", Echo))
	c := dialTCP(t, g.Addrs()[0].String())
	require.True(t, echoes(c))
	require.NoError(t, g.Reload([]ListenerConfig{udpTo("u", Echo)}, time.Hour))
	sessions, connections := g.Open()
	assert.Equal(t, [2]int64{0, 1}, [2]int64{sessions, connections})
	drained := make(chan error, 1)
	go func() { drained <- g.Drain(t.Context()) }()
	require.Eventually(t, g.Draining, settled, time.Millisecond)
	require.ErrorIs(t, g.Reload([]ListenerConfig{udpTo("u2", Echo)}, 0), ErrDraining)
	require.True(t, echoes(c))
	require.Empty(t, drained)
	require.NoError(t, c.Close())
	require.NoError(t, <-drained)
	require.NoError(t, g.Close())
	require.ErrorIs(t, g.Reload([]ListenerConfig{udpTo("u3", Echo)}, 0), net.ErrClosed)
}

// Reloads, reports, a drain and the end at the same time.
func TestReloadAtTheSameTime(t *testing.T) { onEachPath(t, testReloadAtTheSameTime) }

func testReloadAtTheSameTime(t *testing.T, on path) {
	before := openDescriptors(t)
	g := on.startOn(t, nil, udpTo("u0", Echo))
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			for j := range 5 {
				_ = g.Reload([]ListenerConfig{changed(udpTo("u"+strconv.Itoa(i%3), Echo), j), changed(tcpTo("t", Echo), i)}, time.Hour)
				g.Listeners()
				g.Addrs()
			}
			if i == 10 {
				_ = g.Drain(t.Context())
			}
		})
	}
	wg.Wait()
	require.ErrorIs(t, g.Reload([]ListenerConfig{udpTo("u", Echo)}, 0), ErrDraining)
	for range 3 {
		wg.Go(func() { assert.NoError(t, g.Close()) })
	}
	wg.Wait()
	assert.LessOrEqual(t, openDescriptors(t), before)
}

// A listener whose share of the descriptors has changed serves so many.
func TestReloadChangesCaps(t *testing.T) {
	g := fast.startOn(t, nil, udpTo("u", Echo), tcpTo("t", Echo))
	udp, tcp := g.Addrs()[0], g.Addrs()[1]
	for i := range 2 {
		g.server(i).setCap(1)
	}
	exchange(t, dialUDP(t, "127.0.0.2", udp), []byte("x"))
	second := dialUDP(t, "127.0.0.3", udp)
	send(t, second, []byte("x"))
	reportWhen(t, g, func(r ListenerReport) bool { return r.Dropped["sessions_full"] == 1 })
	first := dialTCP(t, tcp.String())
	require.True(t, echoes(first))
	require.Error(t, fateOf(tcp.String(), "127.0.0.1"))
	for i := range 2 {
		g.server(i).setCap(2)
	}
	exchange(t, second, []byte("x"))
	require.NoError(t, fateOf(tcp.String(), "127.0.0.1"))
}
