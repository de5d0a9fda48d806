package netx

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// lockingEngine locks out whoever sends more than capacity datagrams; under the
// policy "wide" nobody.
func lockingEngine(t testing.TB, c engine.Config, capacity int64) *engine.Engine {
	t.Helper()
	c.Default = policy.Policy{
		Packets:    tokenbucket.Limit{Capacity: capacity, RefillPerSecond: 1e-6},
		Escalation: policy.Escalation{MaxSoftViolations: 1, Lockout: time.Hour},
	}
	c.Policies = []policy.Policy{{Name: "wide", Packets: tokenbucket.Limit{Capacity: unlimited, RefillPerSecond: 1}}}
	c.Load = engine.NoLoad
	e, err := engine.New(c)
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	return e
}

// startKernelDrop starts echo listeners on an address, one for each policy. It
// fails where the kernel does not allow it to drop.
func startKernelDrop(t testing.TB, e *engine.Engine, on netip.Addr, policies ...engine.PolicyID) *Gateway {
	t.Helper()
	var log bytes.Buffer
	cfg := GatewayConfig{Engine: e, Logger: textLog(&log), KernelDrop: KernelDropSocket}
	for i, id := range policies {
		cfg.Listeners = append(cfg.Listeners, ListenerConfig{
			Name: string(rune('a' + i)), Listen: netip.AddrPortFrom(on, 0), Upstream: Echo, Policy: id,
		})
	}
	g, err := StartGateway(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, g.Close()) })
	require.NotContains(t, log.String(), "kernel drop", "this test needs CAP_BPF")
	return g
}

// lockOutUDP floods from an address until the kernel drops what comes from it at
// a listener, and returns how many datagrams that were.
func lockOutUDP(t testing.TB, g *Gateway, listener int, c *net.UDPConn) (sent int64) {
	t.Helper()
	before := g.Listeners()[listener].Dropped["kernel"]
	require.Eventually(t, func() bool {
		send(t, c, []byte("flood"))
		sent++
		return g.Listeners()[listener].Dropped["kernel"] > before
	}, ioTimeout, time.Millisecond, "the kernel drops nothing")
	return sent
}

// Of those behind one listener the one who is locked out is dropped by the
// kernel, and the other never.
func TestKernelDropOfOneAmongTwo(t *testing.T) {
	for _, on := range []netip.Addr{localhost, netip.IPv4Unspecified()} {
		t.Run(on.String(), func(t *testing.T) { kernelDropOfOneAmongTwo(t, on) })
	}
}

func kernelDropOfOneAmongTwo(t *testing.T, on netip.Addr) {
	const budget, honest, flood = 3000, 3000, 20_000
	e := lockingEngine(t, engine.Config{}, budget)
	g := startKernelDrop(t, e, on, 0)
	to := netip.AddrPortFrom(localhost, g.Addrs()[0].Port())
	good, bad := dialUDP(t, "127.0.0.2", to), dialUDP(t, "127.0.0.3", to)
	for n, f := 0, 0; n < honest || f < flood; {
		if f < flood && (n == honest || rand.IntN(honest+flood) < flood) {
			send(t, bad, make([]byte, 1+f%100))
			f++
			continue
		}
		exchange(t, good, []byte{byte(n)})
		n++
	}
	r := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == honest+flood })
	assert.EqualValues(t, honest+budget, r.Forwarded)
	assert.EqualValues(t, flood-budget, r.Dropped["kernel"]+r.Dropped["hard_lockout"])
	assert.Greater(t, r.Dropped["kernel"], int64(flood/2), "the kernel has hardly dropped anything")
	assert.EqualValues(t, honest+flood/100*5050, r.Bytes)
	assert.Equal(t, r.Packets-r.Dropped["kernel"], e.Report().Evaluated)
	require.NoError(t, g.Close())
	assert.Equal(t, r.Dropped, g.Listeners()[0].Dropped, "after Close")
}

// Somebody who is locked out under the policy of one listener is served by a
// listener with another one; listeners of one policy share its lockouts.
func TestKernelDropKnowsThePolicy(t *testing.T) {
	e := lockingEngine(t, engine.Config{}, 3)
	wide, _ := e.Policy("wide")
	g := startKernelDrop(t, e, localhost, 0, wide, 0)
	c := [3]*net.UDPConn{}
	for i := range c {
		c[i] = dialUDP(t, "127.0.0.2", g.Addrs()[i])
	}
	lockOutUDP(t, g, 0, c[0])
	for range 1000 {
		exchange(t, c[1], []byte("served"))
	}
	lockOutUDP(t, g, 2, c[2])
	r := g.Listeners()
	assert.Empty(t, r[1].Dropped)
	assert.EqualValues(t, 1000, r[1].Forwarded)
	assert.Equal(t, r[2].Packets, r[2].Dropped["kernel"], "the kernel knew from the first one on")
}

// C36, C46: bans are in force in the kernel at once, and so is their end.
func TestKernelDropFollowsTheLists(t *testing.T) {
	e := lockingEngine(t, engine.Config{}, 100)
	g := startKernelDrop(t, e, localhost, 0)
	c := dialUDP(t, "127.0.0.2", g.Addrs()[0])
	var sent int64
	for range 10 {
		exchange(t, c, []byte("served"))
		before := g.Listeners()[0].Dropped["kernel"]
		require.NoError(t, e.Ban(netip.MustParsePrefix("127.0.0.0/24"), 0, ""))
		send(t, c, []byte("banned"))
		sent += 2
		reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == sent && r.Dropped["kernel"] == before+1 })
		require.NoError(t, e.Exempt(netip.MustParsePrefix("127.0.0.2/32")))
		exchange(t, c, []byte("exempt"))
		require.NoError(t, e.Exempt())
		require.True(t, e.Unban(netip.MustParsePrefix("127.0.0.0/24")))
		exchange(t, c, []byte("lifted"))
		sent += 2
	}
	sent += lockOutUDP(t, g, 0, c)
	require.True(t, e.Unban(netip.MustParsePrefix("127.0.0.2/32")))
	r := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == sent })
	send(t, c, []byte("no tokens, but not the kernel's"))
	after := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == sent+1 })
	assert.Equal(t, r.Dropped["kernel"], after.Dropped["kernel"])
	assert.Equal(t, r.Dropped["hard_lockout"]+1, after.Dropped["hard_lockout"])
}

// Close leaves no descriptor, with or without traffic.
func TestKernelDropCloses(t *testing.T) {
	e := lockingEngine(t, engine.Config{}, 3)
	before := 0
	for round := range 3 {
		g := startKernelDrop(t, e, localhost, 0, 0)
		lockOutUDP(t, g, 1, dialUDP(t, "127.0.0.2", g.Addrs()[1]))
		require.NoError(t, g.Close())
		require.NoError(t, g.Close())
		e.Unban(netip.MustParsePrefix("127.0.0.2/32"))
		if now := openDescriptors(t) - round; round == 0 { // dialUDP's stay open
			before = now
		} else {
			require.Equal(t, before, now)
		}
	}
}

// capsEnv makes the test binary a gateway with what capabilities are left.
const capsEnv = "THROTTLED_TEST_CAPABILITIES"

// Without CAP_BPF the gateway starts all the same, says once what is missing
// and how to get it, and drops by itself. CAP_BPF is enough.
func TestKernelDropPermission(t *testing.T) {
	if os.Getenv(capsEnv) != "" {
		kernelDropChild(t)
		return
	}
	none := childWith(t)
	assert.Contains(t, none, "dropped map[hard_lockout:97]")
	assert.Equal(t, 1, strings.Count(none, "level=WARN"), none)
	assert.Contains(t, none, "kernel drop is not available, user space drops")
	assert.Contains(t, none, "CAP_BPF")

	enough := childWith(t, unix.CAP_BPF)
	assert.NotContains(t, enough, "level=WARN")
	assert.Contains(t, enough, "kernel:")
}

// childWith runs this test in a process with no capabilities but these.
func childWith(t *testing.T, keep ...uintptr) string {
	t.Helper()
	type result struct {
		out []byte
		err error
	}
	done := make(chan result)
	go func() { // on a thread that has given them up, and ends with it
		runtime.LockOSThread()
		for c := uintptr(0); unix.Prctl(unix.PR_CAPBSET_READ, c, 0, 0, 0) == nil; c++ {
			if slices.Contains(keep, c) {
				continue
			}
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
				done <- result{nil, err}
				return
			}
		}
		child := exec.Command(os.Args[0], "-test.run=^TestKernelDropPermission$", "-test.v")
		child.Env = append(os.Environ(), capsEnv+"=1")
		out, err := child.CombinedOutput()
		done <- result{out, err}
	}()
	r := <-done
	require.NoError(t, r.err, "%s", r.out)
	return string(r.out)
}

func kernelDropChild(t *testing.T) {
	e := lockingEngine(t, engine.Config{}, 3)
	g, err := StartGateway(GatewayConfig{
		Engine: e, Logger: textLog(os.Stdout), KernelDrop: KernelDropSocket,
		Listeners: []ListenerConfig{{Name: "u", Listen: netip.AddrPortFrom(localhost, 0), Upstream: Echo}},
	})
	require.NoError(t, err)
	defer g.Close()
	c := dialUDP(t, "127.0.0.2", g.Addrs()[0])
	for sent := int64(1); sent <= 100; sent++ {
		send(t, c, []byte("flood"))
		reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == sent })
	}
	fmt.Println("dropped", g.Listeners()[0].Dropped)
}

// The first UDP listener of a gateway gets its filter whenever it comes; one
// that is replaced passes its drops on to the next, and the filter of its policy
// does not stay on the socket.
func TestKernelDropAndReload(t *testing.T) {
	e := lockingEngine(t, engine.Config{}, 3)
	wide, _ := e.Policy("wide")
	var log bytes.Buffer
	tcp := tcpTo("t", Echo)
	g, err := StartGateway(GatewayConfig{Engine: e, Logger: textLog(&log), KernelDrop: KernelDropSocket, Listeners: []ListenerConfig{tcp}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, g.Close()) })
	require.Nil(t, g.kernelDrop, "nothing to filter yet")

	udp := udpTo("u", Echo)
	require.NoError(t, g.Reload([]ListenerConfig{udp, tcp}, 0))
	c := dialUDP(t, "127.0.0.2", g.Addrs()[0])
	lockOutUDP(t, g, 0, c)
	for i := range 5 {
		dropped := g.Listeners()[0].Dropped["kernel"]
		udp = changed(udp, i)
		require.NoError(t, g.Reload([]ListenerConfig{udp, tcp}, 0))
		assert.GreaterOrEqual(t, g.Listeners()[0].Dropped["kernel"], dropped)
		lockOutUDP(t, g, 0, c)
	}
	r := reportWhen(t, g, func(ListenerReport) bool { return true })
	udp.Policy = wide
	require.NoError(t, g.Reload([]ListenerConfig{udp, tcp}, 0))
	c = dialUDP(t, "127.0.0.2", g.Addrs()[0]) // without the answers from before the lockout
	for range 100 {
		exchange(t, c, []byte("served"))
	}
	after := reportWhen(t, g, func(ListenerReport) bool { return true })
	assert.Equal(t, r.Dropped["kernel"], after.Dropped["kernel"])
	assert.Equal(t, r.Packets+100, after.Packets)
	assert.NotContains(t, log.String(), "kernel drop", "this test needs CAP_BPF")
}
