package engine_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

func named(name string, p policy.Policy) policy.Policy {
	p.Name = name
	return p
}

// allowed counts what passes before the first denial, at most n.
func allowed(e *engine.Engine, id engine.PolicyID, n int) int {
	for i := range n {
		if !e.EvaluatePolicy(client, id).Allowed {
			return i
		}
	}
	return n
}

// 34: one endpoint has a bucket of its own under each policy.
func TestPoliciesAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, engine.Config{Default: rate(3, 1), Policies: []policy.Policy{
			named("a", rate(5, 1)), named("b", rate(7, 1)),
		}})
		a, ok := e.Policy("a")
		require.True(t, ok)
		b, ok := e.Policy("b")
		require.True(t, ok)
		def, ok := e.Policy("default")
		require.True(t, ok)
		require.Zero(t, def)
		require.Equal(t, []int{3, 5, 7}, []int{allowed(e, 0, 10), allowed(e, a, 10), allowed(e, b, 10)})
		require.Equal(t, 3, e.Report().TrackedEndpoints)
	})
}

func TestUnknownPolicy(t *testing.T) {
	e := newEngine(t, engine.Config{})
	_, ok := e.Policy("nobody")
	require.False(t, ok)
	for _, id := range []engine.PolicyID{1, 65534, 65535, 65536, 1<<32 - 1} {
		require.Equal(t, policy.Decision{Reason: policy.HardLockout}, e.EvaluatePolicy(client, id))
		require.False(t, e.LimitsBytes(id))
	}
	r := e.Report()
	require.EqualValues(t, 5, r.Invalid)
	require.EqualValues(t, 5, r.Evaluated)
	require.Zero(t, r.TrackedEndpoints)
}

func TestPolicyNames(t *testing.T) {
	for _, c := range []struct {
		named []policy.Policy
		want  string
	}{
		{[]policy.Policy{{Name: "a"}, {Name: "a"}}, `Policies[1]: Name: there is another policy "a"`},
		{[]policy.Policy{{Name: "default"}}, `Policies[0]: Name: there is another policy "default"`},
		{[]policy.Policy{{}}, "Policies[0]: Name: a named policy needs one"},
		{[]policy.Policy{named("a", rate(-1, 1))}, `policy "a": Packets.Capacity: -1 is outside`},
	} {
		_, err := engine.New(engine.Config{Policies: c.named})
		require.ErrorContains(t, err, c.want)
		e := newEngine(t, engine.Config{Default: rate(1, 1)})
		require.ErrorContains(t, e.SetPolicies(policy.Policy{}, c.named), c.want)
		require.EqualValues(t, 1, e.Report().CapacityTokens, "nothing changed")
	}
}

// C98: the same policies again change nothing.
func TestSetSamePolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policy.Policy{
			Packets: tokenbucket.Limit{Capacity: 5, RefillPerSecond: 1},
			Bytes:   &tokenbucket.Limit{Capacity: 1000, RefillPerSecond: 1},
		}
		e := newEngine(t, engine.Config{Default: p})
		for range 6 {
			e.Evaluate(client)
		}
		time.Sleep(time.Second/2 + 1)
		before, _ := e.Lookup(client)
		same := p
		bytes := *p.Bytes
		same.Bytes = &bytes
		require.NoError(t, e.SetPolicies(same, nil))
		after, _ := e.Lookup(client)
		require.Equal(t, before, after)
		require.Equal(t, time.Second/2-1, e.Evaluate(client).RetryAfter)
	})
}

// Elapsed time settles at the old rate, the rest comes at the new one.
func TestSetPoliciesSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, engine.Config{Default: rate(10, 1)})
		require.Equal(t, 10, allowed(e, 0, 20))
		time.Sleep(3*time.Second + time.Second/2)
		require.NoError(t, e.SetPolicies(rate(10, 100), nil))
		require.Equal(t, 3, allowed(e, 0, 20), "3.5 s at 1/s")
		require.Equal(t, 5*time.Millisecond, e.Evaluate(client).RetryAfter, "half a token at 100/s")
	})
}

func TestSetPoliciesCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, engine.Config{Default: rate(10, 1e-6)})
		require.Equal(t, 4, allowed(e, 0, 4))
		require.NoError(t, e.SetPolicies(rate(100, 1e-6), nil))
		require.Equal(t, 6, allowed(e, 0, 200), "a larger capacity adds no tokens")

		e = newEngine(t, engine.Config{Default: rate(10, 1e-6)})
		require.Equal(t, 1, allowed(e, 0, 1))
		require.NoError(t, e.SetPolicies(rate(5, 1e-6), nil))
		require.Equal(t, 5, allowed(e, 0, 200), "a smaller one is all there is")
	})
}

// C43
func TestSetPoliciesKeepsLockouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := lockedOut(t, client)
		time.Sleep(10 * time.Second)
		p := rate(1000, 1000)
		p.Escalation = policy.Escalation{Lockout: time.Second, MaxSoftViolations: 100}
		require.NoError(t, e.SetPolicies(p, nil))
		require.Equal(t, policy.Decision{Reason: policy.HardLockout, RetryAfter: 50 * time.Second}, e.Evaluate(client))
	})
}

func TestSetPoliciesByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := named("a", rate(3, 1e-6)), named("b", rate(4, 1e-6))
		e := newEngine(t, engine.Config{Policies: []policy.Policy{a, b}})
		idA, _ := e.Policy("a")
		idB, _ := e.Policy("b")
		require.Equal(t, []int{3, 4}, []int{allowed(e, idA, 9), allowed(e, idB, 9)})

		require.NoError(t, e.SetPolicies(policy.Policy{}, []policy.Policy{b}))
		require.Equal(t, policy.Decision{Reason: policy.HardLockout}, e.EvaluatePolicy(client, idA))
		require.Zero(t, allowed(e, idB, 9), "the other one has not moved")
		_, ok := e.Policy("a")
		require.False(t, ok)
		require.Equal(t, 1, e.Report().TrackedEndpoints)

		require.NoError(t, e.SetPolicies(policy.Policy{}, []policy.Policy{named("c", rate(1, 1)), a, b}))
		again, ok := e.Policy("a")
		require.True(t, ok)
		require.Equal(t, idA, again)
		require.Equal(t, 3, allowed(e, idA, 9), "forgotten while there was no such policy")
		require.Zero(t, allowed(e, idB, 9))
	})
}

// A policy that becomes the default keeps its name, and so its id, its buckets
// and its lockouts. It is one policy in the report.
func TestSetPoliciesNamedBecomesDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lobby, game := named("lobby", rate(3, 1e-6)), named("game", rate(5, 1e-6))
		e := newEngine(t, engine.Config{Default: lobby, Policies: []policy.Policy{game}})
		id, _ := e.Policy("game")
		require.Equal(t, 1, allowed(e, 0, 1))
		require.Equal(t, 2, allowed(e, id, 2))

		require.NoError(t, e.SetPolicies(game, []policy.Policy{lobby}))
		now, ok := e.Policy("game")
		require.True(t, ok)
		require.Zero(t, now, "the id of the default")
		require.Equal(t, 3, allowed(e, id, 9))
		require.Equal(t, 2, allowed(e, 0, 9))
		r := e.Report()
		require.Len(t, r.Policies, 2)
		require.Equal(t, "game", r.Policies[0].Name)
		require.EqualValues(t, 8, r.Policies[0].Allowed, "under either id")
		require.EqualValues(t, 8, r.Allowed)

		require.NoError(t, e.SetPolicies(lobby, []policy.Policy{game}))
		require.Zero(t, allowed(e, id, 9))
		require.ErrorContains(t, e.SetPolicies(named("game", rate(-1, 1)), nil), "Packets.Capacity")
		require.NoError(t, e.SetPolicies(lobby, nil))
		require.Equal(t, policy.HardLockout, e.EvaluatePolicy(client, id).Reason, "now there is none of the name")
	})
}

func TestSetPoliciesByteBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, engine.Config{Default: rate(100, 1)})
		require.False(t, e.LimitsBytes(0))
		send := func(n int) policy.Decision {
			out := make([]policy.Decision, 1)
			e.EvaluateBatch([]engine.Request{{Endpoint: client, Bytes: n}}, out)
			return out[0]
		}
		require.True(t, send(1<<20).Allowed)
		p := rate(100, 1)
		p.Bytes = &tokenbucket.Limit{Capacity: 1000, RefillPerSecond: 100}
		require.NoError(t, e.SetPolicies(p, nil))
		require.True(t, e.LimitsBytes(0))
		require.True(t, send(900).Allowed)
		require.Equal(t, time.Second, send(200).RetryAfter)
		require.NoError(t, e.SetPolicies(rate(100, 1), nil))
		require.True(t, send(1<<20).Allowed)
	})
}

// Policies come and go while a full table decides.
func TestSetPoliciesUnderTraffic(t *testing.T) {
	p := policy.Policy{Escalation: policy.Escalation{MaxSoftViolations: 1}}
	e := newEngine(t, engine.Config{
		Default: p, Shards: 16, MaxTrackedEndpoints: 50, Policies: []policy.Policy{named("a", rate(5, 1))},
	})
	list := addresses(200)
	id, _ := e.Policy("a")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					e.EvaluatePolicy(list[i%len(list)], id*engine.PolicyID(i%2))
					e.TakeBytes(list[i%len(list)], id, 100)
				}
			}
		})
	}
	for i := range 200 {
		p.Packets.Capacity = int64(i%7 + 1)
		p.Bytes = nil
		if i%3 == 0 {
			p.Bytes = &tokenbucket.Limit{Capacity: 1000, RefillPerSecond: 1000}
		}
		var others []policy.Policy
		if i%2 == 0 {
			others = append(others, named("a", rate(int64(i+1), 1)))
		}
		assert.NoError(t, e.SetPolicies(p, others))
		assert.LessOrEqual(t, e.Report().TrackedEndpoints, 50)
	}
	close(stop)
	wg.Wait()
	r := e.Report()
	assert.Equal(t, r.Evaluated, r.Allowed+r.SoftThrottled+r.HardLocked)
	assert.LessOrEqual(t, r.PeakTrackedEndpoints, 50)
}
