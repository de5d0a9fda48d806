package policy

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

func TestForgetIn(t *testing.T) {
	const ms, s, m = time.Millisecond, time.Second, time.Minute
	one := tokenbucket.Limit{Capacity: 1, RefillPerSecond: 1}
	tests := []struct {
		name   string
		policy Policy
		send   int // packets of 10 bytes at 1 s
		now    time.Duration
		want   time.Duration
	}{
		{"nothing yet", Policy{}, 0, s, 0},
		{"a packet", Policy{}, 1, s, s / 32},
		{"packets", Policy{}, 64, s, 2 * s},
		{"packets, later", Policy{}, 64, 2 * s, s},
		{"bytes", Policy{Bytes: &tokenbucket.Limit{Capacity: 20, RefillPerSecond: 2}}, 1, s, 5 * s},
		{"an open window", Policy{Packets: one}, 2, s, 8 * s},
		{"an open window, later", Policy{Packets: one}, 2, 5 * s, 4 * s},
		{"a bucket slower than the window", Policy{Packets: tokenbucket.Limit{Capacity: 1, RefillPerSecond: 0.0625}}, 2, s, 16 * s},
		{"a lockout", Policy{Packets: one}, 6, s, 30 * s},
		{"a lockout, later", Policy{Packets: one}, 6, 30 * s, s},
		{"a lockout with growth", Policy{Packets: one, Escalation: Escalation{Growth: 2}}, 6, s, 10*m + 30*s},
		{"growth after a lockout", Policy{Packets: one, Escalation: Escalation{Growth: 2}}, 6, 10 * m, 31 * s},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := newEndpoint(t, tt.policy)
			for range tt.send {
				e.send(at(s), 10)
			}
			assert.Equal(t, tt.want, e.forgetIn(at(tt.now)))
			if tt.want > 0 {
				assert.Equal(t, time.Duration(1), e.forgetIn(at(tt.now+tt.want-1)))
			}
			assert.Zero(t, e.forgetIn(at(tt.now+tt.want)))
			assert.Zero(t, e.forgetIn(at(tt.now+tt.want+400*24*time.Hour)))
		})
	}
}

// 41: an endpoint is stale once it was idle for long enough, and never before
// it has nothing to be remembered by.
func TestStale(t *testing.T) {
	const s, h = time.Second, time.Hour
	tests := []struct {
		name   string
		policy Policy
		send   int // packets at 1 s
		after  time.Duration
		want   time.Duration // the first moment
	}{
		{"never sent anything", Policy{}, 0, 180 * s, 180 * s},
		{"idle", Policy{}, 64, 180 * s, 183 * s},
		{"at once", Policy{}, 64, 0, 3 * s},
		{"slow refill", Policy{Packets: tokenbucket.Limit{Capacity: 2, RefillPerSecond: 0.5}}, 2, s, 6 * s},
		{"an open window", Policy{Packets: tokenbucket.Limit{Capacity: 1, RefillPerSecond: 1}}, 2, 2 * s, 9 * s},
		{"locked for longer", Policy{Escalation: Escalation{Lockout: h}}, 70, 180 * s, h + s},
		{"the lockout grows", Policy{Escalation: Escalation{Lockout: h, Growth: 2, ForgetAfter: 3 * h}}, 70, 180 * s, 4*h + s},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := newEndpoint(t, tt.policy)
			e.burst(at(s), tt.send)
			stale := func(now time.Duration) bool { return e.rule.Stale(&e.state, &e.history, at(now), tt.after) }
			assert.False(t, stale(tt.want-1))
			assert.True(t, stale(tt.want))
		})
	}
}

// 41, C16, C17: an endpoint that is forgotten at ForgetIn gets no other answer
// than if it had been remembered.
func TestForgottenIsLikeNew(t *testing.T) {
	const s = time.Second
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		p := Policy{
			Packets: tokenbucket.Limit{Capacity: 1 + rng.Int64N(5), RefillPerSecond: 0.1 + rng.Float64()},
			Escalation: Escalation{
				MaxSoftViolations: 1 + rng.IntN(4), Growth: float64(1 + rng.IntN(2)), ResetOnSuccess: rng.IntN(2) == 0,
				Spacing: time.Duration(rng.IntN(2)) * s, Lockout: 10 * s, ForgetAfter: 20 * s,
			},
		}
		if rng.IntN(2) == 0 {
			p.Bytes = &tokenbucket.Limit{Capacity: 1 + rng.Int64N(100), RefillPerSecond: 1 + 10*rng.Float64()}
		}
		e, now := newEndpoint(t, p), time.Duration(0)
		clocks := func() Instant { return Instant{Now: int64(now), Refill: int64(now) / 2} }
		for range 10 {
			for range rng.IntN(40) {
				now += time.Duration(rng.Int64N(int64(s)))
				e.send(clocks(), rng.Int64N(110))
			}
			// Asked again and again, as the refill clock is the slower one.
			for range 100 {
				now += e.forgetIn(clocks())
			}
			require.Zero(t, e.forgetIn(clocks()))
			fresh := &endpoint{e.rule, e.rule.New(clocks()), e.rule.NewHistory(clocks())}
			for range 20 {
				now += time.Duration(rng.Int64N(int64(s)))
				bytes := rng.Int64N(110)
				require.Equal(t, e.send(clocks(), bytes), fresh.send(clocks(), bytes), "%+v", p)
			}
		}
	}
}
