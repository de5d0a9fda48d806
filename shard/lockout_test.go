package shard

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

func TestLongestLockout(t *testing.T) {
	p := policy.Policy{
		Packets:    tokenbucket.Limit{Capacity: 1, RefillPerSecond: 1},
		Escalation: policy.Escalation{MaxSoftViolations: 1, Lockout: time.Minute},
	}
	short := compile(t, p)
	p.Escalation.Lockout = time.Hour
	long := compile(t, p)
	table := newTable(Config{Shards: 4}, short, long)
	assert.Zero(t, table.LongestLockout())
	lockOut := func(k Key, at time.Duration) {
		decide(t, table, k, after(at))
		decide(t, table, k, after(at))
	}
	first, second := host(1), host(2)
	second.Policy = 1
	lockOut(first, 0)
	lockOut(second, time.Second)
	for i := range 100 {
		lockOut(host(10+i), 2*time.Second)
	}
	assert.Equal(t, Lockout{second, after(time.Second + time.Hour).Now}, table.LongestLockout())
	assert.Zero(t, table.LongestLockout(), "none since then")
	lockOut(host(3), time.Minute)
	assert.Equal(t, host(3), table.LongestLockout().Key)
}
