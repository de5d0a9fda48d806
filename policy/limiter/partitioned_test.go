package limiter

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Limiters by key: section G.

// A keyTable is a table whose keys are the requests, with a factory that is
// counted.
type keyTable struct {
	*Partitioned[string, string]
	made atomic.Int64
}

func newTable(t testing.TB, o PartitionedOptions, factory func(key string) (Limiter, error)) *keyTable {
	t.Helper()
	k := new(keyTable)
	table, err := NewPartitioned(func(key string) Partition[string] {
		return Partition[string]{Key: key, New: func(key string) (Limiter, error) {
			k.made.Add(1)
			return factory(key)
		}}
	}, o)
	require.NoError(t, err)
	k.Partitioned = table
	t.Cleanup(func() { table.Close() })
	return k
}

// of is the limiter that a key has, for the helpers that want one.
func (k *keyTable) of(key string) Limiter { return keyOf{k.Partitioned, key} }

type keyOf struct {
	table *Partitioned[string, string]
	key   string
}

func (k keyOf) TryAcquire(n int) (Lease, error) { return k.table.TryAcquire(k.key, n) }

func (k keyOf) Acquire(ctx context.Context, n int) (Lease, error) {
	return k.table.Acquire(ctx, k.key, n)
}

func (k keyOf) Stats() Stats { return must(k.table.Stats(k.key)) }

func (k keyOf) Idle() (time.Duration, bool) { return 0, false }

func (k keyOf) Close() error { return nil }

// tableRow runs f in a bubble with a table.
func tableRow(t *testing.T, id string, o PartitionedOptions, factory func(key string) (Limiter, error), f func(t *testing.T, table *keyTable)) {
	t.Helper()
	t.Run(id, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(t, newTable(t, o, factory)) })
	})
}

func oneSlot(string) (Limiter, error) { return slots(1, 1), nil }

func TestPartitionedKeys(t *testing.T) {
	tableRow(t, "G164", PartitionedOptions{}, oneSlot, func(t *testing.T, table *keyTable) {
		held := granted(t, table.of("1"), 1)
		waiter := acquire(ctx, table.of("1"), 1)
		waiter.pending(t)
		acquire(ctx, table.of("2"), 1).granted(t)
		require.Equal(t, Stats{Queued: 1, Successful: 1}, table.of("1").Stats())
		require.Equal(t, 2, table.Len())
		held.Release()
		waiter.granted(t)
	})
	tableRow(t, "arguments first", PartitionedOptions{}, oneSlot, func(t *testing.T, table *keyTable) {
		_, err := table.TryAcquire("1", -1)
		require.ErrorAs(t, err, new(PermitError))
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		_, err = table.Acquire(ctx, "1", 1)
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, table.made.Load())
		_, err = table.TryAcquire("1", 2)
		require.Equal(t, PermitError{Asked: 2, Limit: 1}, err)
	})
}

func TestPartitionedPick(t *testing.T) { // G168: what Go has for a function that throws is a panic
	table := must(NewPartitioned(func(string) Partition[string] { panic(errTest) }, PartitionedOptions{}))
	require.PanicsWithValue(t, errTest, func() { table.TryAcquire("k", 1) })
	require.PanicsWithValue(t, errTest, func() { table.Acquire(ctx, "k", 1) })
	require.PanicsWithValue(t, errTest, func() { table.Stats("k") })
	require.Zero(t, table.Len())
	require.NoError(t, table.Close())
}

func TestPartitionedClose(t *testing.T) {
	tableRow(t, "G170 G173", PartitionedOptions{}, oneSlot, func(t *testing.T, table *keyTable) {
		require.NoError(t, table.Close())
		_, err := table.TryAcquire("k", 1)
		require.ErrorIs(t, err, ErrClosed)
		_, err = table.Acquire(ctx, "k", 1)
		require.ErrorIs(t, err, ErrClosed)
		_, err = table.Stats("k")
		require.ErrorIs(t, err, ErrClosed)
		_, err = table.TryAcquire("k", -1)
		require.ErrorAs(t, err, new(PermitError))
		require.Zero(t, table.made.Load())
	})
	release := make(chan struct{})
	closes := 0
	t.Run("G174", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			release = make(chan struct{})
			table := newTable(t, PartitionedOptions{}, func(string) (Limiter, error) {
				return closer{slots(1, 0), func() error {
					closes++
					<-release
					return errTest
				}}, nil
			})
			granted(t, table.of("k"), 1)
			first := begin(func() (Lease, error) { return Lease{}, table.Close() })
			second := begin(func() (Lease, error) { return Lease{}, table.Close() })
			first.pending(t)
			second.pending(t)
			close(release)
			first.failed(t, errTest)
			second.failed(t, errTest)
			require.Equal(t, 1, closes)
		})
	})
	tableRow(t, "G188", PartitionedOptions{}, oneSlot, func(t *testing.T, table *keyTable) {
		lease := granted(t, table.of("k"), 1)
		waiter := acquire(ctx, table.of("k"), 1)
		require.NoError(t, table.Close())
		waiter.denied(t, "limiter closed")
		lease.Release()
		require.Zero(t, table.Len())
	})
	closed := 0
	tableRow(t, "while New runs", PartitionedOptions{}, func(string) (Limiter, error) {
		time.Sleep(time.Second)
		return closer{slots(1, 0), func() error { closed++; return nil }}, nil
	}, func(t *testing.T, table *keyTable) {
		a := acquire(ctx, table.of("k"), 1)
		require.NoError(t, table.Close())
		time.Sleep(time.Second)
		a.failed(t, ErrClosed)
		require.Equal(t, 1, closed)
		require.Zero(t, table.Len())
	})
}

// closer is a limiter that tells when it is closed.
type closer struct {
	Limiter
	close func() error
}

func (c closer) Close() error { return c.close() }

func TestPartitionedOptions(t *testing.T) {
	_, err := NewPartitioned[string, string](nil, PartitionedOptions{IdleAfter: -1, Sweep: -1, MaxPartitions: -1})
	for _, name := range []string{"no function that picks", "IdleAfter: -1ns", "Sweep: -1ns", "MaxPartitions: -1"} {
		require.ErrorContains(t, err, "limiter: "+name)
	}
}

// Many callers, keys that come and go, and sweeps all the while: nobody sees an
// error, and no key ever has more out than its limit.
func TestPartitionedUnderLoad(t *testing.T) {
	var out [8]atomic.Int64
	table := newTable(t, PartitionedOptions{IdleAfter: 1, Sweep: time.Microsecond, MaxPartitions: 6}, func(string) (Limiter, error) {
		return NewConcurrency(ConcurrencyOptions{PermitLimit: 2, Queue: Queue{Limit: 1}})
	})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 10_000 {
				k := (i*7 + g) % len(out)
				lease, err := table.Acquire(ctx, fmt.Sprint(k), 1)
				if !assert.NoError(t, err) {
					return
				}
				if !lease.Acquired() {
					continue
				}
				if !assert.LessOrEqual(t, out[k].Add(1), int64(2)) {
					return
				}
				out[k].Add(-1)
				lease.Release()
				if i%64 == 0 {
					table.SweepNow()
				}
			}
		})
	}
	wg.Wait()
	require.Greater(t, table.made.Load(), int64(len(out)), "keys were forgotten")
}
