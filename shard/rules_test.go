package shard

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// Time that has gone by is worth what the old rule said, time to come what the
// new one says. C98.
func TestSetRulesSettles(t *testing.T) {
	table := newTable(Config{}, soft(t, 100, 10))
	k := host(0)
	spend100 := func(at policy.Instant) (n int) {
		for decide(t, table, k, at).Allowed {
			n++
		}
		return n
	}
	require.Equal(t, 100, spend100(after(0)))
	table.SetRules([]*policy.Rule{soft(t, 100, 1)}, after(2*time.Second))
	require.Equal(t, 20, spend100(after(2*time.Second)), "2 s at 10/s")
	require.Equal(t, 3, spend100(after(5*time.Second)), "3 s at 1/s")

	table.SetRules([]*policy.Rule{soft(t, 1000, 1)}, after(5*time.Second))
	require.Zero(t, spend100(after(5*time.Second)), "a larger capacity adds nothing")
	require.Equal(t, 500, spend100(after(505*time.Second)), "but has room for more")

	table.SetRules([]*policy.Rule{soft(t, 7, 1)}, after(605*time.Second))
	require.Equal(t, 7, spend100(after(605*time.Second)), "a smaller one has less")
}

// A shard that is later than the new rules by its clock goes by its clock.
func TestSetRulesLate(t *testing.T) {
	table := newTable(Config{Limit: 1}, soft(t, 10, 1))
	tracked, overflow := host(0), host(1)
	spend(t, table, tracked, after(time.Minute))
	spend(t, table, overflow, after(time.Minute))
	table.SetRules([]*policy.Rule{soft(t, 20, 1)}, after(0))
	for _, at := range []time.Duration{time.Minute, 61 * time.Second} {
		for _, k := range []Key{tracked, overflow} {
			assert.Equal(t, at > time.Minute, decide(t, table, k, after(at)).Allowed, "at %v", at)
		}
	}
}

// Lockouts keep their end and their growth, windows their count. C43.
func TestSetRulesKeepsLockouts(t *testing.T) {
	withLockout := func(d time.Duration) *policy.Rule {
		return compile(t, policy.Policy{
			Packets:    tokenbucket.Limit{Capacity: 1, RefillPerSecond: 1},
			Escalation: policy.Escalation{MaxSoftViolations: 2, Lockout: d, Growth: 2, Window: time.Minute},
		})
	}
	table := newTable(Config{}, withLockout(3*time.Minute))
	for range 3 {
		decide(t, table, host(0), after(0))
	}
	spend(t, table, host(1), after(0)) // one denial
	table.SetRules([]*policy.Rule{withLockout(time.Minute)}, after(time.Second))
	require.True(t, decide(t, table, host(1), after(time.Second)).Allowed)
	require.Equal(t, policy.HardLockout, decide(t, table, host(1), after(time.Second)).Reason)
	require.Equal(t, policy.Decision{Reason: policy.HardLockout, RetryAfter: 179 * time.Second},
		decide(t, table, host(0), after(time.Second)))
	require.Equal(t, policy.HardLockout, decide(t, table, host(0), after(3*time.Minute-1)).Reason)
	require.True(t, decide(t, table, host(0), after(3*time.Minute)).Allowed)
	decide(t, table, host(0), after(3*time.Minute))
	require.Equal(t, policy.Decision{Reason: policy.HardLockout, RetryAfter: 2 * time.Minute},
		decide(t, table, host(0), after(3*time.Minute)), "the second in a row")
}

// A byte budget that comes starts at its Initial, one that goes is gone, one
// that stays keeps its tokens.
func TestSetRulesBytes(t *testing.T) {
	bytes := func(capacity, initial int64) *policy.Rule {
		return compile(t, policy.Policy{
			Packets:    tokenbucket.Limit{Capacity: 1000, RefillPerSecond: 1},
			Bytes:      &tokenbucket.Limit{Capacity: capacity, RefillPerSecond: 1e-3, Initial: initial},
			Escalation: policy.Escalation{Disabled: true},
		})
	}
	allowed := func(table *Table, n int64) bool {
		d, ok := table.Decide(host(0), after(0), n)
		require.True(t, ok)
		return d.Allowed
	}
	table := newTable(Config{}, soft(t, 1000, 1))
	require.True(t, allowed(table, 1<<40))
	table.SetRules([]*policy.Rule{bytes(100, 60)}, after(0))
	require.False(t, allowed(table, 61))
	require.True(t, allowed(table, 50))
	table.SetRules([]*policy.Rule{bytes(200, 0)}, after(0))
	require.False(t, allowed(table, 11))
	require.True(t, allowed(table, 10))
	table.SetRules([]*policy.Rule{soft(t, 1000, 1)}, after(0))
	require.True(t, allowed(table, 1<<40))
	table.SetRules([]*policy.Rule{bytes(100, 60)}, after(0))
	require.True(t, allowed(table, 60))
	require.False(t, allowed(table, 1))
}

// What was remembered under a rule that is no more is forgotten, and its place
// is free.
func TestSetRulesWithout(t *testing.T) {
	table := newTable(Config{Limit: 10}, soft(t, 1, 1), soft(t, 1, 1e-3))
	for i := range 10 {
		decide(t, table, under(host(i), i%2), after(0))
	}
	table.SetRules([]*policy.Rule{soft(t, 1, 1), nil}, after(0))
	require.Equal(t, 5, table.Len())
	_, ok := table.Decide(under(host(1), 1), after(0), 0)
	require.False(t, ok)
	require.False(t, table.Count(under(host(1), 1), policy.Decision{}))
	require.False(t, table.Restore(under(host(1), 1), policy.Saved{}, after(0), 0))
	_, _, ok = table.TakeBytes(under(host(1), 1), after(0), 1)
	require.False(t, ok)

	table.SetRules([]*policy.Rule{soft(t, 1, 1), soft(t, 1, 1e-3)}, after(0))
	require.True(t, decide(t, table, under(host(1), 1), after(0)).Allowed, "as if never seen")
	require.Equal(t, 6, table.Len())
	assert.Zero(t, table.Stats().Cleaned, "the sweep freed none of them")
}

// Rules change while a full table decides: nothing is admitted beyond what all
// of the rules together could have, the cap holds, and every decision counts.
func TestSetRulesMeanwhile(t *testing.T) {
	const limit, workers, packets = 64, 4, 3000
	rules := [][]*policy.Rule{
		{soft(t, 3, 1e-6), soft(t, 3, 1e-6)},
		{soft(t, 5, 1e-6), nil},
		{compile(t, policy.Policy{
			Packets:    tokenbucket.Limit{Capacity: 2, RefillPerSecond: 1e-6},
			Bytes:      &tokenbucket.Limit{Capacity: 9, RefillPerSecond: 1e-6},
			Escalation: policy.Escalation{MaxSoftViolations: 1},
		}), soft(t, 3, 1e-6)},
	}
	table := newTable(Config{Shards: 8, Limit: limit}, rules[0]...)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for w := range workers {
		wg.Go(func() {
			for i := range packets {
				k := under(host((i*workers+w)%(2*limit)), i%2)
				table.Decide(k, after(0), 1)
				table.TakeBytes(k, after(0), 1)
				if table.Len() > limit {
					t.Errorf("%d entries", table.Len())
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				table.SetRules(rules[i%len(rules)], after(0))
			}
		}
	}()
	wg.Wait()
	close(stop)
	<-done
	table.SetRules(rules[1], after(0))
	entries := 0
	for s := range table.Shards() {
		rows := make([]Row, 1000)
		n, next := table.Read(s, 0, rows, after(0))
		require.Equal(t, Done, next)
		entries += n
	}
	assert.Equal(t, table.Len(), entries)
	first := table.Stats().Rules[0]
	assert.EqualValues(t, workers*packets/2, first.Allowed+first.SoftThrottled+first.HardLocked)
}
