package policy

import (
	"fmt"
	"math"
	"time"

	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// An Instant is one moment on the two clocks of a decision, in nanoseconds
// since they started. Neither may go back from one call with a state to the
// next.
type Instant struct {
	Now    int64 // the clock of windows and lockouts
	Refill int64 // the clock of the buckets; slower than Now where refill is
}

// State is what every endpoint has for each policy, 32 bytes.
type State struct {
	Packets tokenbucket.Bucket
	// LockedUntil is the end of the last lockout. The endpoint is locked
	// before it and open from it on.
	LockedUntil int64
	Denied      uint64
}

// History is what an endpoint has beside its State once it was denied, or
// from the start where the policy has a byte budget. The zero value is that
// of an endpoint that was never denied.
type History struct {
	Bytes       tokenbucket.Bucket
	windowStart int64
	lastCounted int64
	violations  uint32 // in the window, which is open where this is not 0
	lockouts    uint32 // in a row

	// What the budgets would hold, had they been full at the first Doubt, and nobody
	// else been charged since.
	ownPackets, ownBytes tokenbucket.Bucket
	doubted              bool
}

// A Rule is a compiled [Policy]. It is immutable and safe for concurrent use;
// the states it is given are guarded by their owner.
type Rule struct {
	packets  tokenbucket.Rate
	bytes    tokenbucket.Rate
	hasBytes bool
	policy   Policy
}

// Compile validates the policy and returns its rule.
func (p Policy) Compile() (*Rule, error) {
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("policy %q: %w", p.Name, err)
	}
	r := &Rule{policy: p.WithDefaults()}
	var err error
	if r.packets, err = r.policy.Packets.Compile(); err != nil {
		return nil, fmt.Errorf("policy %q: Packets: %w", p.Name, err)
	}
	if p.Bytes == nil {
		return r, nil
	}
	r.hasBytes = true
	if r.bytes, err = r.policy.Bytes.Compile(); err != nil {
		return nil, fmt.Errorf("policy %q: Bytes: %w", p.Name, err)
	}
	return r, nil
}

// Policy returns the policy with its zero fields filled in.
func (r *Rule) Policy() Policy { return r.policy.WithDefaults() }

// DryRun reports whether the policy is a dry run.
func (r *Rule) DryRun() bool { return r.policy.DryRun }

// HasBytes reports whether there is a byte budget, so that every endpoint
// needs a History.
func (r *Rule) HasBytes() bool { return r.hasBytes }

// ResetsOnSuccess reports whether an allowed packet clears the denials so far.
func (r *Rule) ResetsOnSuccess() bool { return r.policy.Escalation.ResetOnSuccess }

// Escalates reports whether denials are counted, which a History is needed for.
func (r *Rule) Escalates() bool { return !r.policy.Escalation.Disabled }

// New returns the state of an endpoint at first sight.
func (r *Rule) New(at Instant) State { return State{Packets: r.packets.New(at.Refill)} }

// NewHistory returns the history of an endpoint at first sight.
func (r *Rule) NewHistory(at Instant) History {
	if !r.hasBytes {
		return History{}
	}
	return History{Bytes: r.bytes.New(at.Refill)}
}

// Take decides on one packet of n payload bytes and charges it if it passes.
// A SoftThrottle is to be handed on to [Rule.Escalate] unless the state is one
// that must never lock. The RetryAfter of a SoftThrottle is on the Refill
// clock. h may be nil where the rule has no byte budget. With one, a packet of a
// negative size never passes.
func (r *Rule) Take(s *State, h *History, at Instant, n int64) Decision {
	if at.Now < s.LockedUntil {
		s.Denied++
		return Decision{Reason: HardLockout, RetryAfter: time.Duration(s.LockedUntil - at.Now)}
	}
	if !r.packets.Has(s.Packets, at.Refill, 1) || r.hasBytes && !r.bytes.Has(h.Bytes, at.Refill, n) {
		s.Denied++
		return r.soft(s, h, at, n)
	}
	r.packets.Take(&s.Packets, at.Refill, 1)
	if r.hasBytes {
		r.bytes.Take(&h.Bytes, at.Refill, n)
	}
	if h != nil && r.ResetsOnSuccess() {
		h.violations = 0
	}
	return Decision{Allowed: true, Credit: r.credit(s, at)}
}

// Doubt comes before a packet that somebody else may have sent in the name of the
// endpoint. From the first one on OwnWithin is to be asked about all others.
func (h *History) Doubt() { h.doubted = true }

// Doubted reports whether there was a Doubt. h may be nil.
func (h *History) Doubted() bool { return h != nil && h.doubted }

// OwnWithin charges a packet of the endpoint itself, whatever was decided on it, and
// reports whether it would have passed had the budgets been full at the first Doubt,
// and nobody else been charged since. A denial is then not to be handed on to [Rule.Escalate].
func (r *Rule) OwnWithin(h *History, at Instant, n int64) bool {
	if !r.packets.Has(h.ownPackets, at.Refill, 1) || r.hasBytes && !r.bytes.Has(h.ownBytes, at.Refill, n) {
		return false
	}
	r.packets.Take(&h.ownPackets, at.Refill, 1)
	if r.hasBytes {
		r.bytes.Take(&h.ownBytes, at.Refill, n)
	}
	return true
}

func (r *Rule) soft(s *State, h *History, at Instant, n int64) Decision {
	wait := r.packets.Wait(s.Packets, at.Refill, 1)
	if r.hasBytes {
		wait = max(wait, r.bytes.Wait(h.Bytes, at.Refill, n))
	}
	return Decision{Reason: SoftThrottle, RetryAfter: wait, Credit: r.credit(s, at)}
}

func (r *Rule) credit(s *State, at Instant) uint16 {
	return uint16(min(r.packets.Tokens(s.Packets, at.Refill), math.MaxUint16))
}

// Escalate counts a soft denial, and answers with a lockout where it is the
// one too many. Without escalation h may be nil.
func (r *Rule) Escalate(s *State, h *History, at Instant, soft Decision) Decision {
	e := &r.policy.Escalation
	if e.Disabled || h.violations > 0 && at.Now-h.lastCounted < int64(e.Spacing) {
		return soft
	}
	if !h.windowOpen(e, at) {
		h.windowStart, h.violations = at.Now, 0
	}
	h.lastCounted = at.Now
	h.violations++
	if int(h.violations) < e.MaxSoftViolations {
		return soft
	}
	length := r.lockout(s, h, at)
	s.LockedUntil = later(at.Now, length)
	h.violations = 0
	return Decision{Reason: HardLockout, RetryAfter: length}
}

func (h *History) windowOpen(e *Escalation, at Instant) bool {
	return h.violations > 0 && at.Now-h.windowStart < int64(e.Window)
}

// lockout returns the length of the lockout that begins now and counts it.
func (r *Rule) lockout(s *State, h *History, at Instant) time.Duration {
	if !r.remembersLockouts(s, h, at) {
		h.lockouts = 0
	}
	length := r.policy.Escalation.lockoutAfter(h.lockouts)
	if h.lockouts < math.MaxUint32 {
		h.lockouts++
	}
	return length
}

// lockoutAfter is the length of a lockout after so many in a row. Without
// growth it is Lockout itself, which a float64 may miss beyond 104 days.
func (e *Escalation) lockoutAfter(lockouts uint32) time.Duration {
	if lockouts == 0 || e.Growth == 1 {
		return e.Lockout
	}
	length := math.Round(float64(e.Lockout) * math.Pow(e.Growth, float64(lockouts)))
	if length >= float64(e.MaxLockout) {
		return e.MaxLockout
	}
	return time.Duration(length)
}

func (r *Rule) remembersLockouts(s *State, h *History, at Instant) bool {
	e := &r.policy.Escalation
	return h.lockouts > 0 && at.Now < later(s.LockedUntil, e.ForgetAfter)
}

// LockoutLength is the length of a first lockout.
func (r *Rule) LockoutLength() time.Duration { return r.policy.Escalation.Lockout }

// TakeBytes takes up to n tokens of the byte budget, as many as there are, and
// returns how many that was and how long it is on the Refill clock until the
// rest is there, or as much of it as a full bucket holds. It charges no packet
// and counts no violation. Without a byte budget it gives n.
func (r *Rule) TakeBytes(h *History, at Instant, n int64) (took int64, wait time.Duration) {
	if !r.hasBytes {
		return n, 0
	}
	took = max(0, min(n, r.bytes.Tokens(h.Bytes, at.Refill)))
	r.bytes.Take(&h.Bytes, at.Refill, took)
	rest := min(n-took, r.bytes.Limit().Capacity)
	return took, r.bytes.Wait(h.Bytes, at.Refill, max(0, rest))
}

// ForgetIn returns a time before which the endpoint has something to be
// remembered by: a bucket that is not full, a lockout, an open window of
// denials, or lockouts that make the next one longer. It is 0 where there is
// nothing.
func (r *Rule) ForgetIn(s *State, h *History, at Instant) time.Duration {
	wait := max(0, r.packets.FullAt(s.Packets)-at.Refill, s.LockedUntil-at.Now)
	if h == nil {
		return time.Duration(wait)
	}
	e := &r.policy.Escalation
	if r.hasBytes {
		wait = max(wait, r.bytes.FullAt(h.Bytes)-at.Refill)
	}
	if h.windowOpen(e, at) {
		wait = max(wait, later(h.windowStart, e.Window)-at.Now)
	}
	if e.Growth > 1 && r.remembersLockouts(s, h, at) {
		wait = max(wait, later(s.LockedUntil, e.ForgetAfter)-at.Now)
	}
	return time.Duration(wait)
}

// Stale reports whether the endpoint has had nothing to be remembered by and
// has been idle for at least the given time. Idle time counts from when its
// packet bucket was full again, on the Refill clock.
func (r *Rule) Stale(s *State, h *History, at Instant, after time.Duration) bool {
	return at.Refill-r.packets.FullAt(s.Packets) >= int64(after) && r.ForgetIn(s, h, at) == 0
}

// Violations is the number of denials in the open window, 0 where it has
// ended. h may be nil.
func (r *Rule) Violations(h *History, at Instant) int {
	if h == nil || !h.windowOpen(&r.policy.Escalation, at) {
		return 0
	}
	return int(h.violations)
}

// Tokens is the number of whole packet tokens.
func (r *Rule) Tokens(s *State, at Instant) int64 { return r.packets.Tokens(s.Packets, at.Refill) }

// ByteTokens is the number of whole tokens of the byte budget, 0 where there is
// none.
func (r *Rule) ByteTokens(h *History, at Instant) int64 {
	if !r.hasBytes {
		return 0
	}
	return r.bytes.Tokens(h.Bytes, at.Refill)
}

// Lockouts is the number of lockouts in a row, 0 where they are forgotten. h may
// be nil.
func (r *Rule) Lockouts(s *State, h *History, at Instant) int {
	if h == nil || !r.remembersLockouts(s, h, at) {
		return 0
	}
	return int(h.lockouts)
}

// Left is the part, 0..1, of its capacity that the emptier of the buckets holds
// in whole tokens.
func (r *Rule) Left(s *State, h *History, at Instant) float64 {
	left := float64(r.Tokens(s, at)) / float64(r.packets.Limit().Capacity)
	if r.hasBytes {
		held := float64(r.ByteTokens(h, at))
		left = min(left, held/float64(r.bytes.Limit().Capacity))
	}
	return left
}

// Pardon ends a lockout and forgets the denials and lockouts so far. The
// tokens stay as they are.
func Pardon(s *State, h *History) {
	s.LockedUntil = 0
	if h != nil {
		h.violations, h.lockouts = 0, 0
	}
}

// later adds a duration to a time and stays at the end of time.
func later(t int64, d time.Duration) int64 {
	if d > 0 && t > math.MaxInt64-int64(d) {
		return math.MaxInt64
	}
	return t + int64(d)
}
