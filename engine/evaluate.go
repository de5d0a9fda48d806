package engine

import (
	"math"
	"net/netip"
	"time"

	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/shard"
)

// A Request is one packet of a batch.
type Request struct {
	Endpoint netip.AddrPort
	Policy   PolicyID
	Bytes    int // payload; a negative number is an invalid request
	// NoLockout is for an endpoint that may not be who sent this: a denial is
	// soft and counts towards no lockout, and from then on one of the endpoint's
	// other packets does only where it would have come without this. A lockout that
	// there is holds.
	NoLockout bool
}

// Evaluate decides on one packet, connection or request under the default
// policy.
//
// A zero or otherwise invalid address is denied with a HardLockout and counted
// as invalid; so is everything after Close, which is not counted.
func (e *Engine) Evaluate(ep netip.AddrPort) policy.Decision {
	return e.EvaluatePolicy(ep, 0)
}

// EvaluatePolicy is Evaluate under another policy. An unknown policy is denied
// like an invalid address.
func (e *Engine) EvaluatePolicy(ep netip.AddrPort, id PolicyID) policy.Decision {
	at, s := e.now()
	return e.decide(ep, id, at, s)
}

// EvaluateBatch decides on the requests in their order, at one reading of the
// clock, and writes the decisions to out. It panics where out is shorter than
// reqs.
func (e *Engine) EvaluateBatch(reqs []Request, out []policy.Decision) {
	if len(out) < len(reqs) {
		panic("engine: EvaluateBatch: out is shorter than reqs")
	}
	if e.closed.Load() {
		for i := range reqs {
			out[i] = policy.Decision{Reason: policy.HardLockout}
		}
		return
	}
	at, s := e.now()
	for len(reqs) > 0 {
		n := min(len(reqs), chunk)
		e.decideAll(reqs[:n], out[:n], at, s)
		reqs, out = reqs[n:], out[n:]
	}
}

// chunk is how many decisions wait for memory at a time.
const chunk = 32

func (e *Engine) decideAll(reqs []Request, out []policy.Decision, at policy.Instant, s *segment) {
	var asks [chunk]shard.Ask
	for i := range reqs {
		r := &reqs[i]
		asks[i].Key, out[i], asks[i].Skip = e.ask(r.Endpoint, r.Policy, r.Bytes, at)
		asks[i].Bytes, asks[i].Soft = int64(r.Bytes), r.NoLockout
	}
	e.invalid.Add(int64(e.table.DecideAll(asks[:len(reqs)], at, out)))
	for i := range reqs {
		if d := &out[i]; d.Reason == policy.SoftThrottle {
			d.RetryAfter = s.real(at.Now, d.RetryAfter)
		}
	}
}

func (e *Engine) decide(ep netip.AddrPort, id PolicyID, at policy.Instant, s *segment) policy.Decision {
	if e.closed.Load() {
		return policy.Decision{Reason: policy.HardLockout}
	}
	k, d, done := e.ask(ep, id, 0, at)
	if done {
		return d
	}
	d, ok := e.table.Decide(k, at, 0)
	if !ok {
		return e.refuse()
	}
	if d.Reason == policy.SoftThrottle {
		d.RetryAfter = s.real(at.Now, d.RetryAfter)
	}
	return d
}

// ask is the key of a packet, or the decision where the table has no say.
func (e *Engine) ask(ep netip.AddrPort, id PolicyID, n int, at policy.Instant) (k shard.Key, d policy.Decision, done bool) {
	if !ep.IsValid() || n < 0 || id > maxPolicyID {
		return k, e.refuse(), true
	}
	k = e.key(ep, id)
	if l := e.lists.Load(); l != nil {
		if d, listed := l.decide(ep.Addr(), at.Now); listed {
			if !e.table.Count(k, d) {
				return k, e.refuse(), true
			}
			return k, d, true
		}
	}
	return k, d, false
}

// refuse answers what nobody can be held to.
func (e *Engine) refuse() policy.Decision {
	e.invalid.Add(1)
	return policy.Decision{Reason: policy.HardLockout}
}

// DryRun reports whether the policy is a dry run, so that what is denied under it
// is to pass. It is not of an unknown policy, nor after Close. It is for those
// who were denied, who hardly notice what it costs.
func (e *Engine) DryRun(id PolicyID) bool {
	r := e.names.Load().rule(id)
	return r != nil && r.DryRun() && !e.closed.Load()
}

// LimitsBytes reports whether the policy has a byte budget.
func (e *Engine) LimitsBytes(id PolicyID) bool {
	r := e.names.Load().rule(id)
	return r != nil && r.HasBytes()
}

// TakeBytes takes up to n tokens of the endpoint's byte budget, as many as
// there are, and returns how many that was and how long it is until the rest is
// there, or as much of it as a full bucket holds. It is for streams, whose
// connection was decided on before: it charges no packet, counts no violation
// and asks neither bans nor lockouts. An exempt address and a policy without a
// byte budget get all n; an invalid request and a closed engine none, and Never.
func (e *Engine) TakeBytes(ep netip.AddrPort, id PolicyID, n int) (took int, wait time.Duration) {
	if e.closed.Load() || !ep.IsValid() || n < 0 || e.names.Load().rule(id) == nil {
		return 0, policy.Never
	}
	at, s := e.now()
	if l := e.lists.Load(); l != nil {
		if d, listed := l.decide(ep.Addr(), at.Now); listed && d.Allowed {
			return n, 0
		}
	}
	got, wait, ok := e.table.TakeBytes(e.key(ep, id), at, int64(n))
	if !ok {
		return 0, policy.Never
	}
	return int(got), s.real(at.Now, wait)
}

// unlimited is the credit of an endpoint that no bucket stands for.
const unlimited = math.MaxUint16
