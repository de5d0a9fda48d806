package shard

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// What a full table answers a newcomer, and what it counts. C18.
func TestOnFull(t *testing.T) {
	rule := compile(t, policy.Policy{
		Packets:    tokenbucket.Limit{Capacity: 2, RefillPerSecond: 1},
		Escalation: policy.Escalation{MaxSoftViolations: 1, Lockout: time.Minute},
	})
	throttled := policy.Decision{Reason: policy.SoftThrottle, RetryAfter: time.Second}
	untracked := policy.Decision{Allowed: true, Credit: math.MaxUint16}
	denied := policy.Decision{Reason: policy.HardLockout, RetryAfter: time.Minute}
	for _, test := range []struct {
		onFull OnFull
		want   [4]policy.Decision // for four newcomers
		stats  Stats
	}{
		{EvictIdle, [4]policy.Decision{{Allowed: true, Credit: 1}, {Allowed: true}, throttled, throttled},
			Stats{Overflowed: 4, Rules: []Counts{{Allowed: 10 + 2, SoftThrottled: 2}}}},
		{Deny, [4]policy.Decision{denied, denied, denied, denied},
			Stats{Rules: []Counts{{Allowed: 10, HardLocked: 4}}}},
		{Allow, [4]policy.Decision{untracked, untracked, untracked, untracked},
			Stats{Overflowed: 4, Rules: []Counts{{Allowed: 10 + 4}}}},
	} {
		table := newTable(Config{Limit: 10, OnFull: test.onFull}, rule)
		for i := range 10 {
			decide(t, table, host(i), after(0))
		}
		for i, want := range test.want {
			require.Equal(t, want, decide(t, table, host(100+i), after(0)))
		}
		assert.Equal(t, test.stats, table.Stats())
		assert.Equal(t, 10, table.Len())
		assert.Equal(t, 10, table.Peak())
		require.True(t, decide(t, table, host(3), after(0)).Allowed, "who is tracked has a bucket of its own")
	}
}

// The byte budget in a full table: shared, or unlimited with Allow.
func TestOnFullTakeBytes(t *testing.T) {
	rule := compile(t, policy.Policy{Bytes: &tokenbucket.Limit{Capacity: 100, RefillPerSecond: 100}})
	for _, test := range []struct {
		onFull OnFull
		want   [2]int64
	}{
		{EvictIdle, [2]int64{80, 20}},
		{Deny, [2]int64{80, 20}},
		{Allow, [2]int64{80, 80}},
	} {
		table := newTable(Config{Limit: 1, OnFull: test.onFull}, rule)
		table.Decide(host(0), after(0), 1)
		for i, want := range test.want {
			took, wait, ok := table.TakeBytes(host(1+i), after(0), 80)
			require.True(t, ok)
			assert.Equal(t, want, took)
			assert.Equal(t, want < 80, wait == 600*time.Millisecond, "%v", wait)
		}
		assert.Equal(t, 1, table.Len())
	}
}

// Each rule has an overflow bucket of its own, and its lockouts are none.
func TestOverflowOfEachRule(t *testing.T) {
	locks := compile(t, policy.Policy{
		Packets:    tokenbucket.Limit{Capacity: 1, RefillPerSecond: 1},
		Escalation: policy.Escalation{MaxSoftViolations: 1},
	})
	table := newTable(Config{Limit: 1}, locks, soft(t, 3, 1))
	decide(t, table, host(0), after(0))
	for i := range 100 {
		require.Equal(t, i < 1, decide(t, table, host(1+i), after(0)).Allowed)
		require.Equal(t, i < 3, decide(t, table, under(host(1+i), 1), after(0)).Allowed)
	}
	assert.Zero(t, table.Stats().Lockouts)
	assert.True(t, decide(t, table, host(1), after(time.Second)).Allowed)
}

// Never above the limit, at no time, from however many goroutines; and exactly
// at it in the end. C15, 45.
func TestLimitHolds(t *testing.T) {
	const limit, workers, hosts = 100, 8, 4000
	for _, onFull := range []OnFull{EvictIdle, Deny, Allow} {
		table := newTable(Config{Shards: 16, Limit: limit, OnFull: onFull}, soft(t, 1, 1e9))
		var over atomic.Bool
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				for i := range hosts {
					now := after(time.Duration(i) * time.Millisecond)
					table.Decide(host(i*workers+w), now, 0)
					if i%100 == w {
						table.Sweep(w, 0, 10, now, time.Microsecond)
					}
					if table.Len() > limit {
						over.Store(true)
					}
				}
			})
		}
		wg.Wait()
		assert.False(t, over.Load())
		assert.Equal(t, limit, table.Peak())
		entries := 0
		for s := range table.Shards() {
			n, _ := table.Read(s, 0, make([]Row, 1000), after(0))
			entries += n
		}
		assert.Equal(t, table.Len(), entries)
		sum := table.Stats().Rules[0]
		assert.EqualValues(t, workers*hosts, sum.Allowed+sum.SoftThrottled+sum.HardLocked)
	}
}

// The limit is that of the whole table: one shard may have all of it. 60.
func TestSameShardFlood(t *testing.T) {
	const limit = 2048
	inShard7 := func(hash uint64) bool { return hash%256 == 7 }
	samePlace := func(hash uint64) bool { return hash%16 == 7 && hash>>52 == 0xabc }
	for _, test := range []struct {
		name  string
		aimed func(hash uint64) bool
		n     int
	}{
		{"shard", inShard7, 2 * limit},
		{"shard and place", samePlace, 24},
	} {
		t.Run(test.name, func(t *testing.T) {
			table := newTable(Config{Shards: 256, Limit: limit}, soft(t, 1, 1e-3))
			keys := keysWhere(test.n, test.aimed)
			fits := min(limit, test.n)
			for _, k := range keys {
				decide(t, table, k, after(0))
			}
			assert.Equal(t, fits, table.Len())
			for i, k := range keys {
				require.Equal(t, i < fits, tracked(table, k))
			}
			// Somebody from elsewhere has an answer too.
			elsewhere := keysWhere(1, func(hash uint64) bool { return hash%256 == 200 })[0]
			decide(t, table, elsewhere, after(0))
			assert.Equal(t, fits < limit, tracked(table, elsewhere))
			for s := range table.Shards() {
				table.Sweep(s, 0, 2*limit, after(time.Hour), time.Second)
			}
			assert.Zero(t, table.Len())
		})
	}
}

// A caller that read the time before another one, but came later, gets nothing
// for it and takes nothing away. 24, C32.
func TestLateCaller(t *testing.T) {
	table := newTable(Config{}, soft(t, 1, 1))
	require.True(t, decide(t, table, host(0), after(time.Second)).Allowed)
	for range 1000 {
		d := decide(t, table, host(0), after(0))
		require.Equal(t, policy.Decision{Reason: policy.SoftThrottle, RetryAfter: time.Second}, d)
		require.False(t, decide(t, table, host(0), after(time.Second)).Allowed)
	}
	require.True(t, decide(t, table, host(0), after(2*time.Second)).Allowed)
}

// The check of an idle entry and its removal are one: a packet between them is
// not lost. 50.
func TestSweepBesideDecisions(t *testing.T) {
	const rounds = 2000
	table := newTable(Config{}, soft(t, 1, 1e3))
	var wg sync.WaitGroup
	var allowed atomic.Int64
	for range 2 {
		wg.Go(func() {
			for i := range rounds {
				now := after(time.Duration(i) * time.Millisecond)
				if d, _ := table.Decide(host(0), now, 0); d.Allowed {
					allowed.Add(1)
				}
				table.Sweep(0, 0, 1, now, 0)
			}
		})
	}
	wg.Wait()
	// One token a millisecond, and the shard's clock goes on by no more than that.
	assert.LessOrEqual(t, allowed.Load(), int64(rounds))
}

// Pardon frees from the lockout and its growth and gives no tokens.
func TestPardon(t *testing.T) {
	rule := compile(t, policy.Policy{
		Packets:    tokenbucket.Limit{Capacity: 2, RefillPerSecond: 1},
		Escalation: policy.Escalation{MaxSoftViolations: 1, Lockout: time.Minute, Growth: 5},
	})
	table := newTable(Config{Limit: 1}, rule)
	require.False(t, table.Pardon(host(0), after(0)), "of somebody unknown")
	spend(t, table, host(0), after(0))
	decide(t, table, host(1), after(0))
	require.False(t, table.Pardon(host(1), after(0)), "of somebody in the overflow")
	require.True(t, table.Pardon(host(0), after(time.Second)))
	require.False(t, table.Pardon(host(0), after(time.Second)))
	require.Equal(t, policy.Decision{Allowed: true}, decide(t, table, host(0), after(time.Second)))
	require.Equal(t, time.Minute, decide(t, table, host(0), after(time.Second)).RetryAfter, "the first length again")
	require.True(t, table.Pardon(host(0), after(time.Second)))
	assert.EqualValues(t, 2, table.Stats().Lockouts)
	require.True(t, decide(t, table, host(1), after(10*time.Second)).Allowed)
	assert.True(t, tracked(table, host(1)), "a pardoned one gives its place away")
}

// What was decided without the table is counted where the rule is, and makes
// no entry.
func TestCount(t *testing.T) {
	table := newTable(Config{}, soft(t, 1, 1), soft(t, 1, 1))
	require.True(t, table.Count(under(host(0), 1), policy.Decision{Allowed: true}))
	require.True(t, table.Count(host(0), policy.Decision{Reason: policy.HardLockout}))
	require.False(t, table.Count(under(host(0), 2), policy.Decision{}))
	assert.Equal(t, []Counts{{HardLocked: 1}, {Allowed: 1}}, table.Stats().Rules)
	assert.Zero(t, table.Len())
}

// A saved state finds a place unless the table is full, whoever else has
// nothing to remember, and changes nobody who is there.
func TestRestore(t *testing.T) {
	rule := compile(t, policy.Policy{Packets: tokenbucket.Limit{Capacity: 10, RefillPerSecond: 1}})
	table := newTable(Config{Limit: 2}, rule)
	saved := policy.Saved{Packets: tokenbucket.Level{Tokens: 3}, LockedFor: time.Minute}
	decide(t, table, host(0), after(time.Hour))
	require.True(t, table.Restore(host(0), saved, after(time.Hour), 0), "it is there")
	require.True(t, decide(t, table, host(0), after(time.Hour)).Allowed)
	require.True(t, table.Restore(host(1), saved, after(0), 10*time.Second))
	require.False(t, table.Restore(host(2), saved, after(2*time.Hour), 0))
	require.Equal(t, 2, table.Len())
	row, ok := table.Find(host(1), after(0))
	require.True(t, ok)
	assert.EqualValues(t, 10, row.Rule.Tokens(&row.State, row.At), "10 s later it is full")
	assert.Equal(t, int64(time.Hour+50*time.Second), row.State.LockedUntil, "by the clock of the shard")
}

// The other callers may come late, too: time does not go back for them. 24
func TestLateCallers(t *testing.T) {
	rule := compile(t, policy.Policy{
		Packets:    tokenbucket.Limit{Capacity: 1, RefillPerSecond: 1},
		Bytes:      &tokenbucket.Limit{Capacity: 100, RefillPerSecond: 1},
		Escalation: policy.Escalation{MaxSoftViolations: 1, Lockout: time.Second},
	})
	table := newTable(Config{}, rule)
	spend(t, table, host(0), after(0))
	decide(t, table, host(1), after(time.Minute))
	require.False(t, table.Pardon(host(0), after(0)), "its lockout has ended long ago")
	took, _, _ := table.TakeBytes(host(2), after(0), 100)
	require.EqualValues(t, 100, took)
	took, wait, _ := table.TakeBytes(host(2), after(time.Minute), 100)
	require.Zero(t, took)
	require.Equal(t, 100*time.Second, wait, "nothing came in between")
}
