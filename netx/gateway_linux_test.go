package netx

import (
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type syscallRawConn = syscall.RawConn

func openDescriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

func tryStart(t *testing.T, listen ...string) (*Gateway, error) {
	t.Helper()
	var ls []ListenerConfig
	for i, l := range listen {
		ls = append(ls, ListenerConfig{
			Name: string(rune('a' + i)), Listen: netip.MustParseAddrPort(l), Upstream: "127.0.0.1:9",
		})
	}
	g, err := StartGateway(GatewayConfig{Engine: newEngine(t, unlimited), Listeners: ls})
	if err == nil {
		t.Cleanup(func() { assert.NoError(t, g.Close()) })
	}
	return g, err
}

// server is what serves a listener.
func (g *Gateway) server(i int) server { return (*g.listeners.Load())[i].server }

func TestSecondGatewayIsRefused(t *testing.T) {
	g, err := tryStart(t, "127.0.0.1:0")
	require.NoError(t, err)
	at := g.Addrs()[0].String()
	_, err = tryStart(t, at)
	require.ErrorContains(t, err, at)
	_, err = tryStart(t, netip.AddrPortFrom(netip.IPv4Unspecified(), g.Addrs()[0].Port()).String())
	require.ErrorIs(t, err, syscall.EADDRINUSE)

	require.NoError(t, g.Close())
	_, err = tryStart(t, at)
	require.NoError(t, err, "an address that was just closed")
}

// The loops share their port with whoever sets SO_REUSEPORT too; we must not.
func TestForeignHolderIsRefused(t *testing.T) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			assert.NoError(t, syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, 0xf /* SO_REUSEPORT */, 1))
		})
	}}
	other, err := lc.ListenPacket(t.Context(), "udp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer other.Close()
	_, err = tryStart(t, other.LocalAddr().String())
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.ErrorContains(t, err, other.LocalAddr().String())
}

func TestOnlyOneOfManyStarts(t *testing.T) {
	probe, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(t, err)
	at := probe.LocalAddr().String()
	require.NoError(t, probe.Close())
	var (
		wg  sync.WaitGroup
		won [8]bool
	)
	for i := range won {
		wg.Go(func() {
			_, err := tryStart(t, at)
			won[i] = err == nil
		})
	}
	wg.Wait()
	n := 0
	for _, w := range won {
		if w {
			n++
		}
	}
	assert.Equal(t, 1, n)
}

// A wildcard and an address that it covers have different guards.
func TestWildcardAndAddressStartAtOnce(t *testing.T) {
	for _, proto := range []Protocol{UDP, TCP} {
		lock, err := lockAddr(proto, netip.MustParseAddrPort("127.0.0.1:0"), false)
		require.NoError(t, err)
		lock.release()
		listen := []netip.AddrPort{lock.addr, netip.AddrPortFrom(netip.IPv4Unspecified(), lock.addr.Port())}
		e := newEngine(t, unlimited)
		for range 20 {
			var (
				wg      sync.WaitGroup
				started [2]*Gateway
			)
			for i, at := range listen {
				wg.Go(func() {
					started[i], _ = StartGateway(GatewayConfig{Engine: e, Listeners: []ListenerConfig{
						{Name: "a", Protocol: proto, Listen: at, Upstream: "127.0.0.1:9"},
					}})
				})
			}
			wg.Wait()
			assert.NotEqual(t, started[0] == nil, started[1] == nil, "%v: %v", proto, started)
			for _, g := range started {
				if g != nil {
					require.NoError(t, g.Close())
				}
			}
		}
	}
}

func TestFailedStartLeavesNothing(t *testing.T) {
	held, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer held.Close()
	free, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(t, err)
	at := free.LocalAddr().String()
	require.NoError(t, free.Close())

	before := openDescriptors(t)
	_, err = tryStart(t, at, held.LocalAddr().String())
	require.ErrorContains(t, err, "listener b")
	assert.Equal(t, before, openDescriptors(t))
	_, err = StartGateway(GatewayConfig{Engine: newEngine(t, unlimited), Listeners: []ListenerConfig{
		{Name: "a", Listen: netip.MustParseAddrPort(at), Upstream: Echo},
		{Name: "b", Listen: netip.MustParseAddrPort("127.0.0.1:0"), Upstream: "no such host:80"},
	}})
	require.ErrorContains(t, err, "no such host")
	assert.Equal(t, before, openDescriptors(t))
	_, err = tryStart(t, at)
	require.NoError(t, err)
}

func TestUpstreamIsAListener(t *testing.T) {
	for _, proto := range []Protocol{UDP, TCP} {
		at := ownAddr(t, proto)
		for _, listen := range []netip.AddrPort{at, netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port())} {
			_, err := StartGateway(GatewayConfig{Engine: newEngine(t, unlimited), Listeners: []ListenerConfig{
				{Name: "a", Protocol: proto, Listen: netip.MustParseAddrPort("127.0.0.1:0"), Upstream: at.String()},
				{Name: "b", Protocol: proto, Listen: listen, Upstream: Echo},
			}})
			require.ErrorContains(t, err, at.String()+" is a listener of this gateway")
		}
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	before := openDescriptors(t)
	fastest := time.Hour
	for range 3 {
		g := startUDP(t, newEngine(t, unlimited), Echo, UDPOptions{})
		for range 20 {
			c := dialUDP(t, "", g.Addrs()[0])
			exchange(t, c, []byte("x"))
			require.NoError(t, c.Close())
		}
		began := time.Now()
		require.NoError(t, g.Close())
		fastest = min(fastest, time.Since(began))
		require.NoError(t, g.Close(), "twice")
	}
	assert.Less(t, fastest, 400*time.Millisecond, "waited for something")
	require.Eventually(t, func() bool {
		buf := make([]byte, 1<<20)
		stacks := string(buf[:runtime.Stack(buf, true)])
		return !strings.Contains(stacks, "netx.(*fastPath)") && !strings.Contains(stacks, "netx.(*udpLoop)")
	}, ioTimeout, time.Millisecond)
	assert.LessOrEqual(t, openDescriptors(t), before)
}

func TestLockTCP(t *testing.T) {
	held, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer held.Close()
	_, err = lockAddr(TCP, netip.MustParseAddrPort(held.Addr().String()), false)
	require.ErrorIs(t, err, syscall.EADDRINUSE)

	lock, err := lockAddr(TCP, netip.MustParseAddrPort("127.0.0.1:0"), false)
	require.NoError(t, err)
	defer lock.release()
	_, err = lockAddr(TCP, lock.addr, false)
	require.ErrorContains(t, err, lock.addr.String()+" is held by another gateway")
}
