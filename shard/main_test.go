package shard

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// testSeed is the seed of the tables of these tests, so that keys can be made
// to meet.
const testSeed = 0x9e3779b97f4a7c15

// compile returns the rule of a policy.
func compile(t testing.TB, p policy.Policy) *policy.Rule {
	t.Helper()
	r, err := p.Compile()
	require.NoError(t, err)
	return r
}

// soft is a rule of so many packets and so many a second, without lockouts.
func soft(t testing.TB, capacity int64, perSecond float64) *policy.Rule {
	t.Helper()
	return compile(t, policy.Policy{
		Packets:    tokenbucket.Limit{Capacity: capacity, RefillPerSecond: perSecond},
		Escalation: policy.Escalation{Disabled: true},
	})
}

// newTable is a table under the rules, by default of one shard and with room
// for all.
func newTable(c Config, rules ...*policy.Rule) *Table {
	if c.Shards == 0 {
		c.Shards = 1
	}
	if c.Limit == 0 {
		c.Limit = 1 << 20
	}
	c.Seed, c.Rules = testSeed, rules
	return New(c)
}

// after is the instant a time after the start on both clocks.
func after(d time.Duration) policy.Instant {
	return policy.Instant{Now: int64(d), Refill: int64(d)}
}

// host is the key of a host under the first rule.
func host(i int) Key { return Key{Lo: 0xffff<<32 | uint64(i)} }

// under is a key under another rule.
func under(k Key, rule int) Key {
	k.Policy = uint16(rule)
	return k
}

// keysWhere returns the first n hosts whose hash pleases.
func keysWhere(n int, pleases func(hash uint64) bool) []Key {
	keys := make([]Key, 0, n)
	for i := 0; len(keys) < n; i++ {
		if k := host(i); pleases(k.hash(testSeed)) {
			keys = append(keys, k)
		}
	}
	return keys
}

// decide is a decision under a rule that exists.
func decide(t testing.TB, table *Table, k Key, at policy.Instant) policy.Decision {
	t.Helper()
	d, ok := table.Decide(k, at, 0)
	require.True(t, ok)
	return d
}

// tracked reports whether the table has an entry of the key.
func tracked(table *Table, k Key) bool {
	_, ok := table.Find(k, policy.Instant{})
	return ok
}
