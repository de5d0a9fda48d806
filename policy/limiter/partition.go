package limiter

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

// A partition is a key and its limiter. It begins without a limiter, while New
// runs. What every call reads comes first.
type partition[K comparable] struct {
	made    chan struct{} // closed when limiter or err is there; nil from then on; guarded by the shard
	limiter Limiter       // constant from then on, as is err
	entered uint64        // how many calls have come; guarded by the shard
	inside  atomic.Int64  // how many are on their way

	key          K
	err          error
	kept, manual int // where it is in these lists; guarded by the shard
}

func (p *partition[K]) call(call func(Limiter) (Lease, error)) (Lease, error) {
	defer p.inside.Add(-1)
	return call(p.limiter)
}

// wait waits until New is done in another call.
func (p *partition[K]) wait(ctx context.Context, made <-chan struct{}) (*partition[K], error) {
	select {
	case <-made:
	case <-ctx.Done():
		p.inside.Add(-1)
		return nil, ended(ctx)
	}
	return p.result()
}

func (p *partition[K]) result() (*partition[K], error) {
	if p.limiter == nil {
		if errors.Is(p.err, errTooManyKeys) {
			return nil, nil
		}
		return nil, p.err
	}
	return p, nil
}

var errPanicked = errors.New("limiter: New of the partition panicked")

// make gives the partition its limiter. Those who wait for it get the same, or
// the same error.
func (t *table[K]) make(s *tableShard[K], p *partition[K], newLimiter func(K) (Limiter, error)) (*partition[K], error) {
	func() {
		var l Limiter
		err := errPanicked
		defer func() { t.finish(s, p, l, err) }()
		l, err = construct(p.key, newLimiter)
	}()
	return p.result()
}

func construct[K comparable](key K, newLimiter func(K) (Limiter, error)) (Limiter, error) {
	if newLimiter == nil {
		return nil, fmt.Errorf("limiter: partition %v has no New", key)
	}
	l, err := newLimiter(key)
	if err != nil {
		return nil, err // whatever l is, it may be a nil pointer of some type
	}
	if l == nil {
		return nil, fmt.Errorf("limiter: New of partition %v returned no limiter", key)
	}
	return l, nil
}

// finish keeps the partition, or takes it out of the table again where it has
// no limiter, needs none or there is no room.
func (t *table[K]) finish(s *tableShard[K], p *partition[K], l Limiter, err error) {
	keep := err == nil && !unbounded(l)
	if keep && !t.reserve() {
		keep, err = false, errTooManyKeys
	}
	manual := keep && isManual(l)
	s.mu.Lock()
	if s.closed && err == nil {
		if keep {
			t.count.Add(-1)
		}
		keep, err = false, ErrClosed
	}
	if err == nil {
		p.limiter = l
	}
	p.err = err
	made := p.made
	p.made = nil
	if keep {
		t.keep(s, p, manual)
	} else if s.byKey[p.key] == p {
		delete(s.byKey, p.key)
	}
	s.mu.Unlock()
	close(made)
	switch {
	case keep:
		t.sweeper.wake(t)
	case l != nil && err != nil:
		t.report(l.Close())
	}
}

func isManual(l Limiter) bool {
	r, ok := l.(Replenisher)
	return ok && !r.Auto()
}

func (t *table[K]) keep(s *tableShard[K], p *partition[K], manual bool) {
	s.kept.add(p)
	if manual {
		s.manual.add(p)
		t.manual.Add(1)
	}
}

// A list is some of the partitions of a shard, in no order. Each knows its
// place, plus one, so that 0 is that of one which is not in.
type list[K comparable] struct {
	partitions []*partition[K]
	place      func(*partition[K]) *int
}

func (l *list[K]) add(p *partition[K]) {
	l.partitions = append(l.partitions, p)
	*l.place(p) = len(l.partitions)
}

func (l *list[K]) remove(p *partition[K]) bool {
	i := *l.place(p)
	if i == 0 {
		return false
	}
	last := len(l.partitions) - 1
	moved := l.partitions[last]
	l.partitions[i-1] = moved
	*l.place(moved) = i
	*l.place(p) = 0
	l.partitions[last] = nil
	l.partitions = l.partitions[:last]
	return true
}
