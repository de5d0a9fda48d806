package engine

import (
	"net/netip"
	"time"

	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/shard"
)

// A Replay is an engine whose clock its caller moves: it answers what an engine
// would have answered to packets of another time. All methods of an Engine
// work, on that clock. It has no goroutine, and its methods are for one
// goroutine at a time.
type Replay struct {
	*Engine
	shows int64
}

// NewReplay returns an engine whose clock stands at start. The load source of
// the Config has no part in it: how busy a machine would have been is not known.
func NewReplay(c Config, start time.Time) (*Replay, error) {
	c.Load = NoLoad
	e, err := build(c, start.Round(0))
	if err != nil {
		return nil, err
	}
	r := &Replay{Engine: e}
	e.set = &r.shows
	return r, nil
}

// Advance moves the clock on to the given time, with the sweep that is due by
// then. Where the clock shows a later time already it stays there, as the clock
// of an engine never goes back, and Advance returns false.
func (r *Replay) Advance(to time.Time) bool {
	now := int64(to.Sub(r.base))
	if now < r.shows {
		return false
	}
	// Of several sweeps without a packet between them the last does it all.
	if due := now - now%int64(r.cfg.CleanupInterval); due > r.shows {
		r.shows = due
		r.pruneBans()
		r.sweep(0)
	}
	r.shows = now
	return true
}

// Decide is EvaluateBatch for a single request.
func (r *Replay) Decide(q Request) policy.Decision {
	reqs, out := [1]Request{q}, [1]policy.Decision{}
	r.EvaluateBatch(reqs[:], out[:])
	return out[0]
}

// Key is what the packets of an endpoint under a policy have in common.
func (r *Replay) Key(ep netip.AddrPort, id PolicyID) shard.Key { return r.key(ep, id) }

// Endpoint is how a report writes the endpoint of a key.
func (r *Replay) Endpoint(k shard.Key) string { return r.endpoint(k) }

// Left is the part, 0..1, of its capacity that the emptier of the endpoint's
// buckets holds. tracked is false where it has none of its own.
func (r *Replay) Left(k shard.Key) (left float64, tracked bool) {
	at, _ := r.now()
	row, tracked := r.table.Find(k, at)
	if !tracked {
		return 1, false
	}
	return row.Rule.Left(&row.State, &row.History, at), true
}
