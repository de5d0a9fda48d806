package shard

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// Sweep sees as many slots as its budget allows, and goes on where it was told.
func TestSweepSteps(t *testing.T) {
	table := newTable(Config{}, soft(t, 1, 1))
	for i := range 100 {
		decide(t, table, host(i), after(0))
	}
	now := after(time.Minute)
	for i, step := range []struct{ from, budget, next, left int }{
		{0, 10, 10, 90},
		{0, 10, 10, 90}, // again
		{10, 50, 60, 40},
		{60, 40, Done, 0},
		{100, 1, Done, 0},
		{0, 1000, Done, 0},
	} {
		require.Equal(t, step.next, table.Sweep(0, step.from, step.budget, now, time.Second), "step %d", i)
		require.Equal(t, step.left, table.Len(), "step %d", i)
	}
	assert.EqualValues(t, 100, table.Stats().Cleaned)
	assert.Equal(t, 100, table.Peak())
	assert.Equal(t, Done, newTable(Config{}).Sweep(0, 0, 10, now, time.Second), "an empty shard")
}

// Who has been idle for the stale time goes, and not before; who has something
// to be remembered by stays as long as that lasts. 41, C20.
func TestSweepStale(t *testing.T) {
	rule := compile(t, policy.Policy{
		Packets: tokenbucket.Limit{Capacity: 2, RefillPerSecond: 1},
		Escalation: policy.Escalation{
			MaxSoftViolations: 2, Window: 20 * time.Second, Lockout: time.Minute, Growth: 2, ForgetAfter: time.Minute,
		},
	})
	for _, test := range []struct {
		name    string
		packets int           // at 0
		gone    time.Duration // with 10 s of stale time
	}{
		{"one token short for 1 s", 1, 11 * time.Second},
		{"drained for 2 s", 2, 12 * time.Second},
		{"warned for 20 s", 3, 20 * time.Second},
		{"locked for 1 min and remembered for another", 4, 2 * time.Minute},
		{"hits do not extend it", 1000, 2 * time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			table := newTable(Config{}, rule)
			for range test.packets {
				decide(t, table, host(0), after(0))
			}
			table.Sweep(0, 0, 1, after(test.gone-1), 10*time.Second)
			assert.Equal(t, 1, table.Len(), "1 ns before")
			table.Sweep(0, 0, 1, after(test.gone), 10*time.Second)
			assert.Zero(t, table.Len())
		})
	}
}

// A sweep whose time is before that of the last packet frees nobody. 27.
func TestSweepLate(t *testing.T) {
	table := newTable(Config{}, soft(t, 10, 1))
	decide(t, table, host(0), after(time.Hour))
	table.Sweep(0, 0, 1, after(0), time.Second)
	assert.Equal(t, 1, table.Len())
}

// Read walks in steps as large as there is room, and gives everybody once.
func TestReadSteps(t *testing.T) {
	table := newTable(Config{Shards: 4}, soft(t, 1, 1), soft(t, 5, 1))
	want := map[Key]bool{}
	for i := range 300 {
		k := under(host(i), i%2)
		decide(t, table, k, after(0))
		want[k] = true
	}
	seen := map[Key]bool{}
	rows := make([]Row, 7)
	for s := range table.Shards() {
		for from := 0; from != Done; {
			n, next := table.Read(s, from, rows, after(0))
			require.True(t, next == Done || next-from == len(rows))
			for _, row := range rows[:n] {
				require.False(t, seen[row.Key])
				seen[row.Key] = true
				tokens := int64(row.Key.Policy) * 4
				require.Equal(t, tokens, row.Rule.Tokens(&row.State, row.At))
			}
			from = next
		}
	}
	assert.Equal(t, want, seen)
}

// A row is a copy: what happens later is not in it.
func TestRowIsACopy(t *testing.T) {
	table := newTable(Config{}, soft(t, 2, 1e-3))
	decide(t, table, host(0), after(0))
	row, ok := table.Find(host(0), after(0))
	require.True(t, ok)
	decide(t, table, host(0), after(0))
	decide(t, table, host(0), after(0))
	assert.EqualValues(t, 1, row.Rule.Tokens(&row.State, row.At))
	assert.Zero(t, row.State.Denied)
	_, ok = table.Find(host(1), after(0))
	assert.False(t, ok)
	assert.Equal(t, 1, table.Len(), "to ask makes no entry")
}

// A row has what was counted, and is to be read by the clock of its shard.
func TestRow(t *testing.T) {
	table := newTable(Config{}, compile(t, policy.Policy{Packets: tokenbucket.Limit{Capacity: 1, RefillPerSecond: 1}}))
	spend(t, table, host(0), after(time.Minute))
	decide(t, table, host(0), after(time.Minute))
	found, ok := table.Find(host(0), after(0))
	require.True(t, ok)
	rows := make([]Row, 1)
	n, _ := table.Read(0, 0, rows, after(0))
	require.Equal(t, 1, n)
	require.Equal(t, found, rows[0])
	assert.Equal(t, after(time.Minute), found.At)
	assert.EqualValues(t, 2, found.State.Denied)
	assert.Equal(t, 2, found.Rule.Violations(&found.History, found.At))
}
