package netx

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// A connection that outlives its listener, and the policy of that, is held to the
// byte budget of the listener that has taken over, however often one has.
func TestReloadKeepsBytesLimited(t *testing.T) {
	const budget = 1000
	limited := func(name string) policy.Policy {
		return policy.Policy{
			Name:    name,
			Packets: tokenbucket.Limit{Capacity: unlimited},
			Bytes:   &tokenbucket.Limit{Capacity: budget, RefillPerSecond: 1e-6},
		}
	}
	e, err := engine.New(engine.Config{Policies: []policy.Policy{limited("old"), limited("new")}, Load: engine.NoLoad})
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	under := func(policy string, i int) []ListenerConfig {
		l := changed(tcpTo("t", Echo), i)
		l.TCP.OnLimit = CloseConn
		id, ok := e.Policy(policy)
		require.True(t, ok)
		l.Policy = id
		return []ListenerConfig{l}
	}
	g, err := StartGateway(GatewayConfig{Engine: e, Listeners: under("old", 0)})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, g.Close()) })
	c := dialTCP(t, g.Addrs()[0].String())
	require.True(t, echoes(c))
	require.NoError(t, g.Reload(under("old", 1), time.Hour))
	require.NoError(t, g.Reload(under("new", 2), time.Hour))
	require.NoError(t, e.SetPolicies(policy.Policy{}, []policy.Policy{limited("new")}))
	require.True(t, echoes(c))
	_, err = c.Write(make([]byte, 2*budget))
	require.NoError(t, err)
	got, _ := io.ReadAll(c)
	assert.LessOrEqual(t, len(got), budget)
}
