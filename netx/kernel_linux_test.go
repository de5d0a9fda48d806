package netx

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

// startKernelDrop starts echo listeners on loopback, one for each policy. It
// fails where the kernel does not allow it to drop.
func startKernelDrop(t testing.TB, e *engine.Engine, policies ...engine.PolicyID) *Gateway {
	t.Helper()
	var log bytes.Buffer
	cfg := GatewayConfig{Engine: e, Logger: textLog(&log), KernelDrop: KernelDropSocket}
	for i, id := range policies {
		cfg.Listeners = append(cfg.Listeners, ListenerConfig{
			Name: string(rune('a' + i)), Listen: netip.AddrPortFrom(localhost, 0), Upstream: Echo, Policy: id,
		})
	}
	g, err := StartGateway(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, g.Close()) })
	require.NotContains(t, log.String(), "kernel drop", "this test needs CAP_BPF")
	return g
}

// Of those behind one listener the one who is locked out is dropped by the
// kernel, and the other never.
func TestKernelDropOfOneAmongTwo(t *testing.T) {
	const budget, honest, flood = 3000, 3000, 20_000
	e := lockingEngine(t, engine.Config{}, budget)
	g := startKernelDrop(t, e, 0)
	good, bad := dialUDP(t, "127.0.0.2", g.Addrs()[0]), dialUDP(t, "127.0.0.3", g.Addrs()[0])
	answered := 0
	for n, f := 0, 0; n < honest || f < flood; {
		if f < flood && (n == honest || rand.IntN(honest+flood) < flood) {
			send(t, bad, make([]byte, 1+f%100))
			f++
			continue
		}
		exchange(t, good, []byte{byte(n)})
		n++
		answered++
	}
	r := reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == honest+flood })
	assert.Equal(t, honest, answered)
	assert.EqualValues(t, honest+budget, r.Forwarded)
	assert.EqualValues(t, flood-budget, r.Dropped["kernel"]+r.Dropped["hard_lockout"])
	assert.Greater(t, r.Dropped["kernel"], int64(flood/2), "the kernel has hardly dropped anything")
	assert.EqualValues(t, honest+flood/100*5050, r.Bytes)
	assert.Equal(t, r.Packets-r.Dropped["kernel"], e.Report().Evaluated)
	require.NoError(t, g.Close())
	assert.Equal(t, r.Dropped, g.Listeners()[0].Dropped, "after Close")
}
