package limiter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What stands around other limiters: section J.

func TestManagedForwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // J260
		b := Managed(must(NewTokenBucket(manual(1, 1, time.Second, Queue{Limit: 1}))))
		require.False(t, b.Auto())
		require.Equal(t, time.Second, b.Period())
		granted(t, b, 1)
		time.Sleep(time.Second)
		require.True(t, b.Replenish())
		granted(t, b, 1)

		c := Managed(slots(1, 1))
		require.True(t, c.Auto())
		require.Equal(t, Never, c.Period())
		require.False(t, c.Replenish())
	})
	each(t, 2, Queue{Limit: 1}, func(t *testing.T, l *fixture) { // J261
		log := &recorder{Limiter: l.Limiter}
		m := Managed(log)
		lease, err := m.TryAcquire(1)
		require.NoError(t, err)
		require.Equal(t, log.last, lease)
		lease, err = m.Acquire(ctx, 1)
		require.NoError(t, err)
		require.Equal(t, log.last, lease)
		lease, err = m.TryAcquire(1)
		require.NoError(t, err)
		require.Equal(t, log.last, lease)
		require.Equal(t, l.Stats(), m.Stats())
		_, err = m.TryAcquire(3)
		require.Equal(t, PermitError{Asked: 3, Limit: 2}, err)
	})
}

// recorder keeps the lease that it gave last.
type recorder struct {
	Limiter
	last Lease
}

func (r *recorder) TryAcquire(n int) (Lease, error) {
	lease, err := r.Limiter.TryAcquire(n)
	r.last = lease
	return lease, err
}

func (r *recorder) Acquire(ctx context.Context, n int) (Lease, error) {
	lease, err := r.Limiter.Acquire(ctx, n)
	r.last = lease
	return lease, err
}

func TestManagedClose(t *testing.T) { // J262
	var closes atomic.Int64
	m := Managed(closer{slots(1, 0), func() error { closes.Add(1); return errTest }})
	var failed atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if m.Close() != nil {
				failed.Add(1)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, closes.Load())
	require.EqualValues(t, 1, failed.Load())
	_, err := m.TryAcquire(1)
	require.ErrorIs(t, err, ErrClosed)
	_, err = m.Acquire(ctx, 1)
	require.ErrorIs(t, err, ErrClosed)
	_, err = m.TryAcquire(-1)
	require.ErrorAs(t, err, new(PermitError))
	require.False(t, m.Replenish())
	idle(t, Never, m)
}

func TestManagedLifetime(t *testing.T) {
	var made *ManagedLifetime
	tableRow(t, "J263", PartitionedOptions{Sweep: time.Second}, func(string) (Limiter, error) {
		made = Managed(idler{slots(1, 0), time.Hour, true})
		return made, nil
	}, func(t *testing.T, table *keyTable) {
		granted(t, table.of("k"), 1)
		inUse(t, made)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, 1, table.Len())
		require.NoError(t, made.Close())
		time.Sleep(time.Second)
		synctest.Wait()
		require.Zero(t, table.Len())
	})
	tableRow(t, "new again at once", PartitionedOptions{}, func(string) (Limiter, error) {
		made = Managed(slots(1, 0))
		return made, nil
	}, func(t *testing.T, table *keyTable) {
		granted(t, table.of("k"), 1)
		require.NoError(t, made.Close())
		granted(t, table.of("k"), 1)
		require.EqualValues(t, 2, table.made.Load())
		require.Equal(t, 1, table.Len())
		require.NoError(t, made.Close())
		require.Equal(t, Stats{Available: 1}, table.of("k").Stats(), "of the new limiter")
		require.EqualValues(t, 3, table.made.Load())
	})
}

func TestManagedPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // J266
		var registered []string
		table := must(NewPartitioned(func(key string) Partition[string] {
			return ManagedPartition(key, oneSlot, func(m *ManagedLifetime, key string) error {
				require.Zero(t, m.Stats().Successful, "before the first grant")
				registered = append(registered, key)
				return nil
			})
		}, PartitionedOptions{}))
		for range 3 {
			_, err := table.TryAcquire("a", 1)
			require.NoError(t, err)
		}
		require.Equal(t, []string{"a"}, registered)
		require.NoError(t, table.Close())
	})
	synctest.Test(t, func(t *testing.T) { // J267
		closes, refuse := 0, true
		table := must(NewPartitioned(func(key string) Partition[string] {
			return ManagedPartition(key, func(string) (Limiter, error) {
				return closer{slots(1, 0), func() error { closes++; return nil }}, nil
			}, func(*ManagedLifetime, string) error {
				if refuse {
					return errTest
				}
				return nil
			})
		}, PartitionedOptions{}))
		_, err := table.TryAcquire("a", 1)
		require.ErrorIs(t, err, errTest)
		require.Equal(t, 1, closes)
		refuse = false
		lease, err := table.TryAcquire("a", 1)
		require.NoError(t, err)
		require.True(t, lease.Acquired())
		require.NoError(t, table.Close())
	})
	synctest.Test(t, func(t *testing.T) { // J267, as a panic
		closes, refuse := 0, true
		table := must(NewPartitioned(func(key string) Partition[string] {
			return ManagedPartition(key, func(string) (Limiter, error) {
				return closer{slots(1, 0), func() error { closes++; return nil }}, nil
			}, func(*ManagedLifetime, string) error {
				if refuse {
					panic(errTest)
				}
				return nil
			})
		}, PartitionedOptions{}))
		require.PanicsWithValue(t, errTest, func() { table.TryAcquire("a", 1) })
		require.Equal(t, 1, closes)
		refuse = false
		lease, err := table.TryAcquire("a", 1)
		require.NoError(t, err)
		require.True(t, lease.Acquired())
		require.NoError(t, table.Close())
	})
	synctest.Test(t, func(t *testing.T) { // J268
		byKey := map[string]*ManagedLifetime{}
		errTwice := errors.New("is registered")
		register := func(m *ManagedLifetime, key string) error {
			if byKey[key] != nil {
				return errTwice
			}
			byKey[key] = m
			return nil
		}
		var last Limiter
		table := must(NewPartitioned(func(key string) Partition[string] {
			return ManagedPartition(key, func(string) (Limiter, error) {
				last = slots(1, 0)
				return last, nil
			}, register)
		}, PartitionedOptions{}))
		require.NoError(t, register(Managed(slots(1, 0)), "a"))
		_, err := table.TryAcquire("a", 1)
		require.ErrorIs(t, err, errTwice)
		require.ErrorContains(t, err, "partition a")
		_, err = last.TryAcquire(1)
		require.ErrorIs(t, err, ErrClosed)
		require.NoError(t, table.Close())
	})
	nobody := func(*ManagedLifetime, string) error { panic("there is nobody to register") }
	_, err := ManagedPartition("a", func(string) (Limiter, error) { return nil, errTest }, nobody).New("a")
	require.Equal(t, errTest, err)
	_, err = ManagedPartition("a", nil, nobody).New("a")
	require.ErrorContains(t, err, "partition a has no New")
	_, err = ManagedPartition("a", oneSlot, nil).New("a")
	require.ErrorContains(t, err, "partition a has no function that registers it")
}

// J275: what two policies call the same is two keys.
func TestCompositeKey(t *testing.T) {
	type key struct{ policy, name string }
	require.NotEqual(t, key{"p1", "k"}, key{"p2", "k"})
	table := must(NewPartitioned(func(k key) Partition[key] {
		return Partition[key]{Key: k, New: func(key) (Limiter, error) { return slots(1, 0), nil }}
	}, PartitionedOptions{}))
	for _, k := range []key{{"p1", "k"}, {"p2", "k"}} {
		lease, err := table.TryAcquire(k, 1)
		require.NoError(t, err)
		require.True(t, lease.Acquired())
	}
	require.Equal(t, 2, table.Len())
	require.NoError(t, table.Close())
}

// A thousand lives of one key: nobody sees the end of another's limiter.
func TestManagedLives(t *testing.T) {
	table := newTable(t, PartitionedOptions{}, oneSlot)
	var lives sync.Map
	managed := must(NewPartitioned(func(key string) Partition[string] {
		return ManagedPartition(key, oneSlot, func(m *ManagedLifetime, key string) error {
			lives.Store(m, key)
			return nil
		})
	}, PartitionedOptions{Sweep: time.Millisecond}))
	table.Partitioned = managed
	var wg sync.WaitGroup
	for g := range 2 {
		wg.Go(func() {
			for i := range 5000 {
				lease, err := managed.TryAcquire(fmt.Sprint(i%3), 1)
				assert.NoError(t, err)
				lease.Release()
				if (i+g)%5 == 0 {
					lives.Range(func(m, _ any) bool {
						lives.Delete(m)
						return assert.NoError(t, m.(*ManagedLifetime).Close())
					})
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, managed.Close())
}
