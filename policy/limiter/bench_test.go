package limiter

import (
	"context"
	"hash/maphash"
	"math"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// benchKinds are limiters that grant always, or where something has been taken
// never again.
func benchKinds(limit int) []struct {
	name string
	l    Limiter
} {
	return []struct {
		name string
		l    Limiter
	}{
		{"token bucket", must(NewTokenBucket(TokenBucketOptions{TokenLimit: limit, TokensPerPeriod: limit, Period: time.Hour}))},
		{"fixed window", must(NewFixedWindow(FixedWindowOptions{PermitLimit: limit, Window: time.Hour}))},
		{"sliding window", must(NewSlidingWindow(SlidingWindowOptions{PermitLimit: limit, Window: time.Hour, Segments: 10}))},
		{"concurrency", must(NewConcurrency(ConcurrencyOptions{PermitLimit: limit}))},
	}
}

func tryAndRelease(l Limiter) {
	lease, _ := l.TryAcquire(1)
	lease.Release()
}

// BenchmarkTryAcquire is one caller that meets nobody.
func BenchmarkTryAcquire(b *testing.B) {
	for _, k := range benchKinds(math.MaxInt32) {
		b.Run(k.name+"/granted", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				tryAndRelease(k.l)
			}
		})
	}
	for _, k := range benchKinds(1) {
		granted(b, k.l, 1)
		b.Run(k.name+"/denied", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				tryAndRelease(k.l)
			}
		})
	}
}

// BenchmarkContended is a caller for each core.
func BenchmarkContended(b *testing.B) {
	for _, k := range benchKinds(math.MaxInt32) {
		b.Run(k.name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					tryAndRelease(k.l)
				}
			})
		})
	}
}

// BenchmarkWaiters is the handing over of one permit among a thousand that wait
// for it.
func BenchmarkWaiters(b *testing.B) {
	const waiters = 1000
	for _, order := range []Order{OldestFirst, NewestFirst} {
		b.Run(order.String(), func(b *testing.B) {
			l := must(NewConcurrency(ConcurrencyOptions{PermitLimit: 1, Queue: Queue{Limit: waiters, Order: order}}))
			b.ReportAllocs()
			var wg sync.WaitGroup
			turns := make(chan struct{}, b.N)
			for range b.N {
				turns <- struct{}{}
			}
			close(turns)
			b.ResetTimer()
			for range waiters {
				wg.Go(func() {
					for range turns {
						lease, _ := l.Acquire(context.Background(), 1)
						runtime.Gosched() // so that the others come and wait
						lease.Release()
					}
				})
			}
			wg.Wait()
		})
	}
}

const benchKeys = 100_000

func benchKeyNames() []string {
	keys := make([]string, benchKeys)
	for i := range keys {
		keys[i] = "client-" + strconv.Itoa(i*7919%benchKeys)
	}
	return keys
}

func perKey(string) (Limiter, error) {
	return NewTokenBucket(TokenBucketOptions{TokenLimit: math.MaxInt32, TokensPerPeriod: 1, Period: time.Second})
}

// BenchmarkPartitioned is a token bucket for each of 100,000 keys beside the
// same in a bare map of 64 shards that never forgets.
func BenchmarkPartitioned(b *testing.B) {
	keys := benchKeyNames()
	b.Run("map", func(b *testing.B) {
		type shard struct {
			mu sync.Mutex
			m  map[string]Limiter
			_  [64]byte
		}
		shards := make([]shard, tableShards)
		seed := maphash.MakeSeed()
		try := func(key string) {
			s := &shards[maphash.String(seed, key)%tableShards]
			s.mu.Lock()
			l := s.m[key]
			s.mu.Unlock()
			l.TryAcquire(1)
		}
		for _, key := range keys {
			s := &shards[maphash.String(seed, key)%tableShards]
			if s.m == nil {
				s.m = make(map[string]Limiter)
			}
			s.m[key], _ = perKey(key)
		}
		benchOver(b, keys, try)
	})
	b.Run("table", func(b *testing.B) {
		table, err := NewPartitioned(func(key string) Partition[string] {
			return Partition[string]{Key: key, New: perKey}
		}, PartitionedOptions{})
		require.NoError(b, err)
		defer table.Close()
		for _, key := range keys {
			table.TryAcquire(key, 1)
		}
		benchOver(b, keys, func(key string) { table.TryAcquire(key, 1) })
	})
}

func benchOver(b *testing.B, keys []string, try func(string)) {
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		try(keys[i])
		if i++; i == len(keys) {
			i = 0
		}
	}
}

// What a call allocates: nothing, granted or denied, by table or by chain, but
// the lease of a chain that has to give back to several, and a wait where
// nobody has waited before.
func TestAllocations(t *testing.T) {
	none := func(name string, f func()) {
		t.Helper()
		require.Zero(t, testing.AllocsPerRun(100, f), name)
	}
	for _, k := range benchKinds(math.MaxInt32) {
		none(k.name, func() { tryAndRelease(k.l) })
		none(k.name, func() {
			lease, _ := k.l.Acquire(ctx, 1)
			lease.Release()
		})
		none(k.name, func() { k.l.TryAcquire(0) })
		none(k.name, func() {
			k.l.Stats()
			k.l.Idle()
		})
	}
	for _, k := range benchKinds(1) {
		granted(t, k.l, 1)
		none(k.name, func() { tryAndRelease(k.l) })
		none(k.name, func() { k.l.Acquire(ctx, 1) })
		chain := must(Chain(perMinute(math.MaxInt32), k.l))
		none(k.name, func() { tryAndRelease(chain) })
	}
	chain := must(Chain(perMinute(math.MaxInt32), slots(1, 0), perMinute(math.MaxInt32)))
	require.Equal(t, 1.0, testing.AllocsPerRun(100, func() { tryAndRelease(chain) }))

	table := must(NewPartitioned(func(key string) Partition[string] {
		return Partition[string]{Key: key, New: perKey}
	}, PartitionedOptions{}))
	defer table.Close()
	none("table", func() { table.TryAcquire("k", 1) })
	none("table", func() { table.Acquire(ctx, "k", 1) })

	bucket := must(NewTokenBucket(TokenBucketOptions{TokenLimit: 1, TokensPerPeriod: 1, Period: 10 * time.Microsecond, Queue: Queue{Limit: 1}}))
	granted(t, bucket, 1)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { bucket.Acquire(ctx, 1) }), 1.0)
}
