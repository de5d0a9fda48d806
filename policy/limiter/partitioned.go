package limiter

import (
	"context"
	"errors"
	"time"
)

// The defaults of [PartitionedOptions].
const (
	DefaultIdleAfter = 10 * time.Second
	DefaultSweep     = 100 * time.Millisecond
)

// A Partition is what a request belongs to: a key, and how to make the limiter
// of that key. New runs once for a key, however many come first, outside of
// all locks, and again where it failed or the key was forgotten meanwhile. It
// must not ask the same table for the same key.
type Partition[K comparable] struct {
	Key K
	New func(K) (Limiter, error)
}

// PartitionedOptions configure a [Partitioned]. The zero value stands for the
// values named at the fields.
type PartitionedOptions struct {
	// IdleAfter is how long a key may have nothing to remember, see
	// [Limiter].Idle, before it is forgotten: a little more than that. 0 means
	// 10 s.
	IdleAfter time.Duration
	// Sweep is the time between two sweeps, which forget idle keys and
	// replenish manual limiters. 0 means 100 ms.
	Sweep time.Duration
	// MaxPartitions is how many keys are kept at most; 0 means any number.
	// Where that many are, one that has nothing to remember makes room, and
	// else a new key is denied: "too many keys". In a large table a newcomer
	// looks at some hundred keys, the next one at those that follow. New runs
	// before that is known, since what it returns may need no room.
	MaxPartitions int
	// OnError gets what goes wrong where no caller can be told: errors of
	// closing the limiters of forgotten keys, those of one sweep joined. nil
	// ignores them. It must not close the table.
	OnError func(error)
}

// A Partitioned is a limiter for each key. It implements [Selective].
//
// The limiters are its own: it closes those of keys that it forgets, and all
// of them with Close. No caller ever meets one that was forgotten. A key is
// forgotten only when its limiter has been idle for IdleAfter, so that being
// forgotten brings nobody fresh permits. A limiter that was closed by somebody
// else is replaced on the next call. Keys for which New returns [Unlimited] are
// not kept, and New runs for each of their calls; they pass where there are too
// many keys, too.
//
// A timer runs only while there are keys.
//
// Use NewPartitioned; the zero value is of no use.
type Partitioned[R any, K comparable] struct {
	pick  func(R) Partition[K]
	table table[K]
}

// NewPartitioned returns a table without keys, or an error that names every
// option that is out of its range. pick says which partition a request belongs
// to; it is called once for each call and must be safe for concurrent use.
func NewPartitioned[R any, K comparable](pick func(R) Partition[K], o PartitionedOptions) (*Partitioned[R, K], error) {
	var p problems
	p.check(pick != nil, "no function that picks the partition")
	p.check(o.IdleAfter >= 0, "IdleAfter: %v is negative", o.IdleAfter)
	p.check(o.Sweep >= 0, "Sweep: %v is negative", o.Sweep)
	p.check(o.MaxPartitions >= 0, "MaxPartitions: %d is negative", o.MaxPartitions)
	if err := p.err(); err != nil {
		return nil, err
	}
	if o.IdleAfter == 0 {
		o.IdleAfter = DefaultIdleAfter
	}
	if o.Sweep == 0 {
		o.Sweep = DefaultSweep
	}
	t := &Partitioned[R, K]{pick: pick}
	t.table.init(o)
	return t, nil
}

// TryAcquire takes n permits from the limiter of r's key. It never waits for
// permits, but for New where another call is in it.
func (t *Partitioned[R, K]) TryAcquire(r R, n int) (Lease, error) {
	ctx := context.Background()
	if err := checkCall(ctx, n, &t.table.closed); err != nil {
		return Lease{}, err
	}
	return t.table.acquire(ctx, t.pick(r), func(l Limiter) (Lease, error) { return l.TryAcquire(n) })
}

// Acquire takes n permits from the limiter of r's key and waits in its queue
// where it has one. It also waits for New where another call is in it.
func (t *Partitioned[R, K]) Acquire(ctx context.Context, r R, n int) (Lease, error) {
	if err := checkCall(ctx, n, &t.table.closed); err != nil {
		return Lease{}, err
	}
	return t.table.acquire(ctx, t.pick(r), func(l Limiter) (Lease, error) { return l.Acquire(ctx, n) })
}

// errTooManyKeys is what Stats says of a key that there is no room for.
var errTooManyKeys = errors.New("limiter: " + reasons[tooManyKeys])

// Stats returns those of the limiter of r's key, which is made if need be.
func (t *Partitioned[R, K]) Stats(r R) (Stats, error) {
	ctx := context.Background()
	if err := checkCall(ctx, 0, &t.table.closed); err != nil {
		return Stats{}, err
	}
	var s Stats
	lease, err := t.table.acquire(ctx, t.pick(r), func(l Limiter) (Lease, error) {
		if idle, ok := l.Idle(); ok && idle == Never { // closed by somebody else: the key is new
			return Lease{}, ErrClosed
		}
		s = l.Stats()
		return Lease{}, nil
	})
	if err == nil && lease == denial(tooManyKeys, 0, false) {
		err = errTooManyKeys
	}
	return s, err
}

// Len is the number of keys that are kept.
func (t *Partitioned[R, K]) Len() int { return int(t.table.count.Load()) }

// SweepNow replenishes all manual limiters and forgets all keys that have been
// idle for long enough.
func (t *Partitioned[R, K]) SweepNow() { t.table.sweepAll() }

// Close closes the limiters of all keys and returns their errors, joined. A
// second call waits for the first and returns the same. Leases that are still
// out may be released, to no effect.
func (t *Partitioned[R, K]) Close() error { return t.table.close() }
