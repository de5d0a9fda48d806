package limiter

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
)

const (
	tableShards = 64
	// maxAttempts bounds how many limiters of a key a call tries that others
	// close as fast as they are made.
	maxAttempts = 16
)

// A table is the limiters by their keys.
type table[K comparable] struct {
	options PartitionedOptions
	seed    maphash.Seed
	shards  [tableShards]tableShard[K]
	count   atomic.Int64  // partitions that are kept or about to be
	manual  atomic.Int64  // those of them that the sweep replenishes
	hand    atomic.Uint64 // the shard where the search for room goes on
	sweeper sweeper[K]

	closed atomic.Bool
	done   chan struct{} // closed at the end of the first close
	err    error         // of that
}

// A tableShard is a part of the table; mu guards all of it, and in its
// partitions what says so. No limiter is called and no New runs under it.
type tableShard[K comparable] struct {
	mu     sync.Mutex
	closed bool
	byKey  map[K]*partition[K]
	kept   list[K] // those that have a limiter
	manual list[K] // those of them that the sweep replenishes
	hand   int     // how much of kept the search for room has not seen in this round

	_ [64]byte // keeps the mutex of the next shard off this one's cache line
}

func (t *table[K]) init(o PartitionedOptions) {
	t.options, t.seed, t.done = o, maphash.MakeSeed(), make(chan struct{})
	for i := range t.shards {
		s := &t.shards[i]
		s.byKey = make(map[K]*partition[K])
		s.kept.place = func(p *partition[K]) *int { return &p.kept }
		s.manual.place = func(p *partition[K]) *int { return &p.manual }
	}
}

func (t *table[K]) shard(key K) *tableShard[K] {
	return &t.shards[maphash.Comparable(t.seed, key)%tableShards]
}

// acquire lets call have the limiter of the partition. Where it has been closed
// by somebody who is not the table there is another one.
func (t *table[K]) acquire(ctx context.Context, want Partition[K], call func(Limiter) (Lease, error)) (Lease, error) {
	s := t.shard(want.Key)
	for range maxAttempts {
		p, err := t.enter(ctx, s, want)
		if err != nil {
			return Lease{}, err
		}
		if p == nil {
			return denial(tooManyKeys, 0, false), nil
		}
		lease, err := p.call(call)
		if err == nil || !errors.Is(err, ErrClosed) {
			return lease, err
		}
		t.drop(s, p)
	}
	return Lease{}, fmt.Errorf("limiter: partition %v is closed as soon as it is made: %w", want.Key, ErrClosed)
}

// enter returns the partition, made if need be, and keeps it from being
// forgotten until inside is counted down. It is nil where there is no room.
func (t *table[K]) enter(ctx context.Context, s *tableShard[K], want Partition[K]) (*partition[K], error) {
	s.mu.Lock()
	if p := s.byKey[want.Key]; p != nil {
		p.entered++
		p.inside.Add(1)
		made := p.made
		s.mu.Unlock()
		if made == nil {
			return p, nil
		}
		return p.wait(ctx, made)
	}
	if s.closed {
		s.mu.Unlock()
		return nil, ErrClosed
	}
	if want.Key != want.Key { // NaN: no call would find it again, nor the sweep
		s.mu.Unlock()
		return nil, fmt.Errorf("limiter: partition %v has a key that is not equal to itself", want.Key)
	}
	p := &partition[K]{key: want.Key, made: make(chan struct{})}
	p.inside.Store(1)
	s.byKey[want.Key] = p
	s.mu.Unlock()
	return t.make(s, p, want.New)
}

// drop forgets a partition whose limiter somebody else has closed.
func (t *table[K]) drop(s *tableShard[K], p *partition[K]) {
	s.mu.Lock()
	was := t.remove(s, p)
	s.mu.Unlock()
	if was {
		t.report(p.limiter.Close())
	}
}

// remove takes the partition out, if it is still in. The caller holds the lock,
// and closes the limiter when it has let go of it.
func (t *table[K]) remove(s *tableShard[K], p *partition[K]) bool {
	if s.byKey[p.key] != p {
		return false
	}
	delete(s.byKey, p.key)
	s.kept.remove(p)
	t.count.Add(-1)
	if s.manual.remove(p) {
		t.manual.Add(-1)
	}
	return true
}

func (t *table[K]) report(err error) {
	if err != nil && t.options.OnError != nil {
		t.options.OnError(err)
	}
}

func (t *table[K]) close() error {
	if t.closed.Swap(true) {
		<-t.done
		return t.err
	}
	t.sweeper.stop()
	var errs []error
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		kept := s.kept.partitions
		t.count.Add(-int64(len(kept)))
		t.manual.Add(-int64(len(s.manual.partitions)))
		s.closed, s.byKey = true, nil
		s.kept.partitions, s.manual.partitions = nil, nil
		s.mu.Unlock()
		for _, p := range kept {
			errs = append(errs, p.limiter.Close())
		}
	}
	t.err = errors.Join(errs...)
	close(t.done)
	return t.err
}
