package main

import (
	"context"
	"hash/maphash"
	"math"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"go.uber.org/ratelimit"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	own "github.com/seed-ee4278a0/throttled/policy/limiter"
)

const (
	plenty  = math.MaxInt32
	waiters = 1000
	keys    = 100_000
	shards  = 64
)

func scenes() []scene {
	return []scene{
		{"rate, granted", append(rates(plenty, false),
			contender{name: "uber-go/ratelimit", setup: func() (func(int), func()) {
				l := ratelimit.New(plenty, ratelimit.WithSlack(plenty))
				return func(int) { l.Take() }, nothing
			}})},
		{"rate, denied", rates(1, true)},
		{"concurrency, granted", []contender{
			{name: "x/sync/semaphore", setup: func() (func(int), func()) {
				s := semaphore.NewWeighted(plenty)
				return func(int) {
					if s.TryAcquire(1) {
						s.Release(1)
					}
				}, nothing
			}},
			{name: "throttled concurrency", setup: func() (func(int), func()) { return try(concurrency(plenty, 0)), nothing }},
		}},
		{"concurrency, 1,000 waiters", []contender{
			{name: "x/sync/semaphore", run: crowd, setup: func() (func(int), func()) {
				s := semaphore.NewWeighted(1)
				return func(int) {
					check(s.Acquire(context.Background(), 1))
					runtime.Gosched() // so that the others come and wait
					s.Release(1)
				}, nothing
			}},
			{name: "throttled concurrency", run: crowd, setup: func() (func(int), func()) {
				l := concurrency(1, waiters)
				return func(int) {
					lease := must(l.Acquire(context.Background(), 1))
					runtime.Gosched()
					lease.Release()
				}, nothing
			}},
		}},
		{"100,000 keys", keyed()},
	}
}

func nothing() {}

// rates are rate limiters that grant always, or never again after once.
func rates(limit int, spent bool) []contender {
	contenders := []contender{{name: "x/time/rate", setup: func() (func(int), func()) {
		l := rate.NewLimiter(rate.Limit(float64(limit)/3600), limit)
		if spent {
			l.Allow()
		}
		return func(int) { l.Allow() }, nothing
	}}}
	for _, o := range []struct {
		name string
		make func() own.Limiter
	}{
		{"throttled token bucket", func() own.Limiter { return bucket(limit) }},
		{"throttled fixed window", func() own.Limiter {
			return must(own.NewFixedWindow(own.FixedWindowOptions{PermitLimit: limit, Window: time.Hour}))
		}},
		{"throttled sliding window of 10", func() own.Limiter {
			return must(own.NewSlidingWindow(own.SlidingWindowOptions{PermitLimit: limit, Window: time.Hour, Segments: 10}))
		}},
	} {
		contenders = append(contenders, contender{name: o.name, setup: func() (func(int), func()) {
			l := o.make()
			if spent {
				must(l.TryAcquire(1))
			}
			return try(l), nothing
		}})
	}
	return append(contenders, contender{name: "sethvargo/go-limiter", setup: func() (func(int), func()) {
		s := store(limit)
		take := takeOne(s)
		if spent {
			take("one")
		}
		return func(int) { take("one") }, func() { check(s.Close(context.Background())) }
	}})
}

func try(l own.Limiter) func(int) {
	return func(int) {
		lease, _ := l.TryAcquire(1)
		lease.Release()
	}
}

func bucket(limit int) own.Limiter {
	return must(own.NewTokenBucket(own.TokenBucketOptions{TokenLimit: limit, TokensPerPeriod: limit, Period: time.Hour}))
}

func concurrency(limit, queue int) own.Limiter {
	return must(own.NewConcurrency(own.ConcurrencyOptions{PermitLimit: limit, Queue: own.Queue{Limit: queue}}))
}

func store(limit int) limiter.Store {
	return must(memorystore.New(&memorystore.Config{Tokens: uint64(limit), Interval: time.Hour}))
}

func takeOne(s limiter.Store) func(key string) {
	ctx := context.Background()
	return func(key string) {
		_, _, _, _, err := s.Take(ctx, key)
		check(err)
	}
}

// crowd makes the calls from many goroutines at the same time.
func crowd(b *testing.B, call func(int)) {
	var wg sync.WaitGroup
	for i := range waiters {
		n := b.N / waiters
		if i < b.N%waiters {
			n++
		}
		wg.Go(func() {
			for range n {
				call(0)
			}
		})
	}
	wg.Wait()
}

// keyed are limiters for each of many keys, all of which are there.
func keyed() []contender {
	names := make([]string, keys)
	for i := range names {
		names[i] = "client-" + strconv.Itoa(i*7919%keys)
	}
	over := func(try func(string)) func(int) {
		for _, name := range names {
			try(name)
		}
		return func(i int) { try(names[i%keys]) }
	}
	return []contender{
		{name: "map of throttled token buckets", setup: func() (func(int), func()) {
			m := newSharded(func() own.Limiter { return bucket(plenty) })
			return over(func(key string) { must(m.get(key).TryAcquire(1)) }), nothing
		}},
		{name: "throttled partitioned", setup: func() (func(int), func()) {
			t := must(own.NewPartitioned(func(key string) own.Partition[string] {
				return own.Partition[string]{Key: key, New: perKey}
			}, own.PartitionedOptions{}))
			return over(func(key string) { must(t.TryAcquire(key, 1)) }), func() { check(t.Close()) }
		}},
		{name: "map of x/time/rate", setup: func() (func(int), func()) {
			m := newSharded(func() *rate.Limiter { return rate.NewLimiter(plenty, plenty) })
			return over(func(key string) { m.get(key).Allow() }), nothing
		}},
		{name: "sethvargo/go-limiter", setup: func() (func(int), func()) {
			s := store(plenty)
			return over(takeOne(s)), func() { check(s.Close(context.Background())) }
		}},
	}
}

func perKey(string) (own.Limiter, error) { return bucket(plenty), nil }

// sharded is the least that a table of limiters can be: it never forgets.
type sharded[L any] struct {
	seed   maphash.Seed
	shards [shards]struct {
		mu sync.Mutex
		m  map[string]L
		_  [64]byte
	}
	make func() L
}

func newSharded[L any](make func() L) *sharded[L] {
	return &sharded[L]{seed: maphash.MakeSeed(), make: make}
}

func (m *sharded[L]) get(key string) L {
	s := &m.shards[maphash.String(m.seed, key)%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.m[key]
	if !ok {
		if s.m == nil {
			s.m = make(map[string]L)
		}
		l = m.make()
		s.m[key] = l
	}
	return l
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
