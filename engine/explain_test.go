package engine_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// Whatever has happened to an endpoint, Explain tells what Evaluate then does,
// and changes nothing.
func TestExplainForetells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bytes := named("bytes", policy.Policy{
			Packets: tokenbucket.Limit{Capacity: 100, RefillPerSecond: 1},
			Bytes:   &tokenbucket.Limit{Capacity: 50, RefillPerSecond: 10},
		})
		locks := policy.Policy{
			Packets:    tokenbucket.Limit{Capacity: 3, RefillPerSecond: 1},
			Escalation: policy.Escalation{MaxSoftViolations: 3, Lockout: 10 * time.Second, Growth: 2},
		}
		e := newEngine(t, engine.Config{Default: locks, Policies: []policy.Policy{bytes, named("soft", rate(2, 0.1))}})
		for step := range 60 {
			for id := range 3 {
				x, ok := e.Explain(client, 7)
				require.True(t, ok)
				again, _ := e.Explain(client, 7)
				require.Equal(t, x, again, "asking changes nothing")
				var out [1]policy.Decision
				e.EvaluateBatch([]engine.Request{{Endpoint: client, Policy: engine.PolicyID(id), Bytes: 7}}, out[:])
				require.Equal(t, out[0], x.Policies[id].Next, "step %d, policy %d", step, id)
			}
			if step%7 == 0 {
				time.Sleep(time.Duration(step) * 300 * time.Millisecond)
			}
		}
		require.EqualValues(t, 180, e.Report().Evaluated)
	})
}

func TestExplain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policy.Policy{
			Packets:    tokenbucket.Limit{Capacity: 5, RefillPerSecond: 1},
			Bytes:      &tokenbucket.Limit{Capacity: 100, RefillPerSecond: 1},
			Escalation: policy.Escalation{MaxSoftViolations: 2, Lockout: time.Minute, Growth: 2},
		}
		e := newEngine(t, engine.Config{Default: p, Policies: []policy.Policy{named("other", rate(8, 1))}})
		_, ok := e.Explain(netip.AddrPort{}, 0)
		require.False(t, ok)
		_, ok = e.Explain(client, -1)
		require.False(t, ok)

		x, ok := e.Explain(client, 1)
		require.True(t, ok)
		require.Equal(t, engine.Explanation{Endpoint: "192.0.2.1", Policies: []engine.Standing{
			{EndpointReport: engine.EndpointReport{Endpoint: "192.0.2.1", Policy: "default", Tokens: 5},
				Capacity: 5, ByteTokens: 100, Bytes: 100, Next: policy.Decision{Allowed: true, Credit: 4}},
			{EndpointReport: engine.EndpointReport{Endpoint: "192.0.2.1", Policy: "other", Tokens: 8},
				Capacity: 8, Next: policy.Decision{Allowed: true, Credit: 7}},
		}}, x)
		require.Zero(t, e.Report().TrackedEndpoints, "explaining makes no entry")

		for range 7 {
			e.Evaluate(client)
		}
		x, _ = e.Explain(client, 1)
		require.Equal(t, engine.Standing{
			EndpointReport: engine.EndpointReport{Endpoint: "192.0.2.1", Policy: "default", LockedForMs: 60_000, Denied: 2},
			Tracked:        true, Capacity: 5, ByteTokens: 100, Bytes: 100, Lockouts: 1,
			Next: policy.Decision{Reason: policy.HardLockout, RetryAfter: time.Minute},
		}, x.Policies[0])
		require.False(t, x.Policies[1].Tracked)
		b, err := json.Marshal(x.Policies[0])
		require.NoError(t, err)
		require.Equal(t, strings.Fields("Endpoint Policy Tokens SoftViolations LockedForMs Denied Tracked Capacity ByteTokens Bytes Lockouts Next"), names(t, b))

		// What is listed decides, the longest prefix first, over a lockout too.
		require.NoError(t, e.Deny(prefix("192.0.0.0/8")))
		require.NoError(t, e.Ban(prefix("192.0.2.0/24"), time.Minute, "scanner"))
		require.NoError(t, e.Ban(prefix("192.0.2.0/31"), time.Second, "ends soon"))
		kinds := func() (list []string) {
			x, _ = e.Explain(client, 1)
			for _, l := range x.Lists {
				list = append(list, fmt.Sprintf("%s %s", l.Kind, l.Prefix))
			}
			return list
		}
		require.Equal(t, []string{"ban 192.0.2.0/31", "ban 192.0.2.0/24", "deny 192.0.0.0/8"}, kinds())
		require.Equal(t, time.Second, x.Policies[1].Next.RetryAfter)
		time.Sleep(time.Second)
		require.Equal(t, []string{"ban 192.0.2.0/24", "deny 192.0.0.0/8"}, kinds())
		require.NoError(t, e.Exempt(prefix("192.0.2.0/24")))
		require.Equal(t, []string{"exempt 192.0.2.0/24", "ban 192.0.2.0/24", "deny 192.0.0.0/8"}, kinds())
		require.True(t, x.Policies[0].Next.Allowed)
	})
}

// The default policy that was a named one before is explained once, unless
// somebody stands with it under both of its numbers.
func TestExplainADefaultWithTwoNumbers(t *testing.T) {
	e := newEngine(t, engine.Config{Default: rate(5, 1), Policies: []policy.Policy{named("a", rate(7, 1))}})
	id, _ := e.Policy("a")
	require.NoError(t, e.SetPolicies(named("a", rate(7, 1)), nil))
	x, _ := e.Explain(client, 0)
	require.Len(t, x.Policies, 1)
	e.EvaluatePolicy(client, id)
	x, _ = e.Explain(client, 0)
	require.Len(t, x.Policies, 2)
	assert.EqualValues(t, 7, x.Policies[0].Tokens)
	assert.EqualValues(t, 6, x.Policies[1].Tokens)
}

// C109, C120: the worst come first, however many there are.
func TestEndpoints(t *testing.T) {
	p := rate(1, 1e-6)
	p.Escalation = policy.Escalation{MaxSoftViolations: 100}
	e := newEngine(t, engine.Config{Default: p})
	for i := range 200 { // host i is denied (i*77)%200 times; the locked out are those with 100 and more
		for range (i*77)%200 + 1 {
			e.Evaluate(addressOf(i))
		}
	}
	for _, limit := range []int{-1, 0, 1, 2, 7, 99, 100, 101, 199, 200, 1000} {
		rows, tracked, lockedOut := e.Endpoints(limit)
		require.Equal(t, 200, tracked)
		require.Equal(t, 100, lockedOut)
		require.Len(t, rows, max(0, min(limit, 200)))
		for i, row := range rows {
			require.EqualValues(t, 199-i, row.Denied, "limit %d", limit)
			require.Equal(t, i < 100, row.LockedForMs > 0)
		}
	}
}
