package engine_test

import (
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

var client = netip.MustParseAddrPort("192.0.2.1:4000")

// newEngine is an engine without load adaptation that the test closes.
func newEngine(t testing.TB, c engine.Config) *engine.Engine {
	t.Helper()
	if c.Load == nil {
		c.Load = engine.NoLoad
	}
	e, err := engine.New(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

// rate is a policy with soft throttling only.
func rate(capacity int64, perSecond float64) policy.Policy {
	return policy.Policy{
		Packets:    tokenbucket.Limit{Capacity: capacity, RefillPerSecond: perSecond},
		Escalation: policy.Escalation{Disabled: true},
	}
}

func TestEvaluateDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, engine.Config{})
		for i := range 64 {
			require.Equal(t, policy.Decision{Allowed: true, Credit: uint16(63 - i)}, e.Evaluate(client))
		}
		d := e.Evaluate(client)
		require.Equal(t, policy.Decision{Reason: policy.SoftThrottle, RetryAfter: 31_250 * time.Microsecond}, d)
		time.Sleep(d.RetryAfter - time.Nanosecond)
		require.False(t, e.Evaluate(client).Allowed)
		time.Sleep(time.Nanosecond)
		require.True(t, e.Evaluate(client).Allowed)
		for range 2 {
			require.Equal(t, policy.SoftThrottle, e.Evaluate(client).Reason)
		}
		require.Equal(t, policy.Decision{Reason: policy.HardLockout, RetryAfter: 30 * time.Second}, e.Evaluate(client))
		time.Sleep(10 * time.Second)
		require.Equal(t, policy.Decision{Reason: policy.HardLockout, RetryAfter: 20 * time.Second}, e.Evaluate(client))
		time.Sleep(20 * time.Second)
		require.Equal(t, policy.Decision{Allowed: true, Credit: 63}, e.Evaluate(client))
	})
}

// N goroutines on one new endpoint of capacity C without refill: exactly C
// allowed, for one endpoint after the other. C24, C35, 51.
func TestEvaluateFirstPacketsShareOneBucket(t *testing.T) {
	e := newEngine(t, engine.Config{Default: rate(10, 1e-6)})
	for host := range 100 {
		ep := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(host)}), 1)
		var allowed atomic.Int64
		var wg sync.WaitGroup
		start := make(chan struct{})
		for range 64 {
			wg.Go(func() {
				<-start
				if e.Evaluate(ep).Allowed {
					allowed.Add(1)
				}
			})
		}
		close(start)
		wg.Wait()
		require.EqualValues(t, 10, allowed.Load())
	}
}

// 55
func TestClose(t *testing.T) {
	e := newEngine(t, engine.Config{})
	require.True(t, e.Evaluate(client).Allowed)
	require.NoError(t, e.Close())
	require.NoError(t, e.Close())
	require.Equal(t, policy.Decision{Reason: policy.HardLockout}, e.Evaluate(client))
	assert.EqualValues(t, 1, e.Report().Evaluated)
	require.ErrorIs(t, e.Ban(netip.MustParsePrefix("192.0.2.0/24"), 0, ""), net.ErrClosed)
	require.ErrorIs(t, e.Exempt(), net.ErrClosed)
	require.ErrorIs(t, e.SetPolicies(policy.Policy{}, nil), net.ErrClosed)
}

// An engine has one goroutine, whoever asks it, and none after Close. 56, 57
func TestGoroutines(t *testing.T) {
	const engines = 5
	synctest.Test(t, func(t *testing.T) {
		list := make([]*engine.Engine, engines)
		for i := range list {
			list[i] = newEngine(t, engine.Config{Shards: 4, CleanupInterval: time.Second, StaleAfter: time.Second})
		}
		for g := range 8 {
			go func() {
				for i := range 200 {
					list[i%engines].Evaluate(addressOf(i * g))
					time.Sleep(100 * time.Millisecond)
				}
			}()
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(t, engines, janitors())
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, engines, janitors())
		for _, e := range list {
			require.Positive(t, e.Report().TotalCleaned)
			require.NoError(t, e.Close())
		}
		require.Zero(t, janitors())
	})
}

// janitors counts the goroutines of all engines; the tests before have closed theirs.
func janitors() int {
	stacks := make([]byte, 1<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "engine.(*Engine).janitor(")
}
