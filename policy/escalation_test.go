package policy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

func TestEscalation(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	tests := []struct {
		name   string
		policy Policy
		steps  []step
	}{
		{"the defaults", Policy{}, []step{
			{0, 64, tally{64, 0, 0}}, {0, 6, tally{0, 4, 2}},
			{30*s - 1, 2, tally{0, 0, 2}}, {30 * s, 70, tally{64, 4, 2}},
		}},
		{"the window is opened by the first denial", Policy{Packets: denied, Escalation: Escalation{MaxSoftViolations: 3, Window: 10 * s}}, []step{
			{7 * s, 1, tally{0, 1, 0}}, {16 * s, 1, tally{0, 1, 0}}, {17*s - 1, 1, tally{0, 0, 1}},
		}},
		{"a denial at its end opens a new one", Policy{Packets: denied, Escalation: Escalation{MaxSoftViolations: 3, Window: 10 * s}}, []step{
			{7 * s, 1, tally{0, 1, 0}}, {16 * s, 1, tally{0, 1, 0}}, {17 * s, 2, tally{0, 2, 0}}, {27*s - 1, 1, tally{0, 0, 1}},
		}},
		{"a denial after it opens a new one", Policy{Packets: denied, Escalation: Escalation{MaxSoftViolations: 2, Window: 10 * s}}, []step{
			{0, 1, tally{0, 1, 0}}, {15 * s, 1, tally{0, 1, 0}}, {25 * s, 1, tally{0, 1, 0}}, {34 * s, 1, tally{0, 0, 1}},
		}},
		{"one violation is enough", Policy{Packets: denied, Escalation: Escalation{MaxSoftViolations: 1}}, []step{
			{0, 2, tally{0, 0, 2}}, {30 * s, 1, tally{0, 0, 1}},
		}},
		{"spacing merges a burst", Policy{Packets: denied, Escalation: Escalation{MaxSoftViolations: 3, Spacing: s}}, []step{
			{0, 50, tally{0, 50, 0}}, {s - 1, 50, tally{0, 50, 0}}, {s, 50, tally{0, 50, 0}},
			{2*s - 1, 50, tally{0, 50, 0}}, {2 * s, 50, tally{0, 0, 50}},
		}},
		{"spacing runs from the last that counted", Policy{Packets: denied, Escalation: Escalation{MaxSoftViolations: 3, Spacing: s}}, []step{
			{0, 1, tally{0, 1, 0}}, {600 * ms, 1, tally{0, 1, 0}}, {1200 * ms, 1, tally{0, 1, 0}},
			{1800 * ms, 1, tally{0, 1, 0}}, {2200 * ms, 1, tally{0, 0, 1}},
		}},
		{"spacing and the end of the window", Policy{Packets: denied, Escalation: Escalation{MaxSoftViolations: 2, Window: s, Spacing: s}}, []step{
			{0, 9, tally{0, 9, 0}}, {s, 9, tally{0, 9, 0}}, {2 * s, 9, tally{0, 9, 0}},
		}},
		{"success does not clear", Policy{Packets: tokenbucket.Limit{Capacity: 1, RefillPerSecond: 1}}, []step{
			{0, 5, tally{1, 4, 0}}, {s, 2, tally{1, 0, 1}},
		}},
		{"reset on success", Policy{Packets: tokenbucket.Limit{Capacity: 1, RefillPerSecond: 1}, Escalation: Escalation{ResetOnSuccess: true}}, []step{
			{0, 5, tally{1, 4, 0}}, {s, 5, tally{1, 4, 0}}, {2 * s, 6, tally{1, 4, 1}},
		}},
		{"disabled", Policy{Packets: denied, Escalation: Escalation{Disabled: true, MaxSoftViolations: 1}}, []step{
			{0, 1000, tally{0, 1000, 0}}, {s, 1000, tally{0, 1000, 0}},
		}},
		// C48: hits during a lockout neither extend it nor count.
		{"hits during a lockout", Policy{Packets: denied, Escalation: Escalation{MaxSoftViolations: 2, Lockout: 3 * s}}, []step{
			{0, 2, tally{0, 1, 1}}, {s, 99, tally{0, 0, 99}}, {3*s - 1, 99, tally{0, 0, 99}},
			{3 * s, 1, tally{0, 1, 0}}, {3 * s, 1, tally{0, 0, 1}},
		}},
		{"the bucket refills during a lockout", Policy{Packets: tokenbucket.Limit{Capacity: 64, RefillPerSecond: 1}, Escalation: Escalation{Lockout: 10 * s}}, []step{
			{0, 69, tally{64, 4, 1}}, {5 * s, 9, tally{0, 0, 9}}, {10 * s, 15, tally{10, 4, 1}},
		}},
		// C39: the lockout has its own length, not that of the window.
		{"a lockout longer than the window", Policy{Packets: denied, Escalation: Escalation{Window: 10 * s, Lockout: 60 * s}}, []step{
			{0, 5, tally{0, 4, 1}}, {59 * s, 1, tally{0, 0, 1}}, {61 * s, 1, tally{0, 1, 0}},
		}},
		{"a lockout shorter than the window", Policy{Packets: denied, Escalation: Escalation{Window: 60 * s, Lockout: 10 * s}}, []step{
			{0, 5, tally{0, 4, 1}}, {9 * s, 1, tally{0, 0, 1}}, {11 * s, 5, tally{0, 4, 1}},
		}},
		// C47: somebody who retries now and then is not locked out.
		{"three retries in 30 s", Policy{Packets: denied}, []step{
			{0, 1, tally{0, 1, 0}}, {10 * s, 1, tally{0, 1, 0}}, {20 * s, 1, tally{0, 1, 0}}, {30 * s, 1, tally{0, 1, 0}},
		}},
		{"three retries at once", Policy{Packets: denied}, []step{{0, 3, tally{0, 3, 0}}, {30 * s, 3, tally{0, 3, 0}}}}, // C47
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { newEndpoint(t, tt.policy).run(t, tt.steps) })
	}
}

// flood sends a packet at each step of time, and returns when it was locked
// out, or the end.
func flood(e *endpoint, each, end time.Duration) time.Duration {
	for now := time.Duration(0); now < end; now += each {
		if e.send(at(now), 0).Reason == HardLockout {
			return now
		}
	}
	return end
}

func TestSteadyFlood(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	fiveFold := s / 160 // of the default rate: every fifth packet passes
	spaced := Policy{Packets: denied, Escalation: Escalation{Spacing: s}}
	tests := []struct {
		name   string
		policy Policy
		each   time.Duration
		want   time.Duration
	}{
		{"five-fold", Policy{}, fiveFold, 525 * ms},
		{"five-fold, reset on success", Policy{Escalation: Escalation{ResetOnSuccess: true}}, fiveFold, time.Minute},
		{"just below the rate", Policy{}, s / 32, time.Minute},
		{"spaced", spaced, ms, 4 * s},
		{"spaced, each just within the spacing", spaced, s - 1, 8*s - 8},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, flood(newEndpoint(t, tt.policy), tt.each, time.Minute))
		})
	}
}

// lockouts locks an endpoint out n times, each time at the end of the last
// lockout, and returns their lengths.
func lockouts(t *testing.T, e Escalation, n int) (lengths []time.Duration) {
	t.Helper()
	e.MaxSoftViolations = 1
	client := newEndpoint(t, Policy{Packets: denied, Escalation: e})
	var now time.Duration
	for range n {
		d := client.send(at(now), 0)
		require.Equal(t, HardLockout, d.Reason)
		require.Equal(t, int64(now+d.RetryAfter), client.state.LockedUntil)
		lengths = append(lengths, d.RetryAfter)
		now += d.RetryAfter
	}
	return lengths
}

func TestGrowth(t *testing.T) {
	const s, m, h = time.Second, time.Minute, time.Hour
	tests := []struct {
		name string
		e    Escalation
		want []time.Duration
	}{
		{"none", Escalation{}, []time.Duration{30 * s, 30 * s, 30 * s}},
		{"doubling up to the cap", Escalation{Growth: 2, MaxLockout: 10 * m}, []time.Duration{30 * s, m, 2 * m, 4 * m, 8 * m, 10 * m, 10 * m}},
		{"by half", Escalation{Growth: 1.5}, []time.Duration{30 * s, 45 * s, 67500 * time.Millisecond}},
		{"the default cap", Escalation{Growth: 1000}, []time.Duration{30 * s, h, h}},
		{"a lockout above the default cap", Escalation{Growth: 2, Lockout: 3 * h}, []time.Duration{3 * h, 3 * h}},
		{"a cap without growth", Escalation{MaxLockout: 2 * h}, []time.Duration{30 * s, 30 * s}},
		{"the longest", Escalation{Growth: 1000, Lockout: Never}, []time.Duration{Never}},
		{"longer than a float64 tells apart", Escalation{Lockout: 1<<53 + 1, MaxLockout: Never}, []time.Duration{1<<53 + 1}},
		{"by a factor that is no binary fraction", Escalation{Growth: 1.7}, []time.Duration{30 * s, 51 * s, 86700 * time.Millisecond}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, lockouts(t, tt.e, len(tt.want)))
		})
	}
}

// C41: 200 lockouts in a row stay at the cap.
func TestGrowthNeverOverflows(t *testing.T) {
	for _, growth := range []float64{1.01, 2, 16, MaxGrowth} {
		lengths := lockouts(t, Escalation{Growth: growth, MaxLockout: 3 * time.Minute}, 300)
		for i := 1; i < len(lengths); i++ {
			require.GreaterOrEqual(t, lengths[i], lengths[i-1], "growth %v", growth)
		}
		assert.Equal(t, 3*time.Minute, lengths[299], "growth %v", growth)
		assert.Equal(t, 3*time.Minute, lengths[200], "growth %v", growth)
	}
}

// The time after which the growth starts again runs from the end of a lockout.
func TestForgetAfter(t *testing.T) {
	const s, m = time.Second, time.Minute
	e := Escalation{MaxSoftViolations: 1, Growth: 4, ForgetAfter: 5 * m}
	tests := []struct {
		name  string
		quiet time.Duration // after each lockout
		want  []time.Duration
	}{
		{"at once", 0, []time.Duration{30 * s, 2 * m, 8 * m, 32 * m}},
		{"just within", 5*m - 1, []time.Duration{30 * s, 2 * m, 8 * m, 32 * m}},
		{"forgotten", 5 * m, []time.Duration{30 * s, 30 * s, 30 * s}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client := newEndpoint(t, Policy{Packets: denied, Escalation: e})
			var now time.Duration
			for _, want := range tt.want {
				d := client.send(at(now), 0)
				assert.Equal(t, Decision{Reason: HardLockout, RetryAfter: want}, d)
				now += want + tt.quiet
			}
		})
	}
}

// The end of a lockout stays at the end of the clock.
func TestLockoutBeyondTheClock(t *testing.T) {
	client := newEndpoint(t, Policy{Packets: denied, Escalation: Escalation{MaxSoftViolations: 1, Growth: 2, Lockout: Never, ForgetAfter: Never}})
	d := client.send(at(time.Hour), 0)
	assert.Equal(t, Decision{Reason: HardLockout, RetryAfter: Never}, d)
	assert.Equal(t, int64(Never), client.state.LockedUntil)
	assert.Equal(t, Never-2*time.Hour, client.send(at(2*time.Hour), 0).RetryAfter)
	assert.Equal(t, Never-2*time.Hour, client.forgetIn(at(2*time.Hour)))
}
