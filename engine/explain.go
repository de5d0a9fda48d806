package engine

import (
	"net/netip"

	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/shard"
)

// An Explanation says what the next packet of an endpoint would get, and why.
type Explanation struct {
	Endpoint string // as in an EndpointReport
	// Lists are the listings that hold the address, the longest prefix first.
	// The first decides, under every policy; where there is none the lockout or
	// the buckets of the policy do.
	Lists    []Listing
	Policies []Standing // the default policy first
}

// A Standing is how an endpoint stands with a policy.
type Standing struct {
	EndpointReport
	Tracked    bool            // false: nothing is known of it, and the rest is what a newcomer has
	Capacity   int64           // most packet tokens
	ByteTokens int64           // whole tokens of the byte budget
	Bytes      int64           // most byte tokens; 0 = no byte budget
	Lockouts   int             // in a row, which growth counts
	Next       policy.Decision // on the next packet
}

// Explain says what a packet of n payload bytes from the endpoint would get, and
// charges and counts nothing. Somebody who is not tracked is taken for one that
// there is a place for in the table. ok is false for an invalid address and a
// negative n.
func (e *Engine) Explain(ep netip.AddrPort, n int) (x Explanation, ok bool) {
	if !ep.IsValid() || n < 0 {
		return x, false
	}
	x.Endpoint = e.endpoint(e.key(ep, 0))
	x.Lists = e.listingsOf(ep.Addr(), e.time())
	def := ""
	for id, rule := range e.names.Load().rules {
		if rule == nil {
			continue
		}
		s := e.standing(ep, PolicyID(id), rule, n)
		switch {
		case id == 0:
			def = s.Policy
		case s.Policy == def && !s.Tracked:
			continue // a second id of the default policy that nobody has used
		}
		x.Policies = append(x.Policies, s)
	}
	return x, true
}

func (e *Engine) standing(ep netip.AddrPort, id PolicyID, rule *policy.Rule, n int) Standing {
	at, clock := e.now()
	row, tracked := e.table.Find(e.key(ep, id), at)
	if !tracked {
		row = shard.Row{Key: e.key(ep, id), Rule: rule, State: rule.New(at), History: rule.NewHistory(at), At: at}
	}
	p := row.Rule.Policy()
	s := Standing{
		EndpointReport: e.endpointReport(row),
		Tracked:        tracked,
		Capacity:       p.Packets.Capacity,
		ByteTokens:     row.Rule.ByteTokens(&row.History, row.At),
		Lockouts:       row.Rule.Lockouts(&row.State, &row.History, row.At),
	}
	if p.Bytes != nil {
		s.Bytes = p.Bytes.Capacity
	}
	s.Next = e.next(ep, row, clock, int64(n))
	return s
}

// next decides on a copy of an entry, which it may change.
func (e *Engine) next(ep netip.AddrPort, row shard.Row, clock *segment, n int64) policy.Decision {
	if l := e.lists.Load(); l != nil {
		if d, listed := l.decide(ep.Addr(), row.At.Now); listed {
			return d
		}
	}
	d := row.Rule.Take(&row.State, &row.History, row.At, n)
	if d.Reason == policy.SoftThrottle && row.Rule.Escalates() {
		d = row.Rule.Escalate(&row.State, &row.History, row.At, d)
	}
	if d.Reason == policy.SoftThrottle {
		d.RetryAfter = clock.real(row.At.Now, d.RetryAfter)
	}
	return d
}
