package shard

import (
	"time"

	"github.com/seed-ee4278a0/throttled/policy"
)

// Done is the slot at which a walk through a shard has come to its end.
const Done = -1

// Sweep frees the entries that have gone stale among at most budget slots of a
// shard, from the given one on. It returns the slot to go on from, or Done.
func (t *Table) Sweep(shard, from, budget int, at policy.Instant, stale time.Duration) (next int) {
	s := &t.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	at = s.clock.advance(at)
	end := min(from+budget, int(s.entries.len()))
	freed := int64(0)
	for slot := from; slot < end; slot++ {
		e := s.entries.at(uint32(slot))
		if !e.free() && s.rules[e.policy()].rule.Stale(&e.state, s.history(e), at, stale) {
			s.remove(uint32(slot))
			freed++
		}
	}
	s.cleaned += freed
	t.used.Add(-freed)
	return s.next(end)
}

func (s *shard) next(end int) int {
	if end >= int(s.entries.len()) {
		return Done
	}
	return end
}

// A Row is a copy of an entry, with the rule and the instant to read it by.
type Row struct {
	Key     Key
	Rule    *policy.Rule
	State   policy.State
	History policy.History // zero where there is none
	At      policy.Instant
}

func (s *shard) row(e *entry, at policy.Instant) Row {
	row := Row{Key: e.key(), Rule: s.rules[e.policy()].rule, State: e.state, At: at}
	if h := s.history(e); h != nil {
		row.History = *h
	}
	return row
}

// Read copies entries of a shard into rows, from the given slot on, at most as
// many as there is room for. It returns their number and the slot to go on
// from, or Done. An entry that stays throughout a walk is read once.
func (t *Table) Read(shard, from int, rows []Row, at policy.Instant) (n, next int) {
	s := &t.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	at = s.clock.advance(at)
	end := min(from+len(rows), int(s.entries.len()))
	for slot := from; slot < end; slot++ {
		if e := s.entries.at(uint32(slot)); !e.free() {
			rows[n] = s.row(e, at)
			n++
		}
	}
	return n, s.next(end)
}

// Find copies the entry of the key.
func (t *Table) Find(k Key, at policy.Instant) (Row, bool) {
	s, hash := t.lock(k)
	defer s.mu.Unlock()
	e := s.find(hash, k)
	if e == nil {
		return Row{}, false
	}
	return s.row(e, s.clock.advance(at)), true
}
