package shard

import (
	"math"

	"github.com/seed-ee4278a0/throttled/policy"
)

// evictBudget bounds how many entries one newcomer looks at. A shard of the
// default table has 390 and is seen whole.
const evictBudget = 1024

// An evictor finds an entry to give up. It goes round the slab like the hand
// of a clock. After a round that found nothing it knows a time before which
// nothing can be found, so that a flood of newcomers does not pay for more
// rounds.
type evictor struct {
	hand     uint32
	seen     uint32 // slots looked at in this round
	earliest int64  // of the times at which these could be given up
	notUntil int64  // what the last round found
}

// reset starts a new round: something may be given up earlier than was known.
func (v *evictor) reset() { v.seen, v.notUntil = 0, math.MinInt64 }

// expect takes note of a time at which an entry could be given up.
func (v *evictor) expect(t int64) {
	v.earliest, v.notUntil = min(v.earliest, t), min(v.notUntil, t)
}

// cleared tells the evictor that the denials of an entry were cleared, by an
// allowed packet or by a lockout, which may be over before their window is.
func (s *shard) cleared(rule *policy.Rule, e *entry, at policy.Instant) {
	s.evictor.expect(forgetAt(rule, e, s.history(e), at))
}

// forgetAt is a time before which an entry has something to be remembered by,
// at.Now where it has nothing.
func forgetAt(rule *policy.Rule, e *entry, h *policy.History, at policy.Instant) int64 {
	wait := int64(rule.ForgetIn(&e.state, h, at))
	return at.Now + min(wait, math.MaxInt64-at.Now)
}

// evict gives up an entry that has nothing to be remembered by and reports
// whether it found one.
func (s *shard) evict(at policy.Instant) bool {
	v := &s.evictor
	slots := s.entries.len()
	if at.Now < v.notUntil {
		return false
	}
	for range min(slots, evictBudget) {
		if v.seen == 0 {
			v.earliest = math.MaxInt64
		}
		slot := v.hand
		v.hand = (v.hand + 1) % slots
		v.seen++
		if e := s.entries.at(slot); !e.free() {
			t := forgetAt(s.rules[e.policy()].rule, e, s.history(e), at)
			if t <= at.Now {
				s.remove(slot)
				s.evicted++
				v.reset()
				return true
			}
			v.earliest = min(v.earliest, t)
		}
		if v.seen >= slots {
			v.seen, v.notUntil = 0, v.earliest
			return false
		}
	}
	return false
}
