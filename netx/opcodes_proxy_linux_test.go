package netx

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
)

// Of what a proxy brings, an opcode is looked for behind the header, and each
// client has to be answered itself: of two who send from one socket the one can be
// locked out and the other cannot.
func TestRulesBehindAProxy(t *testing.T) {
	onEachPath(t, func(t *testing.T, on path) {
		up := manualUpstream(t, "127.0.0.1:0")
		e := strictEngine(t, policy.Policy{}, strict("status", false))
		status, _ := e.Policy("status")
		l := udpListener(false, Opcodes{Policies: map[uint32]engine.PolicyID{'S': status}})
		l.Upstream, l.Proxy = up.LocalAddr().String(), acceptLB
		l.UDP = UDPOptions{LockoutRequires: LockoutEstablished, MaxReplyRatio: 2}
		g := on.listener(t, e, silent, l)
		proxy := dialUDP(t, lb, g.Addrs()[0])
		send(t, proxy, broughtUDP(clientA, "Status"))
		_, a := readFrom(t, up)
		send(t, proxy, broughtUDP(clientB, "Status"))
		readFrom(t, up)
		reply(t, up, a, "thirteen byte") // of the payload of 6, whatever the header has
		suppressedIs(t, g, 1)
		reply(t, up, a, "twelve bytes")
		assert.Equal(t, []string{"twelve bytes"}, received(t, proxy, 1))
		for range 30 {
			send(t, proxy, broughtUDP(clientA, "S"))
			send(t, proxy, broughtUDP(clientB, "S"))
		}
		r := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == 62 })
		assert.Equal(t, map[string]int64{"soft_throttle": 7 + 11, "hard_lockout": 4}, r.Dropped)
		require.Positive(t, e.LockedFor(clientA, status))
		require.Zero(t, e.LockedFor(clientB, status))
	})
}

// A proxy that is banned is kept out of what the policy of the opcode enforces,
// and of nothing that is on trial.
func TestBannedProxyUnderThePolicyOfAnOpcode(t *testing.T) {
	onEachPath(t, func(t *testing.T, on path) {
		e := strictEngine(t, strict("", true), strict("live", false))
		live, _ := e.Policy("live")
		require.NoError(t, e.Ban(netip.MustParsePrefix(lb+"/32"), 0, ""))
		l := udpListener(false, Opcodes{Policies: map[uint32]engine.PolicyID{'l': live}})
		l.Proxy = acceptLB
		g := on.listener(t, e, silent, l)
		proxy := dialUDP(t, lb, g.Addrs()[0])
		send(t, proxy, broughtUDP(clientA, "live"))
		send(t, proxy, broughtUDP(clientA, "trial"))
		got, _ := receive(t, proxy, ioTimeout)
		require.Equal(t, "trial", string(got))
		r := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == 2 })
		assert.Equal(t, map[string]int64{"hard_lockout": 1}, r.Dropped)
		assert.Equal(t, map[string]int64{"hard_lockout": 1}, r.WouldDrop)
	})
}
