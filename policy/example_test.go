package policy_test

import (
	"fmt"
	"time"

	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// Two packets at once, one more each second. Three denials within the window
// lock out for a minute. Whoever keeps the state brings the clock and the lock.
func Example() {
	p := policy.Policy{
		Name:       "game",
		Packets:    tokenbucket.Limit{Capacity: 2, RefillPerSecond: 1},
		Escalation: policy.Escalation{MaxSoftViolations: 3, Lockout: time.Minute},
	}
	rule, err := p.Compile()
	if err != nil {
		fmt.Println(err)
		return
	}
	state, history := rule.New(policy.Instant{}), rule.NewHistory(policy.Instant{})
	for _, at := range []time.Duration{0, 0, 0, 300 * time.Millisecond, time.Second, 1200 * time.Millisecond, 61200 * time.Millisecond} {
		now := policy.Instant{Now: int64(at), Refill: int64(at)}
		d := rule.Take(&state, &history, now, 120)
		if d.Reason == policy.SoftThrottle {
			d = rule.Escalate(&state, &history, now, d)
		}
		fmt.Println(at, d.Allowed, d.Reason, d.RetryAfterMs(), "ms")
	}
	// Output:
	// 0s true none 0 ms
	// 0s true none 0 ms
	// 0s false soft_throttle 1000 ms
	// 300ms false soft_throttle 700 ms
	// 1s true none 0 ms
	// 1.2s false hard_lockout 60000 ms
	// 1m1.2s true none 0 ms
}
