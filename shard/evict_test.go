package shard

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// defaultShard is what a shard of the default table holds, and more than chance
// ever gives one.
const defaultShard = 600

// spend takes all tokens of a host.
func spend(t *testing.T, table *Table, k Key, at policy.Instant) {
	t.Helper()
	for range 100 {
		if !decide(t, table, k, at).Allowed {
			return
		}
	}
	t.Fatal("it never ends")
}

// fill lets n hosts in at the start and makes all but one of them drained an
// hour later.
func fill(t *testing.T, table *Table, n, idle int) {
	t.Helper()
	for i := range n {
		decide(t, table, host(i), after(0))
	}
	for i := range n {
		if i != idle {
			spend(t, table, host(i), after(time.Hour))
		}
	}
}

// The only one that may go is found wherever it stands, and nobody else goes.
// C16, C17, 43, 44.
func TestEvictTheOnlyOne(t *testing.T) {
	for _, idle := range []int{0, 1, defaultShard / 2, defaultShard - 1} {
		table := newTable(Config{Limit: defaultShard}, soft(t, 2, 1e-3))
		fill(t, table, defaultShard, idle)
		now := after(time.Hour + time.Second)
		require.True(t, decide(t, table, host(defaultShard), now).Allowed)
		assert.True(t, tracked(table, host(defaultShard)))
		assert.EqualValues(t, 1, table.Stats().Evicted)

		decide(t, table, host(defaultShard+1), now)
		assert.False(t, tracked(table, host(defaultShard+1)))
		assert.EqualValues(t, 1, table.Stats().Evicted)
		assert.EqualValues(t, 1, table.Stats().Overflowed)
		for i := range defaultShard {
			require.Equal(t, i != idle, tracked(table, host(i)))
		}
	}
}

// A flood of newcomers never takes the place of one that is locked, drained,
// warned or on its way to a longer lockout, however long ago it was heard of.
// C16, C17, 41.
func TestNeverEvicted(t *testing.T) {
	rule := compile(t, policy.Policy{
		Packets: tokenbucket.Limit{Capacity: 4, RefillPerSecond: 1},
		Escalation: policy.Escalation{
			MaxSoftViolations: 2, Window: 10 * time.Minute, Lockout: time.Minute, Growth: 2, ForgetAfter: time.Hour,
		},
	})
	slow := soft(t, 4, 1e-6)
	table := newTable(Config{Limit: 12}, rule, slow)
	for i := range 4 {
		spend(t, table, host(i), after(0))              // warned for 10 minutes
		spend(t, table, host(4+i), after(0))            // locked, and remembered for another hour
		decide(t, table, host(4+i), after(0))           //
		decide(t, table, under(host(8+i), 1), after(0)) // short of a token for 11 days
	}
	tracks := func(rule, first int) (n int) {
		for i := range 4 {
			if tracked(table, under(host(first+i), rule)) {
				n++
			}
		}
		return n
	}
	for second := range 4 * 3600 {
		now := after(time.Duration(second) * time.Second)
		decide(t, table, host(1000+second), now)
		require.Equal(t, 12, table.Len())
		if second < 600 {
			require.Equal(t, 4, tracks(0, 0), "warned, after %d s", second)
		}
		if second < 3660 {
			require.Equal(t, 4, tracks(0, 4), "remembered, after %d s", second)
		}
		require.Equal(t, 4, tracks(1, 8), "drained, after %d s", second)
	}
	assert.Zero(t, tracks(0, 0)+tracks(0, 4), "in the end the others go")
}

// A round over all of the shard finds out when it is worth another one. What
// it found out does not hold for one whose denials were cleared before their
// window is over.
func TestEvictorHearsOfClearedDenials(t *testing.T) {
	window := policy.Escalation{MaxSoftViolations: 3, Window: time.Hour, Lockout: time.Second}
	t.Run("by a lockout", func(t *testing.T) {
		rule := compile(t, policy.Policy{
			Packets: tokenbucket.Limit{Capacity: 1, RefillPerSecond: 1}, Escalation: window,
		})
		table := newTable(Config{Limit: 1}, rule)
		spend(t, table, host(0), after(0))
		decide(t, table, host(1), after(time.Millisecond)) // finds nobody for an hour
		decide(t, table, host(0), after(2*time.Millisecond))
		require.Equal(t, policy.HardLockout, decide(t, table, host(0), after(2*time.Millisecond)).Reason)
		decide(t, table, host(1), after(time.Second))
		require.False(t, tracked(table, host(1)))
		decide(t, table, host(1), after(time.Second+2*time.Millisecond))
		require.True(t, tracked(table, host(1)))
	})
	t.Run("by a success", func(t *testing.T) {
		window.ResetOnSuccess = true
		rule := compile(t, policy.Policy{
			Packets: tokenbucket.Limit{Capacity: 1, RefillPerSecond: 1}, Escalation: window,
		})
		table := newTable(Config{Limit: 1}, rule)
		spend(t, table, host(0), after(0))
		decide(t, table, host(1), after(time.Millisecond)) // finds nobody for an hour
		require.True(t, decide(t, table, host(0), after(time.Second)).Allowed)
		decide(t, table, host(1), after(2*time.Second-1))
		require.False(t, tracked(table, host(1)))
		decide(t, table, host(1), after(2*time.Second))
		require.True(t, tracked(table, host(1)))
	})
}

// A newcomer looks at a bounded number of entries, and where that is not the
// whole shard the next one goes on from there.
func TestEvictGoesOn(t *testing.T) {
	const size, idle = 5 * evictBudget, 4*evictBudget + 1
	table := newTable(Config{Limit: size}, soft(t, 2, 1e-3))
	fill(t, table, size, idle)
	for newcomer := range 5 {
		require.True(t, tracked(table, host(idle)))
		decide(t, table, host(size+newcomer), after(time.Hour+time.Second))
		require.Equal(t, newcomer == 4, tracked(table, host(size+newcomer)))
	}
	assert.False(t, tracked(table, host(idle)))
}

// A flood of newcomers pays for one round over the shard and then for none,
// until the first entry may have nothing to be remembered by.
func TestEvictorRests(t *testing.T) {
	table := newTable(Config{Limit: 100}, soft(t, 2, 1))
	for i := range 100 {
		spend(t, table, host(i), after(time.Duration(i)*time.Millisecond))
	}
	v := &table.shards[0].evictor
	now := after(99 * time.Millisecond)
	decide(t, table, host(1000), now)
	require.Equal(t, int64(2*time.Second), v.notUntil, "when the first of them is full")
	v.hand = 50
	for i := range 1000 {
		decide(t, table, host(1001+i), now)
	}
	require.EqualValues(t, 50, v.hand)
	require.Zero(t, table.Stats().Evicted)
	decide(t, table, host(3000), after(2*time.Second))
	require.EqualValues(t, 1, table.Stats().Evicted)
	require.False(t, tracked(table, host(0)))
}

// What is cleared in the middle of a round is not lost to its end.
func TestEvictorHearsMidway(t *testing.T) {
	const size = 2 * evictBudget
	rule := compile(t, policy.Policy{
		Packets:    tokenbucket.Limit{Capacity: 1, RefillPerSecond: 1},
		Escalation: policy.Escalation{MaxSoftViolations: 2, Window: time.Hour, Lockout: 10 * time.Second},
	})
	table := newTable(Config{Limit: size}, rule)
	for i := range size {
		spend(t, table, host(i), after(0))
	}
	v := &table.shards[0].evictor
	decide(t, table, host(size), after(0)) // the first half of a round
	require.EqualValues(t, evictBudget, v.seen)
	now := after(time.Second / 2)
	require.Equal(t, policy.HardLockout, decide(t, table, host(0), now).Reason)
	decide(t, table, host(size), now) // the second
	require.Equal(t, now.Now+int64(10*time.Second), v.notUntil)
	decide(t, table, host(size), after(11*time.Second))
	require.True(t, tracked(table, host(size)))
	require.False(t, tracked(table, host(0)))
}

// Room that another shard made lets in an entry that may be gone before those
// that the evictor knows of.
func TestEvictorHearsOfNewcomers(t *testing.T) {
	shardOf := func(k Key) uint64 { return k.hash(testSeed) % 2 }
	here := keysWhere(3, func(hash uint64) bool { return hash%2 == 0 })
	var there, fast Key // under the rule that refills in a second
	for i := 1000; there == (Key{}) || fast == (Key{}); i++ {
		if k := under(host(i), 1); shardOf(k) == 0 {
			fast = k
		} else {
			there = k
		}
	}
	table := newTable(Config{Shards: 2, Limit: 2}, soft(t, 2, 1e-3), soft(t, 2, 1))
	decide(t, table, here[0], after(0))
	decide(t, table, there, after(0))
	decide(t, table, here[1], after(time.Second)) // finds nobody for a quarter of an hour
	require.False(t, tracked(table, here[1]))

	table.Sweep(1, 0, 10, after(2*time.Second), 0)
	decide(t, table, fast, after(2*time.Second))
	require.True(t, tracked(table, fast))
	decide(t, table, here[2], after(4*time.Second))
	require.True(t, tracked(table, here[2]))
	require.False(t, tracked(table, fast))
}
