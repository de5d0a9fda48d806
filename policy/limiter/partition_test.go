package limiter

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// How the limiter of a key is made: section G.

func TestPartitionedFactory(t *testing.T) {
	var slow atomic.Bool
	tableRow(t, "G165", PartitionedOptions{}, func(key string) (Limiter, error) {
		if key == "1" {
			slow.Store(true)
			time.Sleep(5 * time.Second)
		}
		return slots(2, 0), nil
	}, func(t *testing.T, table *keyTable) {
		a := acquire(ctx, table.of("1"), 1)
		b := begin(func() (Lease, error) { return table.TryAcquire("1", 1) })
		ctx, cancel := context.WithCancel(ctx)
		c := acquire(ctx, table.of("1"), 1)
		for i := range 1000 { // on every shard
			granted(t, table.of(fmt.Sprint("other", i)), 1)
		}
		cancel()
		c.failed(t, context.Canceled)
		a.pending(t)
		b.pending(t)
		time.Sleep(5 * time.Second)
		a.granted(t)
		b.granted(t)
		available(t, 0, table.of("1"))
		require.EqualValues(t, 1001, table.made.Load())
	})
	t.Run("G166", func(t *testing.T) {
		for range 100 {
			table := newTable(t, PartitionedOptions{}, func(string) (Limiter, error) {
				runtime.Gosched()
				return slots(10, 0), nil
			})
			var grants atomic.Int64
			var wg sync.WaitGroup
			start := make(chan struct{})
			for range 64 {
				wg.Go(func() {
					<-start
					lease, err := table.TryAcquire("k", 1)
					assert.NoError(t, err)
					if lease.Acquired() {
						grants.Add(1)
					}
				})
			}
			close(start)
			wg.Wait()
			require.EqualValues(t, 1, table.made.Load())
			require.EqualValues(t, 10, grants.Load())
		}
	})
	fail := true
	tableRow(t, "G169", PartitionedOptions{}, func(string) (Limiter, error) {
		if fail {
			fail = false
			return nil, errTest
		}
		return slots(1, 0), nil
	}, func(t *testing.T, table *keyTable) {
		_, err := table.TryAcquire("k", 1)
		require.Equal(t, errTest, err)
		require.Zero(t, table.Len())
		granted(t, table.of("k"), 1)
		require.EqualValues(t, 2, table.made.Load())
	})
	tableRow(t, "G169, with others waiting", PartitionedOptions{}, func(string) (Limiter, error) {
		time.Sleep(time.Second)
		return nil, errTest
	}, func(t *testing.T, table *keyTable) {
		a, b := acquire(ctx, table.of("k"), 1), acquire(ctx, table.of("k"), 1)
		time.Sleep(time.Second)
		a.failed(t, errTest)
		b.failed(t, errTest)
		require.EqualValues(t, 1, table.made.Load())
	})
	tableRow(t, "a factory that panics", PartitionedOptions{}, func(string) (Limiter, error) {
		time.Sleep(time.Second)
		panic(errTest)
	}, func(t *testing.T, table *keyTable) {
		a := begin(func() (l Lease, err error) {
			defer func() { err = recover().(error) }()
			return table.TryAcquire("k", 1)
		})
		b := acquire(ctx, table.of("k"), 1)
		time.Sleep(time.Second)
		a.failed(t, errTest)
		b.failed(t, errPanicked)
		require.Zero(t, table.Len())
	})
	tableRow(t, "no limiter", PartitionedOptions{}, func(string) (Limiter, error) { return nil, nil }, func(t *testing.T, table *keyTable) {
		_, err := table.TryAcquire("k", 1)
		require.ErrorContains(t, err, "limiter: New of partition k returned no limiter")
		require.Zero(t, table.Len())
	})
	tableRow(t, "bad options", PartitionedOptions{}, func(string) (Limiter, error) {
		return NewConcurrency(ConcurrencyOptions{}) // with the error comes a nil pointer that is no nil Limiter
	}, func(t *testing.T, table *keyTable) {
		for range 2 {
			_, err := table.TryAcquire("k", 1)
			require.ErrorContains(t, err, "limiter: PermitLimit: 0")
		}
		require.EqualValues(t, 2, table.made.Load())
	})
	t.Run("a key that is not equal to itself", func(t *testing.T) {
		table := must(NewPartitioned(func(key float64) Partition[float64] {
			return Partition[float64]{Key: key, New: func(float64) (Limiter, error) { return slots(1, 0), nil }}
		}, PartitionedOptions{}))
		_, err := table.TryAcquire(math.NaN(), 1)
		require.ErrorContains(t, err, "limiter: partition NaN has a key that is not equal to itself")
		require.Zero(t, table.Len())
		require.NoError(t, table.Close())
	})
	t.Run("no factory", func(t *testing.T) {
		table := must(NewPartitioned(func(key string) Partition[string] { return Partition[string]{Key: key} }, PartitionedOptions{}))
		_, err := table.TryAcquire("k", 1)
		require.ErrorContains(t, err, "limiter: partition k has no New")
	})
}
