package replay

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/config"
	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/pcap"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/shard"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// leaveOut is the number of endpoints of which one may be denied under a suggested
// policy: the 99.9th percentile keeps within it.
const leaveOut = 1000

// A Suggestion is a policy that all but Beyond of the endpoints of the capture
// keep within.
//
// The refill is the 99.9th percentile of the endpoints' peak rates, each in the
// busiest ten seconds of its endpoint, rounded up to a whole token a second, or
// to 15, 30 or 45 a minute below that. The capacity is the smallest at which,
// with that refill and a bucket that starts full, nobody is denied a packet but
// the one in 1000 endpoints that would need the most. With a byte budget both are
// found for the bytes in the same way; those left out are then the ones that are
// farthest beyond the 99.9th percentile of either capacity.
type Suggestion struct {
	Policy    string
	Capacity  int64
	Refill    float64 // tokens per second
	Bytes     *ByteSuggestion
	Endpoints int64 // that had a bucket under the policy
	Beyond    int64 // of them, those who would be denied
	Initial   bool  // the policy has an initial, which has to become full
}

// A ByteSuggestion is the byte budget of a Suggestion.
type ByteSuggestion struct {
	Capacity int64
	Refill   float64 // bytes per second
}

// suggest reads the capture a second time.
func suggest(o Options, trial *trial, r *Result) error {
	g := &gauge{trial: trial, policies: map[uint16]*gauged{}}
	length := min(peakWindow, max(time.Second, r.Capture.To.Sub(r.Capture.From)))
	for key, s := range trial.known {
		if !s.tracked {
			continue // exempt, or kept out by a list
		}
		p := g.policies[key.Policy]
		if p == nil {
			p = &gauged{name: s.policy, levels: map[shard.Key]*level{}}
			g.policies[key.Policy] = p
		}
		p.levels[key] = &level{}
		p.packetRates = append(p.packetRates, float64(s.packets.most)/length.Seconds())
		p.byteRates = append(p.byteRates, float64(s.bytes.most)/length.Seconds())
	}
	for _, p := range g.policies {
		if err := p.setRates(policyOf(o.Config, p.name)); err != nil {
			return err
		}
	}
	if err := newTraffic(o.Config, g).read(o.Capture); err != nil && !errors.Is(err, pcap.ErrCut) {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(g.policies)) {
		r.add(g.policies[id])
	}
	return nil
}

// policyOf is the policy of a name that there is one of.
func policyOf(c *config.Config, name string) policy.Policy {
	for _, p := range c.Engine.Policies {
		if p.Name == name {
			return p
		}
	}
	return c.Engine.Default
}

// gauged is a policy, and who was seen under it.
type gauged struct {
	name                   string
	policy                 policy.Policy
	levels                 map[shard.Key]*level
	packetRates, byteRates []float64
	packets, bytes         tokenbucket.Rate
}

func (p *gauged) setRates(of policy.Policy) (err error) {
	p.policy = of
	p.packets, err = tokenbucket.Limit{Capacity: tokenbucket.MaxCapacity, RefillPerSecond: roundUp(percentile(p.packetRates))}.Compile()
	if err != nil || of.Bytes == nil {
		return err
	}
	p.bytes, err = tokenbucket.Limit{Capacity: tokenbucket.MaxCapacity, RefillPerSecond: roundUp(percentile(p.byteRates))}.Compile()
	return err
}

// percentile is the largest but for one in leaveOut.
func percentile[T cmp.Ordered](of []T) T {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)-1-len(sorted)/leaveOut]
}

// roundUp makes a rate that a person would write, and that is exact in floating
// point.
func roundUp(rate float64) float64 {
	if rate <= 0.75 {
		return max(0.25, math.Ceil(rate*4)/4)
	}
	return min(math.Ceil(rate), tokenbucket.MaxRefillPerSecond)
}

// fit finds the capacities.
func (p *gauged) fit() (packets, bytes int64, beyond int) {
	var all []*level
	var needPackets, needBytes []int64
	for _, v := range p.levels {
		all = append(all, v)
		needPackets = append(needPackets, v.mostPackets)
		needBytes = append(needBytes, v.mostBytes)
	}
	usualPackets, usualBytes := float64(max(1, percentile(needPackets))), float64(max(1, percentile(needBytes)))
	excess := func(v *level) float64 {
		return max(float64(v.mostPackets)/usualPackets, float64(v.mostBytes)/usualBytes)
	}
	slices.SortFunc(all, func(a, b *level) int { return cmp.Compare(excess(a), excess(b)) })
	packets, bytes = 1, 1
	for _, v := range all[:len(all)-len(all)/leaveOut] {
		packets, bytes = max(packets, v.mostPackets), max(bytes, v.mostBytes)
	}
	for _, v := range all {
		if v.mostPackets > packets || v.mostBytes > bytes {
			beyond++
		}
	}
	return packets, bytes, beyond
}

// add adds what fits a policy.
func (r *Result) add(p *gauged) {
	packets, bytes, beyond := p.fit()
	if max(packets, bytes) > tokenbucket.MaxCapacity {
		r.Warnings = append(r.Warnings, fmt.Sprintf("policy %s: there is no capacity that is large enough", p.name))
		return
	}
	s := Suggestion{
		Policy: p.name, Capacity: packets, Refill: p.packets.Limit().RefillPerSecond,
		Endpoints: int64(len(p.levels)), Beyond: int64(beyond),
		Initial: p.policy.Packets.Initial != 0,
	}
	if p.policy.Bytes != nil {
		s.Bytes = &ByteSuggestion{bytes, p.bytes.Limit().RefillPerSecond}
	}
	if len(p.levels) < leaveOut {
		r.Warnings = append(r.Warnings, fmt.Sprintf(
			"policy %s: with fewer than %d endpoints what is suggested leaves nobody out, a flooder neither: use a capture of ordinary traffic", p.name, leaveOut))
	}
	r.Suggested = append(r.Suggested, s)
}
