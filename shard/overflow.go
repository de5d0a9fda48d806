package shard

import (
	"sync"
	"time"

	"github.com/seed-ee4278a0/throttled/policy"
)

// overflow holds one bucket for each rule, which the endpoints share that
// found no room in a full table. It throttles softly and never locks out: the
// flood that filled the table is not the doing of all who come after it.
// mu guards all of it and is taken under the lock of a shard.
type overflow struct {
	mu      sync.Mutex
	clock   clock
	rules   []*policy.Rule
	buckets []overflowBucket
}

type overflowBucket struct {
	state   policy.State
	history policy.History
}

// decide decides under the rule of the given index. The overflow gets new
// rules before the shards do, so that it has every rule that a shard adds; one
// that it has lost already denies.
func (o *overflow) decide(i uint16, at policy.Instant, n int64) policy.Decision {
	o.mu.Lock()
	defer o.mu.Unlock()
	rule := ruleAt(o.rules, i)
	if rule == nil {
		return policy.Decision{Reason: policy.SoftThrottle}
	}
	b := &o.buckets[i]
	return rule.Take(&b.state, &b.history, o.clock.advance(at), n)
}

func (o *overflow) takeBytes(i uint16, at policy.Instant, n int64) (int64, time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	rule := ruleAt(o.rules, i)
	if rule == nil {
		return 0, 0
	}
	return rule.TakeBytes(&o.buckets[i].history, o.clock.advance(at), n)
}

func (o *overflow) setRules(rules []*policy.Rule, at policy.Instant) {
	o.mu.Lock()
	defer o.mu.Unlock()
	at = o.clock.advance(at)
	buckets := make([]overflowBucket, len(rules))
	for i, is := range rules {
		b := &buckets[i]
		switch was := ruleAt(o.rules, uint16(i)); {
		case is == nil:
		case was == nil:
			b.state, b.history = is.New(at), is.NewHistory(at)
		case was == is:
			*b = o.buckets[i]
		default:
			b.state, b.history = is.Restore(was.Save(&o.buckets[i].state, &o.buckets[i].history, at), at, 0)
		}
	}
	o.rules, o.buckets = rules, buckets
}
