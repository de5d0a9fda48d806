package policy

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// restored is the endpoint, saved at a moment and restored under a rule whose
// clocks have just started.
func (e *endpoint) restored(t *testing.T, p Policy, now Instant, ago time.Duration) *endpoint {
	t.Helper()
	saved := e.rule.Save(&e.state, &e.history, now)
	next := newEndpoint(t, p)
	next.state, next.history = next.rule.Restore(saved, at(0), ago)
	return next
}

func TestRestoreBuckets(t *testing.T) {
	const s = time.Second
	packets := func(l tokenbucket.Limit) Policy { return Policy{Packets: l} }
	bytes := func(l tokenbucket.Limit) Policy { return Policy{Packets: tokenbucket.Limit{Capacity: 1}, Bytes: &l} }
	ten := tokenbucket.Limit{Capacity: 10, RefillPerSecond: 1}
	tests := []struct {
		name     string
		old, new Policy
		drain    int64 // tokens at 0, saved at 2.5 s
		ago      time.Duration
		want     tokenbucket.Level
	}{
		{"at once", packets(ten), packets(ten), 10, 0, tokenbucket.Level{Tokens: 2, Frac: 1 << 63}}, // C98
		{"later", packets(ten), packets(ten), 10, 3 * s, tokenbucket.Level{Tokens: 5, Frac: 1 << 63}},
		{"the clock went back", packets(ten), packets(ten), 10, -3 * s, tokenbucket.Level{Tokens: 2, Frac: 1 << 63}}, // 26
		{"full by now", packets(ten), packets(ten), 10, 400 * 24 * time.Hour, tokenbucket.Level{Tokens: 10}},
		{"at the new rate", packets(ten), packets(tokenbucket.Limit{Capacity: 10, RefillPerSecond: 2}), 10, 3 * s, tokenbucket.Level{Tokens: 8, Frac: 1 << 63}},
		{"a larger capacity adds nothing", packets(ten), packets(tokenbucket.Limit{Capacity: 99, RefillPerSecond: 1}), 2, 0, tokenbucket.Level{Tokens: 10}},
		{"a smaller one holds less", packets(ten), packets(tokenbucket.Limit{Capacity: 4, RefillPerSecond: 1}), 2, 0, tokenbucket.Level{Tokens: 4}},
		{"another scale", packets(ten), packets(tokenbucket.Limit{Capacity: 10, RefillPerSecond: 1, Scale: 7}), 10, 0, tokenbucket.Level{Tokens: 2, Frac: 1 << 63}},

		{"bytes at once", bytes(ten), bytes(ten), 10, 0, tokenbucket.Level{Tokens: 2, Frac: 1 << 63}},
		{"bytes later", bytes(ten), bytes(ten), 10, 3 * s, tokenbucket.Level{Tokens: 5, Frac: 1 << 63}},
		{"a new byte budget", packets(ten), bytes(tokenbucket.Limit{Capacity: 10, RefillPerSecond: 1, Initial: 4}), 10, 3 * s, tokenbucket.Level{Tokens: 4}},
		{"a byte budget that goes", bytes(ten), packets(ten), 5, 0, tokenbucket.Level{Tokens: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := newEndpoint(t, tt.old)
			if e.rule.HasBytes() {
				e.rule.TakeBytes(&e.history, at(0), tt.drain)
			} else {
				e.burst(at(0), int(tt.drain))
			}
			next := e.restored(t, tt.new, at(2500*time.Millisecond), tt.ago)
			saved := next.rule.Save(&next.state, &next.history, at(0))
			assert.Equal(t, next.rule.HasBytes(), saved.HasBytes)
			if saved.HasBytes {
				assert.Equal(t, tt.want, saved.Bytes)
			} else {
				assert.Equal(t, tt.want, saved.Packets)
			}
		})
	}
}

// C42, C43: a lockout ends when it would have ended, on any clock and under
// any rule.
func TestRestoreLockout(t *testing.T) {
	const s, m = time.Second, time.Minute
	p := Policy{Packets: denied, Escalation: Escalation{MaxSoftViolations: 1, Lockout: 10 * m, Growth: 2, ForgetAfter: 10 * m}}
	shorter := Policy{Packets: denied, Escalation: Escalation{MaxSoftViolations: 1, Lockout: 3 * m, Growth: 2, ForgetAfter: 10 * m}}
	tests := []struct {
		name   string
		policy Policy
		ago    time.Duration
		left   time.Duration // 0: it has ended
		next   time.Duration // the length of the next one
	}{
		{"at once", p, 0, 5 * m, 20 * m},
		{"under a shorter rule", shorter, 0, 5 * m, 6 * m},
		{"time down counts", p, 2 * m, 3 * m, 20 * m},
		{"the clock went back", p, -2 * m, 5 * m, 20 * m}, // C34
		{"about to end", p, 5*m - 1, 1, 20 * m},
		{"ended", p, 5 * m, 0, 20 * m},
		{"ended, not forgotten", p, 15*m - 1, 0, 20 * m},
		{"ended and forgotten", p, 15 * m, 0, 10 * m},
		{"a year ago", p, 365 * 24 * time.Hour, 0, 10 * m},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := newEndpoint(t, p)
			require.Equal(t, 10*m, e.send(at(1000*s), 0).RetryAfter)
			next := e.restored(t, tt.policy, at(1300*s), tt.ago)
			next.state.Packets = tokenbucket.Bucket{}
			next.rule.packets.Take(&next.state.Packets, 0, 1)
			if tt.left > 0 {
				require.Equal(t, Decision{Reason: HardLockout, RetryAfter: tt.left}, next.send(at(0), 0))
				require.Equal(t, HardLockout, next.send(at(tt.left-1), 0).Reason)
			}
			assert.Equal(t, tt.next, next.send(at(tt.left), 0).RetryAfter)
		})
	}
}

func TestRestoreViolations(t *testing.T) {
	const s = time.Second
	policy := func(violations int, spacing time.Duration) Policy {
		return Policy{Packets: denied, Escalation: Escalation{MaxSoftViolations: violations, Spacing: spacing}}
	}
	tests := []struct {
		name  string
		new   Policy
		ago   time.Duration
		count int
		steps []step
	}{
		{"the count goes on", policy(5, 0), 0, 3, []step{{0, 1, tally{0, 1, 0}}, {0, 1, tally{0, 0, 1}}}},
		{"so does the window", policy(5, 0), 5*s - 1, 3, []step{{1, 4, tally{0, 4, 0}}}},
		{"the window has ended", policy(5, 0), 5 * s, 0, []step{{0, 5, tally{0, 4, 1}}}},
		{"fewer are allowed now", policy(2, 0), 0, 3, []step{{0, 1, tally{0, 0, 1}}}},
		{"spacing goes on", policy(5, 4*s), 0, 3, []step{{s - 1, 1, tally{0, 1, 0}}, {s, 1, tally{0, 1, 0}}, {5*s - 1, 9, tally{0, 9, 0}}}},
		{"time down counts for it", policy(4, 4*s), s, 3, []step{{0, 1, tally{0, 0, 1}}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := newEndpoint(t, policy(5, 0))
			e.burst(at(10*s), 3)
			next := e.restored(t, tt.new, at(13*s), tt.ago)
			assert.Equal(t, tt.count, next.rule.Violations(&next.history, at(0)))
			assert.Equal(t, uint64(3), next.state.Denied)
			next.run(t, tt.steps)
		})
	}
}

func TestRestoreSaturates(t *testing.T) {
	rule := newEndpoint(t, Policy{Escalation: Escalation{MaxSoftViolations: 1, Growth: 2}}).rule
	s, h := rule.Restore(Saved{LockedFor: Never}, at(time.Hour), 0)
	assert.Equal(t, int64(math.MaxInt64), s.LockedUntil)
	assert.Equal(t, Never-time.Hour, rule.ForgetIn(&s, &h, at(time.Hour)))

	// C41: the number of lockouts does not wrap.
	s, h = rule.Restore(Saved{LockedFor: -1, Lockouts: math.MaxUint32}, at(time.Hour), 0)
	d := rule.Escalate(&s, &h, at(time.Hour), Decision{Reason: SoftThrottle})
	assert.Equal(t, Decision{Reason: HardLockout, RetryAfter: DefaultMaxLockout}, d)
	assert.Equal(t, uint32(math.MaxUint32), rule.Save(&s, &h, at(time.Hour)).Lockouts)
}

func TestNeedsHistory(t *testing.T) {
	tests := []struct {
		saved Saved
		want  bool
	}{
		{Saved{}, false},
		{Saved{LockedFor: time.Hour, Denied: 9, Window: time.Second}, false},
		{Saved{HasBytes: true}, true},
		{Saved{Violations: 1}, true},
		{Saved{Lockouts: 1}, true},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.want, tt.saved.NeedsHistory(), "%+v", tt.saved)
	}
}
