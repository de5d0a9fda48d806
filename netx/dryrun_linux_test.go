package netx

import (
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// strict denies softly what is beyond 20 packets, the seventh time for an hour.
func strict(name string, dry bool) policy.Policy {
	return policy.Policy{
		Name:       name,
		Packets:    tokenbucket.Limit{Capacity: 20, RefillPerSecond: noRefill},
		Escalation: policy.Escalation{MaxSoftViolations: 7, Window: time.Hour, Lockout: time.Hour},
		DryRun:     dry,
	}
}

// strictEngine has, beside the default policy, named ones. 127.0.3.0/24 is denied,
// 127.0.4.0/24 banned.
func strictEngine(t *testing.T, def policy.Policy, named ...policy.Policy) *engine.Engine {
	t.Helper()
	e, err := engine.New(engine.Config{Default: def, Policies: named, Load: engine.NoLoad})
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	require.NoError(t, e.Deny(netip.MustParsePrefix("127.0.3.0/24")))
	require.NoError(t, e.Ban(netip.MustParsePrefix("127.0.4.0/24"), 0, ""))
	return e
}

// flood sends the same mix each time: of 12 endpoints, denied and banned ones
// among them, with one of the opcodes in front.
func flood(t *testing.T, g *Gateway, opcodes string) {
	t.Helper()
	var clients []*net.UDPConn
	for i := range 12 {
		from := netip.AddrFrom4([4]byte{127, 0, byte(2 + i%3), byte(1 + i)})
		clients = append(clients, dialUDP(t, from.String(), g.Addrs()[0]))
	}
	r := rand.New(rand.NewPCG(1, 12))
	sent := g.Listeners()[0].Packets
	for range 30 {
		together(g, func() {
			for range mixChunk {
				who := int(12 * r.Float64() * r.Float64())
				p := make([]byte, 1+r.IntN(120))
				p[0] = opcodes[r.IntN(len(opcodes))]
				send(t, clients[who], p)
				sent++
			}
		})
		reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == sent })
	}
}

func udpListener(dry bool, o Opcodes) ListenerConfig {
	return ListenerConfig{
		Name: "u", Listen: netip.AddrPortFrom(localhost, 0), Upstream: Echo, DryRun: dry, Opcodes: o,
		UDP: UDPOptions{MaxDatagram: 100},
	}
}

var silent = slog.New(slog.DiscardHandler)

// C112: a dry run of a listener drops nothing that the limits, the bans and the
// list of the denied keep out, and counts what an enforcing run drops. What is too
// long for the listener is dropped either way.
func TestDryRunOfAListener(t *testing.T) {
	onEachPath(t, func(t *testing.T, on path) {
		enforcing := on.listener(t, strictEngine(t, strict("", false)), silent, udpListener(false, Opcodes{}))
		flood(t, enforcing, "x")
		dry := on.listener(t, strictEngine(t, strict("", false)), silent, udpListener(true, Opcodes{}))
		flood(t, dry, "x")
		want, got := enforcing.Listeners()[0], dry.Listeners()[0]
		wantDrops := map[string]int64{}
		for _, reason := range []string{"soft_throttle", "hard_lockout", "denied"} {
			wantDrops[reason] = want.Dropped[reason]
			assert.Greater(t, want.Dropped[reason], int64(20), reason)
		}
		assert.Equal(t, wantDrops, got.WouldDrop)
		assert.Empty(t, want.WouldDrop)
		assert.Equal(t, map[string]int64{"oversize": got.Dropped["oversize"]}, got.Dropped)
		assert.Greater(t, got.Dropped["oversize"], want.Dropped["oversize"])
		assert.Equal(t, got.Packets-got.Dropped["oversize"], got.Forwarded)
	})
}

// C112, for each policy; C113: of two policies on a listener one is a dry run. Each
// counts for itself what both in force would drop. It is switched while the gateway
// runs.
func TestDryRunOfAPolicy(t *testing.T) {
	onEachPath(t, func(t *testing.T, on path) {
		run := func(dry bool) (*engine.Engine, *Gateway, map[string]int64, map[string]int64) {
			e := strictEngine(t, policy.Policy{}, strict("live", false), strict("trial", dry))
			live, _ := e.Policy("live")
			trial, _ := e.Policy("trial")
			g := on.listener(t, e, silent, udpListener(false, Opcodes{Policies: map[uint32]engine.PolicyID{'l': live, 't': trial}}))
			flood(t, g, "lt")
			r := g.Listeners()[0]
			delete(r.Dropped, "oversize")
			return e, g, r.Dropped, r.WouldDrop
		}
		_, _, all, none := run(false)
		assert.Empty(t, none)
		e, g, dropped, would := run(true)
		for reason, n := range all {
			assert.Equal(t, n, dropped[reason]+would[reason], reason)
			assert.Greater(t, dropped[reason], n/4, reason)
			assert.Greater(t, would[reason], n/4, reason)
		}
		assert.Len(t, all, 3)

		require.NoError(t, e.SetPolicies(policy.Policy{}, []policy.Policy{strict("live", true), strict("trial", false)}))
		c := dialUDP(t, "127.0.2.1", g.Addrs()[0]) // who is locked out under both
		exchange(t, c, []byte("l"))
		send(t, c, []byte("t"))
		reportWhen(t, g, func(r ListenerReport) bool {
			return r.WouldDrop["hard_lockout"] == would["hard_lockout"]+1 && r.Dropped["hard_lockout"] == dropped["hard_lockout"]+1
		})
	})
}

// A dry run and opcodes leave nothing to the kernel, where a source alone would
// have to decide.
func TestNoKernelFilterForDryRunAndOpcodes(t *testing.T) {
	e := strictEngine(t, strict("", false), strict("trial", true))
	trial, _ := e.Policy("trial")
	plain := udpListener(false, Opcodes{})
	dry := udpListener(true, Opcodes{})
	picks := udpListener(false, Opcodes{Policies: map[uint32]engine.PolicyID{1: trial}})
	plain.Name, dry.Name, picks.Name = "plain", "dry", "picks"
	log := &syncBuffer{}
	g, err := StartGateway(GatewayConfig{
		Engine: e, Listeners: []ListenerConfig{dry, plain, picks}, KernelDrop: KernelDropSocket, Logger: textLog(log),
	})
	require.NoError(t, err)
	defer g.Close()
	require.NotContains(t, log.String(), "kernel drop", "this test needs CAP_BPF")
	for i, filtered := range []bool{false, true, false} {
		require.Equal(t, filtered, g.server(i).(*udpServer).filter != nil, i)
	}
	lockOutUDP(t, g, 1, dialUDP(t, "127.0.2.1", g.Addrs()[1]))
	c := dialUDP(t, "127.0.2.1", g.Addrs()[0])
	for range 100 {
		exchange(t, c, []byte("dry"))
	}
	assert.EqualValues(t, 100, g.Listeners()[0].WouldDrop["hard_lockout"])

	none, err := StartGateway(GatewayConfig{Engine: e, Listeners: []ListenerConfig{dry}, KernelDrop: KernelDropSocket})
	require.NoError(t, err)
	defer none.Close()
	require.Nil(t, none.kernelDrop, "no listener has a use for it")
}

// Of a TCP listener: who would be turned away is served and counted, and bytes
// beyond the budget are not waited for. Caps hold.
func TestDryRunOfTCP(t *testing.T) {
	for _, where := range []string{"listener", "policy"} {
		t.Run(where, func(t *testing.T) {
			p := strict("", where == "policy")
			p.Packets.Capacity = 2
			p.Escalation.MaxSoftViolations = 3
			p.Bytes = &tokenbucket.Limit{Capacity: 10, RefillPerSecond: noRefill}
			g, err := StartGateway(GatewayConfig{Engine: strictEngine(t, p), Listeners: []ListenerConfig{{
				Name: "tcp", Protocol: TCP, Listen: loopback(0), Upstream: Echo, DryRun: where == "listener",
				TCP: TCPOptions{OnLimit: CloseConn, MaxConnections: 2},
			}}})
			require.NoError(t, err)
			defer g.Close()
			report := func() ListenerReport { return g.Listeners()[0] }
			addr := g.Addrs()[0].String()
			for range 6 {
				require.NoError(t, fateOf(addr, "127.0.0.1"))
				addsUp(t, report)
			}
			for _, listed := range []string{"127.0.3.1", "127.0.4.1"} {
				require.NoError(t, fateOf(addr, listed))
				addsUp(t, report)
			}
			c := keepOpen(t, addr)
			go func() { _, _ = c.Write(make([]byte, 300_000)) }()
			_, err = io.ReadFull(c, make([]byte, 300_000))
			require.NoError(t, err, "the budget of 10 bytes")
			keepOpen(t, addr)
			require.Error(t, fateOf(addr, "127.0.0.1"), "there is no place")
			r := report()
			assert.Equal(t, map[string]int64{"soft_throttle": 2, "hard_lockout": 6, "denied": 1}, r.WouldDrop)
			assert.Equal(t, map[string]int64{"connections_full": 1}, r.Dropped)
			assert.EqualValues(t, 10, r.Forwarded)
		})
	}
}

// A client that is paused goes on once its policy has become a dry run.
func TestPolicyBecomesADryRunWhileTCPWaits(t *testing.T) {
	p := strict("", false)
	p.Bytes = &tokenbucket.Limit{Capacity: 10, RefillPerSecond: noRefill}
	e := strictEngine(t, p)
	g, report := startTCPOn(t, e, 0, Echo, TCPOptions{})
	c := keepOpen(t, g.Addrs()[0].String())
	_, err := c.Write(make([]byte, 1000))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return report().Bytes == 10 }, settled, time.Millisecond)
	p.DryRun = true
	require.NoError(t, e.SetPolicies(p, nil))
	require.NoError(t, c.SetReadDeadline(time.Now().Add(ioTimeout)))
	_, err = io.ReadFull(c, make([]byte, 1000))
	require.NoError(t, err)
}

// In front of other servers a dry run of the default policy lets everything
// through that has an address.
func TestDryRunOfAdapters(t *testing.T) {
	p := strict("", true)
	p.Packets.Capacity = 1
	e := strictEngine(t, p)
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	c := PacketConn(e, udp)
	defer c.Close()
	for range 20 {
		send(t, dialUDP(t, "", addrPort(c.LocalAddr())), []byte("x"))
		require.NoError(t, c.SetReadDeadline(time.Now().Add(ioTimeout)))
		_, _, err := c.ReadFrom(make([]byte, 10))
		require.NoError(t, err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := Listener(e, tcp)
	defer l.Close()
	for range 3 {
		client, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		defer client.Close()
		server, err := l.Accept()
		require.NoError(t, err)
		defer server.Close()
	}
	r := e.Report()
	require.EqualValues(t, []int64{1, 6, 16}, []int64{r.Allowed, r.SoftThrottled, r.HardLocked})
	require.False(t, passes(e, netip.AddrPort{}, policy.Decision{}), "nobody")
	require.NoError(t, e.Close())
	require.False(t, passes(e, loopback(1), policy.Decision{}), "a closed engine")
}

func TestDryRunOfGuard(t *testing.T) {
	p := strict("", true)
	p.Packets.Capacity = 1
	for _, network := range []string{"udp", "tcp"} {
		e := strictEngine(t, p)
		r, addr := runGuard(t, e, network)
		for i := range 10 {
			c, err := net.Dial(network, addr)
			require.NoError(t, err)
			_, err = c.Write([]byte("x"))
			require.NoError(t, err)
			require.Eventually(t, func() bool { _, _, got := r.seen(); return len(got) == i+1 }, settled, time.Millisecond, network)
			require.NoError(t, c.Close())
		}
		require.EqualValues(t, 9, e.Report().HardLocked+e.Report().SoftThrottled, network)
	}
}

// What the list of the denied keeps out has a reason of its own; a ban is a
// lockout.
func TestDenied(t *testing.T) {
	want := map[string]int64{"denied": 3, "hard_lockout": 2}
	ask := func(t *testing.T, e *engine.Engine, from string) string {
		src := netip.AddrPortFrom(netip.MustParseAddr(from), 9)
		return Denial(e, src, e.Evaluate(src))
	}
	onEachPath(t, func(t *testing.T, on path) {
		e := strictEngine(t, strict("", false))
		g := on.listener(t, e, silent, udpListener(false, Opcodes{}))
		for i := range 3 {
			send(t, dialUDP(t, "127.0.3.1", g.Addrs()[0]), []byte("denied"))
			if i > 0 {
				send(t, dialUDP(t, "127.0.4.1", g.Addrs()[0]), []byte("banned"))
			}
		}
		assert.Equal(t, want, reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == 5 }).Dropped)
		assert.Equal(t, "denied", ask(t, e, "127.0.3.1"))
		assert.Equal(t, "hard_lockout", ask(t, e, "127.0.4.1"))
	})
	t.Run("tcp", func(t *testing.T) {
		g, report := startTCPOn(t, strictEngine(t, strict("", false)), 0, Echo, TCPOptions{})
		for i := range 3 {
			require.Error(t, fateOf(g.Addrs()[0].String(), "127.0.3.1"))
			if i > 0 {
				require.Error(t, fateOf(g.Addrs()[0].String(), "127.0.4.1"))
			}
		}
		assert.Equal(t, want, report().Dropped)
	})
}

// C96: a flood of status requests costs logins nothing. C53: datagrams that are
// too short for an opcode count under the listener's policy.
func TestOpcodesHaveBudgetsOfTheirOwn(t *testing.T) {
	onEachPath(t, func(t *testing.T, on path) {
		e := strictEngine(t, strict("", false), strict("status", false))
		status, _ := e.Policy("status")
		g := on.listener(t, e, silent, udpListener(false, Opcodes{Offset: 1, Size: 2, Policies: map[uint32]engine.PolicyID{0x5354: status}}))
		c := dialUDP(t, "127.0.2.1", g.Addrs()[0])
		for i := range 300 {
			send(t, c, []byte("\x00STatus"))
			if i%30 == 29 {
				exchange(t, dialUDP(t, "127.0.2.1", g.Addrs()[0]), []byte("\x00LOgin"))
			}
		}
		r := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == 310 })
		assert.EqualValues(t, 30, r.Forwarded)
		assert.Equal(t, map[string]int64{"soft_throttle": 6, "hard_lockout": 274}, r.Dropped)
		for range 20 {
			send(t, c, []byte("\x00S"))
		}
		r = reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == 330 })
		assert.EqualValues(t, 40, r.Forwarded)
		assert.Equal(t, map[string]int64{"soft_throttle": 12, "hard_lockout": 278}, r.Dropped)
		left := e.Report().Top
		require.Len(t, left, 2, "one lockout for each policy")
	})
}
