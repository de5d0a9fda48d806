package replay

import (
	"math"
	"net/netip"
	"time"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// A gauge is the judge that measures how many tokens everybody would need.
type gauge struct {
	trial    *trial
	policies map[uint16]*gauged
	now      int64 // since the first packet
	start    time.Time
}

// A level is what an endpoint has out of its buckets, and the most it ever had.
type level struct {
	packets, bytes         tokenbucket.Bucket
	mostPackets, mostBytes int64
	begun                  bool
}

func (g *gauge) begin(start time.Time, ls *listeners) error {
	g.start = start
	return ls.under(g.trial.engine.Engine, g.trial.config)
}

func (g *gauge) tick(at time.Time) { g.now = int64(at.Sub(g.start)) }

func (g *gauge) datagram(l *listener, s *segment) {
	if !s.headless {
		g.take(l.policyFor(s), s.header.Source, 1, s.bytes)
	}
}

func (g *gauge) answer(*segment) {}

func (g *gauge) lets(*listener, *connection) bool { return true }

func (g *gauge) open(l *listener, c *connection) bool {
	g.take(l.Policy, c.from, 1, 0)
	return true
}

func (g *gauge) data(l *listener, c *connection, n int) bool {
	g.take(l.Policy, c.from, 0, n)
	return true
}

func (g *gauge) take(id engine.PolicyID, from netip.AddrPort, packets int64, bytes int) {
	p := g.policies[uint16(id)]
	if p == nil {
		return
	}
	v := p.levels[g.trial.engine.Key(from, id)]
	if v == nil {
		return
	}
	if !v.begun {
		v.begun = true
		v.packets, v.bytes = p.packets.New(g.now), p.bytes.New(g.now)
	}
	raise(&v.mostPackets, &p.packets, &v.packets, g.now, packets)
	if p.policy.Bytes != nil {
		raise(&v.mostBytes, &p.bytes, &v.bytes, g.now, int64(bytes))
	}
}

// raise takes n tokens out of the largest bucket there is.
func raise(most *int64, rate *tokenbucket.Rate, b *tokenbucket.Bucket, now, n int64) {
	if !rate.Has(*b, now, n) {
		*most = math.MaxInt64 // no capacity is large enough
		return
	}
	rate.Take(b, now, n)
	*most = max(*most, tokenbucket.MaxCapacity-rate.Tokens(*b, now))
}
