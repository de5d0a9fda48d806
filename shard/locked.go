package shard

import "github.com/seed-ee4278a0/throttled/policy"

// Locked counts those who are locked out among at most budget slots of a shard,
// from the given one on. It returns the slot to go on from, or Done. It copies
// nothing, so that it costs a fraction of Read.
func (t *Table) Locked(shard, from, budget int, at policy.Instant) (n, next int) {
	s := &t.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	at = s.clock.advance(at)
	end := min(from+budget, int(s.entries.len()))
	for slot := from; slot < end; slot++ {
		if e := s.entries.at(uint32(slot)); !e.free() && at.Now < e.state.LockedUntil {
			n++
		}
	}
	return n, s.next(end)
}
