package engine

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/gaissmai/bart"

	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/shard"
)

// A Ban keeps the addresses of a prefix out.
type Ban struct {
	Prefix netip.Prefix
	Until  time.Time // zero: until Unban
	Note   string
}

// lists are the bans, the exemptions and the denied. They are immutable.
type lists struct{ prefixes *bart.Table[listed] }

// listed is what is known of one prefix. All may be true of it; the exemption
// wins then. The zero value says nothing, and has no place in a table.
type listed struct {
	exempt bool
	denied bool
	banned bool
	until  int64 // end of the ban on the engine's clock; forever: until Unban
	note   string
}

const forever = math.MaxInt64

func (l listed) active(now int64) bool { return l.exempt || l.denied || l.bannedAt(now) }

func (l listed) bannedAt(now int64) bool { return l.banned && now < l.until }

// decide decides on an address.
func (l *lists) decide(addr netip.Addr, now int64) (d policy.Decision, ok bool) {
	rule, ok := l.rule(addr, now)
	if !ok {
		return d, false
	}
	return rule.decision(now), true
}

// rule is what the longest prefix says that holds an address. An ended ban is
// looked through: it may hide a shorter prefix until it is swept out.
func (l *lists) rule(addr netip.Addr, now int64) (rule listed, ok bool) {
	addr = addr.Unmap().WithZone("")
	if rule, ok = l.prefixes.Lookup(addr); !ok || rule.active(now) {
		return rule, ok
	}
	for _, rule := range l.prefixes.Supernets(netip.PrefixFrom(addr, addr.BitLen())) {
		if rule.active(now) {
			return rule, true
		}
	}
	return listed{}, false
}

func (l listed) decision(now int64) policy.Decision {
	switch {
	case l.exempt:
		return policy.Decision{Allowed: true, Credit: unlimited}
	case l.denied || l.until == forever:
		return policy.Decision{Reason: policy.HardLockout, RetryAfter: policy.Never}
	default:
		return policy.Decision{Reason: policy.HardLockout, RetryAfter: time.Duration(l.until - now)}
	}
}

// prefixes returns the table of the lists, which nobody may change.
func (e *Engine) prefixes() *bart.Table[listed] {
	if l := e.lists.Load(); l != nil {
		return l.prefixes
	}
	return new(bart.Table[listed])
}

// publish makes a table the one of the lists. The caller holds mu.
func (e *Engine) publish(prefixes *bart.Table[listed]) {
	if prefixes.Size() == 0 {
		e.lists.Store(nil) // a decision then need not look
		return
	}
	e.lists.Store(&lists{prefixes})
}

// edit publishes lists that f has changed a copy of. The copy costs as much as
// there are prefixes; it is for changes of many. The caller holds mu.
func (e *Engine) edit(f func(*bart.Table[listed])) {
	prefixes := e.prefixes().Clone()
	f(prefixes)
	e.publish(prefixes)
}

// Ban keeps the addresses of a prefix out for a time, or until Unban where d
// is 0. It takes the place of an earlier ban of the same prefix. Bits of p
// behind its length are not looked at; a prefix of mapped addresses is that of
// the IPv4 addresses. The note is for people.
func (e *Engine) Ban(p netip.Prefix, d time.Duration, note string) error {
	if !p.IsValid() {
		return fmt.Errorf("engine: Ban: %v is not a prefix", p)
	}
	if d < 0 {
		return fmt.Errorf("engine: Ban: %v is negative", d)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed.Load() {
		return ErrClosed
	}
	until := int64(forever)
	if now := e.elapsed(); d > 0 && int64(d) < forever-now {
		until = now + int64(d)
	}
	p = canonical(p)
	e.publish(e.prefixes().ModifyPersist(p, banned(until, note)))
	e.changed(p, false)
	return nil
}

// A change is what bart calls with what is known of a prefix; it returns what
// is to be known, and whether that is nothing.
type change = func(was listed, ok bool) (is listed, nothing bool)

func banned(until int64, note string) change {
	return func(is listed, _ bool) (listed, bool) {
		is.banned, is.until, is.note = true, until, note
		return is, false
	}
}

func unbanned(is listed, _ bool) (listed, bool) {
	is.banned, is.until, is.note = false, 0, ""
	return is, is == listed{}
}

// canonical masks a prefix and unmaps one of mapped addresses.
func canonical(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked()
}

// Unban lifts the ban of exactly this prefix and, where the prefix is an
// endpoint or an address of one, its lockouts, and reports whether there was
// anything to lift.
func (e *Engine) Unban(p netip.Prefix) bool {
	if !p.IsValid() {
		return false
	}
	p = canonical(p)
	e.mu.Lock()
	defer e.mu.Unlock()
	lifted := false
	now := e.elapsed()
	if l := e.lists.Load(); l != nil {
		if rule, ok := l.prefixes.Get(p); ok && rule.banned {
			lifted = now < rule.until
			e.publish(l.prefixes.ModifyPersist(p, unbanned))
		}
	}
	pardoned := e.pardon(p)
	e.changed(p, pardoned)
	return pardoned || lifted
}

// pardon lifts the lockouts of the endpoint that the prefix is, under every
// policy and from every port.
func (e *Engine) pardon(p netip.Prefix) (lifted bool) {
	length := e.cfg.IPv6Prefix
	if p.Addr().Is4() {
		length = e.cfg.IPv4Prefix
	}
	if p.Bits() < length {
		return false
	}
	p = netip.PrefixFrom(p.Addr(), length).Masked()
	e.walk(func(row shard.Row) {
		ep, _ := e.addrPort(row.Key)
		if row.At.Now < row.State.LockedUntil && ep.Addr().WithZone("") == p.Addr() {
			at, _ := e.now()
			lifted = e.table.Pardon(row.Key, at) || lifted
		}
	})
	return lifted
}

// Exempt replaces the list of those who are never limited. The longest prefix
// that holds an address wins, against a ban too; at equal length the exemption
// does. It also frees who is locked out.
func (e *Engine) Exempt(prefixes ...netip.Prefix) error {
	return e.replace("Exempt", prefixes, func(l *listed) *bool { return &l.exempt })
}

// Deny replaces the list of those who are kept out for good, which is apart from
// the bans: neither Unban nor the end of a ban takes a prefix off it, and a
// snapshot does not hold it. Otherwise a denied prefix is like a banned one.
func (e *Engine) Deny(prefixes ...netip.Prefix) error {
	return e.replace("Deny", prefixes, func(l *listed) *bool { return &l.denied })
}

// replace sets a flag for the prefixes and clears it for all others.
func (e *Engine) replace(list string, prefixes []netip.Prefix, flag func(*listed) *bool) error {
	if i := slices.IndexFunc(prefixes, func(p netip.Prefix) bool { return !p.IsValid() }); i >= 0 {
		return fmt.Errorf("engine: %s: %v, number %d of the list, is not a prefix", list, prefixes[i], i+1)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed.Load() {
		return ErrClosed
	}
	var before, after []netip.Prefix
	for p, rule := range e.prefixes().All() {
		if *flag(&rule) {
			before = append(before, p)
		}
	}
	for _, p := range prefixes {
		after = append(after, canonical(p))
	}
	set := func(value bool) change {
		return func(is listed, _ bool) (listed, bool) {
			*flag(&is) = value
			return is, is == listed{}
		}
	}
	e.edit(func(t *bart.Table[listed]) {
		for _, p := range before {
			t.Modify(p, set(false))
		}
		for _, p := range after {
			t.Modify(p, set(true))
		}
	})
	for _, p := range append(after, before...) { // in this order, as Watch says
		e.changed(p, false)
	}
	return nil
}

// pruneBans drops the bans that have ended.
func (e *Engine) pruneBans() {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.lists.Load()
	if l == nil {
		return
	}
	now := e.elapsed()
	var ended []netip.Prefix
	for p, rule := range l.prefixes.All() {
		if rule.banned && now >= rule.until {
			ended = append(ended, p)
		}
	}
	if len(ended) == 0 {
		return
	}
	e.edit(func(t *bart.Table[listed]) {
		for _, p := range ended {
			t.Modify(p, unbanned)
		}
	})
}
