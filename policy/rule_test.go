package policy

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

func TestCredit(t *testing.T) {
	tests := []struct {
		capacity int64
		want     uint16
	}{
		{1, 0},
		{64, 63},
		{65_535, 65_534},
		{65_536, 65_535},
		{65_537, 65_535},
		{tokenbucket.MaxCapacity, 65_535},
	}
	for _, tt := range tests {
		e := newEndpoint(t, Policy{Packets: tokenbucket.Limit{Capacity: tt.capacity}})
		assert.Equal(t, Decision{Allowed: true, Credit: tt.want}, e.send(at(0), 0))
	}
}

// Credit is whole tokens, and 0 in a lockout that the bucket refills in.
func TestDecisions(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	e := newEndpoint(t, Policy{
		Packets:    tokenbucket.Limit{Capacity: 2, RefillPerSecond: 4},
		Escalation: Escalation{MaxSoftViolations: 2, Lockout: 10 * s},
	})
	steps := []struct {
		at   time.Duration
		want Decision
	}{
		{0, Decision{Allowed: true, Credit: 1}},
		{0, Decision{Allowed: true}},
		{100 * ms, Decision{Reason: SoftThrottle, RetryAfter: 150 * ms}},
		{250 * ms, Decision{Allowed: true}},
		{250 * ms, Decision{Reason: HardLockout, RetryAfter: 10 * s}},
		{5 * s, Decision{Reason: HardLockout, RetryAfter: 5250 * ms}},
		{10250*ms - 1, Decision{Reason: HardLockout, RetryAfter: 1}},
		{10250 * ms, Decision{Allowed: true, Credit: 1}},
	}
	for i, step := range steps {
		assert.Equal(t, step.want, e.send(at(step.at), 0), "step %d, at %v", i, step.at)
	}
	assert.Equal(t, uint64(4), e.state.Denied)
}

// 10, 30: exactly RetryAfter later the same packet passes, a nanosecond before
// it does not.
func TestRetryAfterIsExact(t *testing.T) {
	tests := map[string]Policy{
		"packets": {Packets: tokenbucket.Limit{Capacity: 1, RefillPerSecond: 3}},
		"slow":    {Packets: tokenbucket.Limit{Capacity: 1, RefillPerSecond: 1.0 / 3600}},
		"bytes": {
			Packets: tokenbucket.Limit{Capacity: 1, RefillPerSecond: 1000},
			Bytes:   &tokenbucket.Limit{Capacity: 100, RefillPerSecond: 7},
		},
	}
	for name, p := range tests {
		t.Run(name, func(t *testing.T) {
			e := newEndpoint(t, p)
			require.True(t, e.send(at(0), 90).Allowed)
			d := e.send(at(12345), 90)
			require.Equal(t, SoftThrottle, d.Reason)
			again := 12345 + d.RetryAfter
			require.False(t, e.send(at(again-1), 90).Allowed)
			require.True(t, e.send(at(again), 90).Allowed)
		})
	}
}

// Both budgets are tested before either is charged.
func TestBothBudgets(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	tests := []struct {
		name    string
		packets tokenbucket.Limit
		n       int64
		want    Decision
		charged bool
	}{
		{"both have it", tokenbucket.Limit{Capacity: 10, RefillPerSecond: 10}, 100, Decision{Allowed: true, Credit: 9}, true},
		{"no payload", tokenbucket.Limit{Capacity: 10, RefillPerSecond: 10}, 0, Decision{Allowed: true, Credit: 9}, true},
		{"no bytes", tokenbucket.Limit{Capacity: 10, RefillPerSecond: 10}, 101, Decision{Reason: SoftThrottle, RetryAfter: 100 * ms, Credit: 10}, false},
		{"no packets", tokenbucket.Limit{Capacity: 10, RefillPerSecond: 10, Initial: tokenbucket.Empty}, 1, Decision{Reason: SoftThrottle, RetryAfter: 100 * ms}, false},
		{"neither, the bytes come last", tokenbucket.Limit{Capacity: 10, RefillPerSecond: 10, Initial: tokenbucket.Empty}, 110, Decision{Reason: SoftThrottle, RetryAfter: s}, false},
		{"as large as the capacity", tokenbucket.Limit{Capacity: 10, RefillPerSecond: 10}, 200, Decision{Reason: SoftThrottle, RetryAfter: 10 * s, Credit: 10}, false},
		// 22: what can never pass is not told to try again.
		{"larger than the capacity", tokenbucket.Limit{Capacity: 10, RefillPerSecond: 10}, 201, Decision{Reason: SoftThrottle, RetryAfter: Never, Credit: 10}, false},
		{"less than nothing", tokenbucket.Limit{Capacity: 10, RefillPerSecond: 10}, -1, Decision{Reason: SoftThrottle, RetryAfter: Never, Credit: 10}, false}, // 20
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := newEndpoint(t, Policy{Packets: tt.packets, Bytes: &tokenbucket.Limit{Capacity: 200, RefillPerSecond: 10, Initial: 100}})
			before := *e
			assert.Equal(t, tt.want, e.send(at(0), tt.n))
			if tt.charged {
				assert.Equal(t, 100-tt.n, e.rule.Save(&e.state, &e.history, at(0)).Bytes.Tokens)
				return
			}
			assert.Equal(t, before.state.Packets, e.state.Packets)
			assert.Equal(t, before.history.Bytes, e.history.Bytes)
			assert.Equal(t, uint64(1), e.state.Denied)
			assert.Equal(t, 1, e.rule.Violations(&e.history, at(0)))
		})
	}
}

// 22: packets that can never pass lock their sender out like others.
func TestOversizeLocks(t *testing.T) {
	e := newEndpoint(t, Policy{Bytes: &tokenbucket.Limit{Capacity: 8000, RefillPerSecond: 8000}})
	for range 4 {
		require.Equal(t, Never, e.send(at(0), 9000).RetryAfter)
	}
	assert.Equal(t, Decision{Reason: HardLockout, RetryAfter: DefaultLockout}, e.send(at(0), 9000))
}

// The buckets have a clock of their own; windows and lockouts do not slow down
// with it.
func TestTwoClocks(t *testing.T) {
	const s = int64(time.Second)
	e := newEndpoint(t, Policy{
		Packets:    tokenbucket.Limit{Capacity: 1, RefillPerSecond: 1},
		Escalation: Escalation{MaxSoftViolations: 2, Window: 8 * time.Second, Lockout: 10 * time.Second},
	})
	steps := []struct {
		at   Instant
		want Decision
	}{
		{Instant{0, 0}, Decision{Allowed: true}},
		{Instant{3 * s, s / 4}, Decision{Reason: SoftThrottle, RetryAfter: 750 * time.Millisecond}},
		{Instant{11 * s, s / 2}, Decision{Reason: SoftThrottle, RetryAfter: 500 * time.Millisecond}}, // a new window
		{Instant{12 * s, s - 1}, Decision{Reason: HardLockout, RetryAfter: 10 * time.Second}},
		{Instant{22*s - 1, s}, Decision{Reason: HardLockout, RetryAfter: 1}},
		{Instant{22 * s, s}, Decision{Allowed: true}},
		{Instant{23 * s, 2 * s}, Decision{Allowed: true}},
	}
	for i, step := range steps {
		assert.Equal(t, step.want, e.send(step.at, 0), "step %d", i)
	}
}

func TestNilHistory(t *testing.T) {
	e := newEndpoint(t, Policy{Escalation: Escalation{ResetOnSuccess: true}})
	assert.Equal(t, Decision{Allowed: true, Credit: 63}, e.rule.Take(&e.state, nil, at(0), 1500))
	assert.Equal(t, time.Second/32, e.rule.ForgetIn(&e.state, nil, at(0)))
	assert.Zero(t, e.rule.Violations(nil, at(0)))
	assert.Equal(t, int64(63), e.rule.Tokens(&e.state, at(0)))
	Pardon(&e.state, nil)
	assert.Equal(t, int64(63), e.rule.Save(&e.state, nil, at(0)).Packets.Tokens)
}

func TestTakeBytes(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	e := newEndpoint(t, Policy{Bytes: &tokenbucket.Limit{Capacity: 100, RefillPerSecond: 10}})
	steps := []struct {
		at      time.Duration
		n, took int64
		wait    time.Duration
	}{
		{0, 0, 0, 0},
		{0, 30, 30, 0},
		{0, 100, 70, 3 * s},
		{0, 5, 0, 500 * ms},
		{50 * ms, 5, 0, 450 * ms},
		{s, 5, 5, 0},
		{s, 5, 5, 0},
		{s, math.MaxInt64, 0, 10 * s}, // 21
		{99 * s, math.MaxInt64, 100, 10 * s},
		{99 * s, -1, 0, 0}, // 20
		{99 * s, 5, 0, 500 * ms},
	}
	before := e.state
	for i, step := range steps {
		took, wait := e.rule.TakeBytes(&e.history, at(step.at), step.n)
		assert.Equal(t, step.took, took, "step %d", i)
		assert.Equal(t, step.wait, wait, "step %d", i)
	}
	assert.Equal(t, before, e.state)
	assert.Zero(t, e.rule.Violations(&e.history, at(99*s)))

	took, wait := newEndpoint(t, Policy{}).rule.TakeBytes(nil, at(0), 1<<40)
	assert.Equal(t, int64(1<<40), took)
	assert.Zero(t, wait)
}

func TestViolations(t *testing.T) {
	const s = time.Second
	e := newEndpoint(t, Policy{Packets: denied})
	assert.Zero(t, e.rule.Violations(&e.history, at(0)))
	e.burst(at(s), 3)
	assert.Equal(t, 3, e.rule.Violations(&e.history, at(s)))
	assert.Equal(t, 3, e.rule.Violations(&e.history, at(9*s-1)))
	assert.Zero(t, e.rule.Violations(&e.history, at(9*s)))
	e.burst(at(9*s), 5)
	assert.Zero(t, e.rule.Violations(&e.history, at(9*s)), "in the lockout")
}

func TestPardon(t *testing.T) {
	const s = time.Second
	e := newEndpoint(t, Policy{Packets: tokenbucket.Limit{Capacity: 2, RefillPerSecond: 1}, Escalation: Escalation{Growth: 2}})
	require.Equal(t, tally{2, 4, 1}, e.burst(at(0), 7))
	require.Equal(t, HardLockout, e.send(at(s), 0).Reason)
	Pardon(&e.state, &e.history)
	require.Equal(t, tally{1, 2, 0}, e.burst(at(s), 3), "no token is given")
	Pardon(&e.state, &e.history)
	assert.Equal(t, tally{0, 4, 1}, e.burst(at(s), 5), "the count starts again")
	assert.Equal(t, int64(s+30*s), e.state.LockedUntil, "the growth starts again")
}

func TestNoAllocations(t *testing.T) {
	bytes := &tokenbucket.Limit{Capacity: 1000, RefillPerSecond: 1000}
	tests := map[string]struct {
		policy Policy
		bytes  int64
	}{
		"allowed": {Policy{Packets: tokenbucket.Limit{Capacity: tokenbucket.MaxCapacity}}, 10},
		"soft":    {Policy{Packets: denied, Bytes: bytes, Escalation: Escalation{Disabled: true}}, 10},
		"never":   {Policy{Bytes: bytes, Escalation: Escalation{Disabled: true}}, 1001},
		"locked":  {Policy{Packets: denied, Escalation: Escalation{MaxSoftViolations: 1}}, 10},
		"locking": {Policy{Packets: denied, Escalation: Escalation{MaxSoftViolations: 1, Lockout: 1, Growth: 2, MaxLockout: 1}}, 10},
	}
	for name, tt := range tests {
		e, now := newEndpoint(t, tt.policy), time.Duration(0)
		assert.Zero(t, testing.AllocsPerRun(100, func() {
			now++
			e.send(at(now), tt.bytes)
			e.rule.Stale(&e.state, &e.history, at(now), 0)
			e.rule.Violations(&e.history, at(now))
			e.rule.TakeBytes(&e.history, at(now), 1)
		}), name)
	}
}

// Left is that of the emptier bucket.
func TestLeft(t *testing.T) {
	e := newEndpoint(t, Policy{
		Packets: tokenbucket.Limit{Capacity: 10, RefillPerSecond: 1},
		Bytes:   &tokenbucket.Limit{Capacity: 1000, RefillPerSecond: 100},
	})
	left := func(now time.Duration) float64 { return e.rule.Left(&e.state, &e.history, at(now)) }
	assert.Equal(t, 1.0, left(0))
	require.True(t, e.send(at(0), 50).Allowed)
	assert.Equal(t, 0.9, left(0), "packets")
	require.True(t, e.send(at(0), 450).Allowed)
	assert.Equal(t, 0.5, left(0), "bytes")
	assert.Equal(t, 0.9, left(4*time.Second))
}
