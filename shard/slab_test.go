package shard

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

func TestSlab(t *testing.T) {
	var s slab[record, *record]
	take := func() uint32 {
		before := cap(s.slots)
		slot, moved := s.take()
		require.Equal(t, cap(s.slots) != before, moved)
		return slot
	}
	for want := range uint32(100) {
		require.Equal(t, want, take())
	}
	for slot := range uint32(100) {
		s.give(slot)
	}
	seen := map[uint32]bool{}
	for range 100 {
		slot := take()
		require.False(t, seen[slot], "slot %d is given out twice", slot)
		seen[slot] = true
	}
	assert.EqualValues(t, 100, s.len(), "freed slots are taken first")
	assert.EqualValues(t, 100, take())
}

// A slab stops at the size that is expected of it before it grows beyond, and
// what was in it stays.
func TestSlabExpected(t *testing.T) {
	for _, expect := range []uint32{0, 1, 100, 101} {
		s := slab[record, *record]{expect: expect}
		for i := range 300 {
			slot, _ := s.take()
			require.EqualValues(t, i, slot)
			s.at(slot).next = slot
			if i < int(expect) {
				require.LessOrEqual(t, cap(s.slots), int(expect))
			}
		}
		for i := range uint32(300) {
			require.Equal(t, i, s.at(i).next)
		}
	}
}

// The garbage collector has nothing to look at in a slab, however many
// endpoints there are. 52
func TestSlabsHoldNoPointers(t *testing.T) {
	for _, slot := range []reflect.Type{reflect.TypeFor[entry](), reflect.TypeFor[record]()} {
		requireNoPointers(t, slot)
	}
}

func requireNoPointers(t *testing.T, typ reflect.Type) {
	t.Helper()
	switch kind := typ.Kind(); {
	case kind == reflect.Array:
		requireNoPointers(t, typ.Elem())
	case kind == reflect.Struct:
		for i := range typ.NumField() {
			requireNoPointers(t, typ.Field(i).Type)
		}
	default:
		require.LessOrEqual(t, kind, reflect.Complex128, "%v", typ) // the kinds up to it are numbers
		require.NotEqual(t, reflect.Uintptr, kind)
	}
}

// A recycled slot begins anew: nothing of the tokens, denials, lockouts or
// growth of who had it before is left.
func TestSlotReuse(t *testing.T) {
	locks := compile(t, policy.Policy{
		Packets: tokenbucket.Limit{Capacity: 2, RefillPerSecond: 1},
		Bytes:   &tokenbucket.Limit{Capacity: 100, RefillPerSecond: 100},
		Escalation: policy.Escalation{
			MaxSoftViolations: 2, Window: time.Second, Lockout: time.Second, Growth: 10, ForgetAfter: time.Second,
		},
	})
	table := newTable(Config{}, locks, soft(t, 2, 1))
	now := time.Duration(0)
	for i := range 500 {
		k := under(host(i), i%2)
		require.Equal(t, policy.Decision{Allowed: true, Credit: 1}, decide(t, table, k, after(now)), "host %d", i)
		require.Equal(t, policy.Decision{Allowed: true}, decide(t, table, k, after(now)))
		require.Equal(t, policy.SoftThrottle, decide(t, table, k, after(now)).Reason)
		d := decide(t, table, k, after(now))
		if i%2 == 0 {
			require.Equal(t, policy.Decision{Reason: policy.HardLockout, RetryAfter: time.Second}, d)
		}
		now += time.Minute
		require.Equal(t, Done, table.Sweep(0, 0, 10, after(now), time.Second))
		require.Zero(t, table.Len())
	}
	assert.EqualValues(t, 1, table.shards[0].entries.len())
	assert.EqualValues(t, 1, table.shards[0].records.len())
	assert.EqualValues(t, 500, table.Stats().Cleaned)
}
