package netx

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/policy"
)

// mute makes the name server one that never answers, and returns a channel that
// says how many ask it at the same time.
func mute(t *testing.T) (asking <-chan int64) {
	t.Helper()
	now, c := new(atomic.Int64), make(chan int64, 1000)
	was := net.DefaultResolver
	t.Cleanup(func() { net.DefaultResolver = was })
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		c <- now.Add(1)
		defer now.Add(-1)
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	return c
}

func named(upstreams ...string) (listeners []ListenerConfig) {
	for _, name := range upstreams {
		listeners = append(listeners, ListenerConfig{Name: name, Listen: loopback(0), Upstream: name + ".invalid.:1", UDP: UDPOptions{MaxSessions: 10}})
	}
	return listeners
}

// Whoever starts a gateway need not wait for a name server that does not answer,
// and names wait for it side by side.
func TestStartGivesUpLookingUp(t *testing.T) {
	asking := mute(t)
	ctx, giveUp := context.WithCancelCause(t.Context())
	why := errors.New("no more")
	go func() {
		for n := range asking {
			if n >= 3 {
				giveUp(why)
				return
			}
		}
	}()
	before := time.Now()
	_, err := StartGatewayContext(ctx, GatewayConfig{Engine: engineOf(t, policy.Policy{}), Listeners: named("a", "b", "c")})
	require.ErrorIs(t, err, why)
	assert.Less(t, time.Since(before), lookUpMost)
}

// A reload that waits for names ends with the gateway.
func TestCloseWhileLookingUp(t *testing.T) {
	asking := mute(t)
	g, err := StartGateway(GatewayConfig{Engine: engineOf(t, policy.Policy{}), Listeners: []ListenerConfig{{Name: "u", Listen: loopback(0), Upstream: Echo}}})
	require.NoError(t, err)
	reloaded := make(chan error, 1)
	go func() { reloaded <- g.Reload(named("a"), 0) }()
	<-asking
	before := time.Now()
	require.NoError(t, g.Close())
	require.ErrorIs(t, <-reloaded, net.ErrClosed)
	assert.Less(t, time.Since(before), lookUpMost)
}
