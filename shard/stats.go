package shard

import "github.com/seed-ee4278a0/throttled/policy"

// Counts are the decisions made under one rule.
type Counts struct{ Allowed, SoftThrottled, HardLocked int64 }

func (c *Counts) add(d policy.Decision) {
	switch {
	case d.Allowed:
		c.Allowed++
	case d.Reason == policy.SoftThrottle:
		c.SoftThrottled++
	default:
		c.HardLocked++
	}
}

// Stats are what a table has counted since it was made.
type Stats struct {
	Rules      []Counts // for each rule, also those that are no more
	Lockouts   int64    // lockouts begun
	Overflowed int64    // packets of endpoints for which there was no room, unless Deny
	Evicted    int64    // places given to a newcomer
	Cleaned    int64    // entries freed by Sweep
}

// Stats adds up the shards, one lock at a time.
func (t *Table) Stats() Stats {
	var sum Stats
	for i := range t.shards {
		t.shards[i].addTo(&sum)
	}
	return sum
}

func (s *shard) addTo(sum *Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(sum.Rules) < len(s.rules) {
		sum.Rules = append(sum.Rules, Counts{})
	}
	for i := range s.rules {
		c := s.rules[i].counts
		sum.Rules[i].Allowed += c.Allowed
		sum.Rules[i].SoftThrottled += c.SoftThrottled
		sum.Rules[i].HardLocked += c.HardLocked
	}
	sum.Lockouts += s.lockouts
	sum.Overflowed += s.overflowed
	sum.Evicted += s.evicted
	sum.Cleaned += s.cleaned
}
