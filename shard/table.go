package shard

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/seed-ee4278a0/throttled/policy"
)

// OnFull says what a table that is full does with a new endpoint.
type OnFull uint8

// The ways to behave when full.
const (
	// EvictIdle gives it the place of an entry of its shard that has nothing
	// to be remembered by; where there is none it shares one overflow bucket
	// with the other newcomers of its policy.
	EvictIdle OnFull = iota
	// Deny answers with a lockout.
	Deny
	// Allow lets it pass untracked.
	Allow
)

// Config is what a Table is made of. The caller has validated it.
type Config struct {
	Shards int // a power of two, 1..65536
	Limit  int // of entries in the whole table, at least 1
	OnFull OnFull
	Seed   uint64         // of the hash; random, so that nobody can aim at a shard
	Rules  []*policy.Rule // indexed by Key.Policy, at most MaxPolicies; nil where there is none
}

// A Table holds the states of all endpoints. Its methods are safe for
// concurrent use.
type Table struct {
	shards   []shard
	seed     uint64
	onFull   OnFull
	limit    int64
	used     atomic.Int64 // entries; reserved before one is made
	peak     atomic.Int64
	overflow overflow
}

// New returns an empty table.
func New(c Config) *Table {
	t := &Table{
		shards: make([]shard, c.Shards),
		seed:   c.Seed,
		onFull: c.OnFull,
		limit:  int64(c.Limit),
	}
	for i := range t.shards {
		t.shards[i].init(c)
	}
	t.SetRules(c.Rules, policy.Instant{})
	return t
}

// Len returns the number of entries.
func (t *Table) Len() int { return int(t.used.Load()) }

// Peak returns the largest number of entries there has been at one time.
func (t *Table) Peak() int { return int(t.peak.Load()) }

// Shards returns the number of shards.
func (t *Table) Shards() int { return len(t.shards) }

// lock returns the locked shard of the key.
func (t *Table) lock(k Key) (s *shard, hash uint64) {
	hash = k.hash(t.seed)
	s = t.shardOf(hash)
	s.mu.Lock()
	return s, hash
}

func (t *Table) shardOf(hash uint64) *shard { return &t.shards[hash&uint64(len(t.shards)-1)] }

// Decide decides on one packet of n payload bytes from the endpoint; n >= 0.
// ok is false where there is no such rule; nothing is counted then.
func (t *Table) Decide(k Key, at policy.Instant, n int64) (d policy.Decision, ok bool) {
	s, hash := t.lock(k)
	defer s.mu.Unlock()
	return t.decide(s, &Ask{Key: k, Bytes: n, hash: hash}, at)
}

func (t *Table) decide(s *shard, a *Ask, at policy.Instant) (d policy.Decision, ok bool) {
	r := s.rule(a.Key.Policy)
	if r == nil {
		return policy.Decision{}, false
	}
	at = s.clock.advance(at)
	e := s.guessed(a)
	if e == nil {
		e = s.find(a.hash, a.Key)
	}
	if e == nil {
		e = t.make(s, r.rule, a.hash, a.Key, at)
	}
	if e != nil {
		d = s.decide(r.rule, e, at, a)
	} else {
		d = t.whenFull(s, r.rule, a.Key, at, a.Bytes)
	}
	r.counts.add(d)
	return d, true
}

// Count counts a decision that was made without the table. It reports whether
// there is such a rule.
func (t *Table) Count(k Key, d policy.Decision) bool {
	s, _ := t.lock(k)
	defer s.mu.Unlock()
	r := s.rule(k.Policy)
	if r == nil {
		return false
	}
	r.counts.add(d)
	return true
}

// TakeBytes takes up to n tokens of the endpoint's byte budget, as
// policy.Rule.TakeBytes says. An endpoint for which there is no room shares
// the byte budget of the overflow. ok is false where there is no such rule.
func (t *Table) TakeBytes(k Key, at policy.Instant, n int64) (took int64, wait time.Duration, ok bool) {
	s, hash := t.lock(k)
	defer s.mu.Unlock()
	r := s.rule(k.Policy)
	switch {
	case r == nil:
		return 0, 0, false
	case !r.rule.HasBytes():
		return n, 0, true
	}
	at = s.clock.advance(at)
	e := s.find(hash, k)
	if e == nil {
		e = t.make(s, r.rule, hash, k, at)
	}
	switch {
	case e != nil:
		took, wait = r.rule.TakeBytes(s.history(e), at, n)
	case t.onFull == Allow:
		took = n
	default:
		took, wait = t.overflow.takeBytes(k.Policy, at, n)
	}
	return took, wait, true
}

// make makes an entry, nil where there is no room for it.
func (t *Table) make(s *shard, rule *policy.Rule, hash uint64, k Key, at policy.Instant) *entry {
	if !t.reserve() && (t.onFull != EvictIdle || !s.evict(at)) {
		return nil
	}
	return s.insert(rule, hash, k, at)
}

// reserve takes the right to make an entry, unless the table is full.
func (t *Table) reserve() bool {
	for {
		n := t.used.Load()
		if n >= t.limit {
			return false
		}
		if t.used.CompareAndSwap(n, n+1) {
			t.raisePeak(n + 1)
			return true
		}
	}
}

func (t *Table) raisePeak(n int64) {
	for p := t.peak.Load(); n > p && !t.peak.CompareAndSwap(p, n); {
		p = t.peak.Load()
	}
}

func (t *Table) whenFull(s *shard, rule *policy.Rule, k Key, at policy.Instant, n int64) policy.Decision {
	switch t.onFull {
	case Deny:
		return policy.Decision{Reason: policy.HardLockout, RetryAfter: rule.LockoutLength()}
	case Allow:
		s.overflowed++
		return policy.Decision{Allowed: true, Credit: math.MaxUint16}
	default:
		s.overflowed++
		return t.overflow.decide(k.Policy, at, n)
	}
}

// Pardon ends the lockout of the endpoint and reports whether there was one.
func (t *Table) Pardon(k Key, at policy.Instant) bool {
	s, hash := t.lock(k)
	defer s.mu.Unlock()
	at = s.clock.advance(at)
	e := s.find(hash, k)
	if e == nil || at.Now >= e.state.LockedUntil {
		return false
	}
	policy.Pardon(&e.state, s.history(e))
	s.evictor.reset()
	return true
}

// Restore makes an entry of a saved state, as it is some time later. It
// reports whether there is an entry now: not where the table is full or there
// is no such rule. An entry that is there already stays as it is.
func (t *Table) Restore(k Key, saved policy.Saved, at policy.Instant, ago time.Duration) bool {
	s, hash := t.lock(k)
	defer s.mu.Unlock()
	r := s.rule(k.Policy)
	if r == nil {
		return false
	}
	if s.find(hash, k) != nil {
		return true
	}
	if !t.reserve() {
		return false
	}
	at = s.clock.advance(at)
	s.restore(s.insert(r.rule, hash, k, at), r.rule, saved, at, ago)
	return true
}

// SetRules replaces the rules. What an endpoint has is settled under its old
// rule up to now and goes on under the new one: tokens, lockouts and counts
// stay, and a larger capacity adds no tokens. Endpoints under a rule that is
// no more are forgotten.
func (t *Table) SetRules(rules []*policy.Rule, at policy.Instant) {
	t.overflow.setRules(rules, at)
	for i := range t.shards {
		gone := t.shards[i].setRules(rules, at)
		t.used.Add(-int64(gone))
	}
}

func ruleAt(rules []*policy.Rule, i uint16) *policy.Rule {
	if int(i) >= len(rules) {
		return nil
	}
	return rules[i]
}
