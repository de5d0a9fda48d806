// Package shard keeps the state of every endpoint: where it is, who may touch
// it, and what happens when there is no room. It stands in the chain netx ->
// engine -> shard -> policy -> tokenbucket: engine says who is asking and what
// time it is, policy decides.
//
// A [Table] is a power of two of shards. A shard is one mutex over a slab of
// entries and an open-addressed index into it, so that lookup, insertion and
// decision are one critical section: the first packets of a new endpoint share
// one bucket, and nothing is decided on a state that was recycled meanwhile.
// Slabs hold no pointers, so the garbage collector does not see a million
// endpoints, and slots are pooled within their shard.
//
// The invariant: the table never holds more than its limit, and an entry that
// has something to be remembered by is never given up for another one.
//
// The package starts no goroutine, reads no clock and logs nothing.
package shard

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ee4278a0/throttled/policy"
)

// A shard is a part of the table. mu guards all of it. What every decision
// reads comes first, so that it fits two cache lines.
type shard struct {
	mu      sync.Mutex
	clock   clock
	index   index
	entries slab[entry, *entry]
	rules   []tally
	view    atomic.Pointer[view]

	records slab[record, *record]
	evictor evictor
	seed    uint64 // of the hash

	lockouts, overflowed, evicted, cleaned int64
	longest                                Lockout // since LongestLockout was asked last

	_ [64]byte // keeps the mutex of the next shard off this one's cache line
}

// init prepares an empty shard. Of a full table it will have its share and,
// but for one in fifty shards, at most twice the root of that more.
func (s *shard) init(c Config) {
	s.seed = c.Seed
	share := float64(c.Limit) / float64(c.Shards)
	expect := uint32(share + 2*math.Sqrt(share))
	s.index.expect, s.entries.expect, s.records.expect = expect, expect, expect
}

// A tally is a rule, nil where it is no more, and the decisions under it.
type tally struct {
	rule   *policy.Rule
	counts Counts
}

// rule returns the tally of the rule, nil where there is none.
func (s *shard) rule(i uint16) *tally {
	if int(i) >= len(s.rules) || s.rules[i].rule == nil {
		return nil
	}
	return &s.rules[i]
}

// An entry is an endpoint under a policy, 56 bytes.
type entry struct {
	hi, lo uint64
	id     uint32 // the port and the policy
	record uint32 // 1 + the slot of its record, 0 = none; free slots: the next free one
	state  policy.State
}

// freeSlot as the policy of an entry marks a slot that is not in use.
const freeSlot = 1<<16 - 1

func (e *entry) free() bool { return e.id == freeSlot }

func (e *entry) policy() uint16 { return uint16(e.id) }

func (e *entry) key() Key {
	return Key{Hi: e.hi, Lo: e.lo, Port: uint16(e.id >> 16), Policy: uint16(e.id)}
}

func (e *entry) is(k Key) bool { return e.lo == k.Lo && e.hi == k.Hi && e.id == k.id() }

func (e *entry) link() *uint32 { return &e.record }

// A record is the cold part of an entry, made when it is needed.
type record struct {
	history policy.History
	next    uint32 // of a free slot: the next free one
}

func (r *record) link() *uint32 { return &r.next }

// A clock hands out instants that never go back, as policy wants them: a
// caller that read the time before it waited for the lock comes late.
type clock policy.Instant

func (c *clock) advance(at policy.Instant) policy.Instant {
	c.Now, c.Refill = max(c.Now, at.Now), max(c.Refill, at.Refill)
	return policy.Instant(*c)
}

// find is a loop of its own over the index: it is what every decision pays.
func (s *shard) find(hash uint64, k Key) *entry {
	ix := &s.index
	if ix.n == 0 {
		return nil
	}
	tag, mask := ix.tag(hash), ix.slotMask()
	for i := ix.first(hash); ; i = ix.after(i) {
		w := ix.words[i]
		if w == 0 {
			return nil
		}
		if w&^mask != tag {
			continue
		}
		e := s.entries.at(w&mask - 1)
		if e.is(k) {
			return e
		}
	}
}

func (s *shard) insert(rule *policy.Rule, hash uint64, k Key, at policy.Instant) *entry {
	if s.index.full() {
		s.growIndex()
	}
	slot, moved := s.entries.take()
	if moved {
		s.publish()
	}
	s.index.put(hash, slot)
	e := s.entries.at(slot)
	*e = entry{hi: k.Hi, lo: k.Lo, id: k.id(), state: rule.New(at)}
	if rule.HasBytes() {
		*s.needHistory(e) = rule.NewHistory(at)
	}
	s.evictor.reset()
	return e
}

// growIndex makes room in the index; entries stay where they are.
func (s *shard) growIndex() {
	s.index.grow()
	for slot := range s.entries.len() {
		if e := s.entries.at(slot); !e.free() {
			s.index.put(e.key().hash(s.seed), slot)
		}
	}
	s.publish()
}

func (s *shard) remove(slot uint32) {
	e := s.entries.at(slot)
	s.index.remove(e.key().hash(s.seed), slot, func(slot uint32) uint64 {
		return s.entries.at(slot).key().hash(s.seed)
	})
	s.dropHistory(e)
	e.id = freeSlot
	s.entries.give(slot)
}

// history returns the history of the entry, nil where it has none.
func (s *shard) history(e *entry) *policy.History {
	if e.record == 0 {
		return nil
	}
	return &s.records.at(e.record - 1).history
}

func (s *shard) needHistory(e *entry) *policy.History {
	if e.record == 0 {
		slot, _ := s.records.take()
		*s.records.at(slot) = record{}
		e.record = slot + 1
	}
	return s.history(e)
}

func (s *shard) dropHistory(e *entry) {
	if e.record != 0 {
		s.records.give(e.record - 1)
		e.record = 0
	}
}

// decide decides; where soft, a denial is not counted, and those of others only as
// far as they would have come without it.
func (s *shard) decide(rule *policy.Rule, e *entry, at policy.Instant, a *Ask) policy.Decision {
	if a.Soft && rule.Escalates() {
		s.needHistory(e).Doubt()
	}
	h := s.history(e)
	d := rule.Take(&e.state, h, at, a.Bytes)
	counts := !a.Soft
	if counts && d.Reason != policy.HardLockout && h.Doubted() {
		counts = !rule.OwnWithin(h, at, a.Bytes)
	}
	switch {
	case counts && d.Reason == policy.SoftThrottle && rule.Escalates():
		d = rule.Escalate(&e.state, s.needHistory(e), at, d)
		if d.Reason == policy.HardLockout {
			s.lockouts++
			s.noteLockout(e)
			s.cleared(rule, e, at)
		}
	case d.Allowed && e.record != 0 && rule.ResetsOnSuccess():
		s.cleared(rule, e, at)
	}
	return d
}

func (s *shard) restore(e *entry, rule *policy.Rule, saved policy.Saved, at policy.Instant, ago time.Duration) {
	state, history := rule.Restore(saved, at, ago)
	e.state = state
	if rule.HasBytes() || saved.NeedsHistory() {
		*s.needHistory(e) = history
	} else {
		s.dropHistory(e)
	}
}

// setRules settles every entry and returns how many are gone.
func (s *shard) setRules(rules []*policy.Rule, at policy.Instant) (gone int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at = s.clock.advance(at)
	for slot := range s.entries.len() {
		e := s.entries.at(slot)
		if e.free() {
			continue
		}
		was, is := s.rules[e.policy()].rule, ruleAt(rules, e.policy())
		switch {
		case is == nil:
			s.remove(slot)
			gone++
		case is != was:
			s.restore(e, is, was.Save(&e.state, s.history(e), at), at, 0)
		}
	}
	for len(s.rules) < len(rules) {
		s.rules = append(s.rules, tally{})
	}
	for i := range s.rules {
		s.rules[i].rule = ruleAt(rules, uint16(i))
	}
	s.evictor.reset()
	return gone
}
