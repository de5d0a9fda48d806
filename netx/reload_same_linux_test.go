package netx

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy/limiter"
)

// What changes nothing that a listener does leaves it alone: defaults that are
// written down, what has no effect, the order of what has none.
func TestReloadOfTheSame(t *testing.T) { onEachPath(t, testReloadOfTheSame) }

func testReloadOfTheSame(t *testing.T, on path) {
	udp, tcp := udpTo("u", Echo), tcpTo("t", Echo)
	proxied := []netip.Prefix{netip.MustParsePrefix("127.0.0.8/32"), netip.MustParsePrefix("10.0.0.0/8")}
	behind := tcpTo("p", Echo)
	behind.Proxy.AcceptFrom = proxied
	byOpcode := udpTo("o", Echo)
	byOpcode.Opcodes.Policies = map[uint32]engine.PolicyID{1: 0}
	was := []ListenerConfig{udp, tcp, behind, byOpcode}
	g := on.startOn(t, nil, was...)
	before := *g.listeners.Load()
	client := dialUDP(t, "", g.Addrs()[0])
	exchange(t, client, []byte("x"))
	for name, edit := range map[string]func(u, t, p, o *ListenerConfig){
		"defaults of udp": func(u, _, _, _ *ListenerConfig) {
			u.UDP = UDPOptions{MaxSessions: 100, SessionIdle: DefaultSessionIdle, MaxDatagram: DefaultMaxDatagram}
		},
		"defaults of tcp": func(_, t, _, _ *ListenerConfig) {
			t.TCP = TCPOptions{MaxConnections: 100, DialTimeout: DefaultDialTimeout,
				Queue: limiter.Queue{MaxWait: DefaultQueueMaxWait}}
		},
		"no proxies": func(u, t, _, _ *ListenerConfig) {
			u.Proxy.AcceptFrom, t.Proxy.AcceptFrom = []netip.Prefix{}, []netip.Prefix{}
		},
		"a timeout for nobody": func(u, t, _, _ *ListenerConfig) { u.Proxy.Timeout, t.Proxy.Timeout = time.Hour, time.Hour },
		"default timeout":      func(_, _, p, _ *ListenerConfig) { p.Proxy.Timeout = DefaultProxyTimeout },
		"order of proxies": func(_, _, p, _ *ListenerConfig) {
			p.Proxy.AcceptFrom = []netip.Prefix{proxied[1], proxied[0]}
		},
		"no opcodes": func(u, _, _, _ *ListenerConfig) {
			u.Opcodes = Opcodes{Offset: 7, Size: 2, Policies: map[uint32]engine.PolicyID{}}
		},
		"default size": func(_, _, _, o *ListenerConfig) { o.Opcodes.Size = 1 },
		"a queue without places": func(_, t, _, _ *ListenerConfig) {
			t.TCP.Queue = limiter.Queue{Order: limiter.NewestFirst, MaxWait: time.Hour}
		},
		"of the other protocol": func(u, t, _, _ *ListenerConfig) {
			t.UDP.SessionIdle, u.TCP.IdleTimeout = time.Hour, time.Hour
		},
		"mapped address": func(u, _, _, _ *ListenerConfig) {
			u.Listen = netip.AddrPortFrom(netip.MustParseAddr("::ffff:127.0.0.1"), u.Listen.Port())
		},
	} {
		with := slices.Clone(was)
		edit(&with[0], &with[1], &with[2], &with[3])
		slices.Reverse(with)
		require.NoError(t, g.Reload(with, 0), name)
		now := slices.Clone(*g.listeners.Load())
		slices.Reverse(now)
		require.Equal(t, len(before), len(now))
		for i := range before {
			assert.Same(t, before[i], now[i], "%s: listener %s was replaced", name, was[i].Name)
		}
	}
	exchange(t, client, []byte("x"))
	require.NoError(t, g.Reload(was, 0))
	assert.EqualValues(t, 1, g.Listeners()[0].SessionsActive)
}

// A default that the descriptor limit lowers is said once, and again when it is
// another one.
func TestReloadRepeatsNoWarning(t *testing.T) {
	var out logBuffer
	udp, tcp := udpTo("u", Echo), tcpTo("t", Echo)
	udp.UDP.MaxSessions = 0
	g := fast.startOn(t, textLog(&out), udp, tcp)
	limit, _, ok := descriptors()
	require.True(t, ok)
	warnings := func(leave int, listeners ...ListenerConfig) int {
		t.Helper()
		g.used = limit - leave
		before := strings.Count(string(out), "descriptor limit")
		require.NoError(t, g.Reload(listeners, 0))
		return strings.Count(string(out), "descriptor limit") - before
	}
	assert.Equal(t, 1, warnings(2000, udp, tcp))
	assert.Equal(t, 0, warnings(2000, tcp, udp), "as it was")
	assert.Equal(t, 0, warnings(2000, changed(udp, 1), tcp), "replaced")
	assert.Equal(t, 1, warnings(1500, changed(udp, 1), tcp), "lower still")
}

// A default cap that is written down is refused where it does not fit, and is the
// same listener where it does.
func TestEffectOfCaps(t *testing.T) {
	assert.Equal(t, ListenerConfig{}.effect(), ListenerConfig{UDP: UDPOptions{MaxSessions: DefaultMaxSessions}}.effect())
	written := ListenerConfig{Protocol: TCP, TCP: TCPOptions{MaxConnections: DefaultMaxConnections}}
	assert.Equal(t, ListenerConfig{Protocol: TCP}.effect(), written.effect())
	written.TCP.MaxConnections++
	assert.NotEqual(t, ListenerConfig{Protocol: TCP}.effect(), written.effect())
}
