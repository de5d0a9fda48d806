package limiter

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
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
	t.Run("no factory", func(t *testing.T) {
		table := must(NewPartitioned(func(key string) Partition[string] { return Partition[string]{Key: key} }, PartitionedOptions{}))
		_, err := table.TryAcquire("k", 1)
		require.ErrorContains(t, err, "limiter: partition k has no New")
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

func TestPartitionedReplenish(t *testing.T) {
	byHand := func(string) (Limiter, error) {
		return NewTokenBucket(manual(1, 1, 100*time.Millisecond, Queue{Limit: 1}))
	}
	tableRow(t, "G175", PartitionedOptions{}, byHand, func(t *testing.T, table *keyTable) {
		granted(t, table.of("k"), 1)
		waiter := acquire(ctx, table.of("k"), 1)
		waiter.pending(t)
		time.Sleep(100 * time.Millisecond)
		waiter.granted(t)
	})
	tableRow(t, "G178", PartitionedOptions{}, byHand, func(t *testing.T, table *keyTable) {
		granted(t, table.of("1"), 1)
		time.Sleep(150 * time.Millisecond)
		granted(t, table.of("2"), 1)
		granted(t, table.of("1"), 1)
		a, b := acquire(ctx, table.of("1"), 1), acquire(ctx, table.of("2"), 1)
		a.pending(t)
		time.Sleep(150 * time.Millisecond)
		a.granted(t)
		b.granted(t)
	})
	tableRow(t, "a chain of manual ones", PartitionedOptions{}, func(key string) (Limiter, error) {
		return Chain(must(byHand(key)), Managed(must(byHand(key))))
	}, func(t *testing.T, table *keyTable) {
		granted(t, table.of("k"), 1)
		denied(t, table.of("k"), 1)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		granted(t, table.of("k"), 1)
	})
	// G176: manual mode is not forced on limiters in a table, since no limiter
	// has a timer of its own unless somebody waits. Theirs stay as they are.
	var made *TokenBucket
	tableRow(t, "G176", PartitionedOptions{}, func(string) (Limiter, error) {
		made = must(NewTokenBucket(auto(1, 1, time.Second, Queue{})))
		return made, nil
	}, func(t *testing.T, table *keyTable) {
		granted(t, table.of("k"), 1)
		require.True(t, made.Auto())
		require.Nil(t, made.lobby)
		time.Sleep(time.Second)
		granted(t, table.of("k"), 1)
	})
}

// A phantom is a limiter whose idle time and end the test decides about.
type phantom struct {
	Limiter
	idle   func() (time.Duration, bool)
	closed func() error
}

func (p *phantom) Idle() (time.Duration, bool) { return p.idle() }

func (p *phantom) Close() error {
	if p.closed != nil {
		return p.closed()
	}
	return nil
}

func oneMinute() (time.Duration, bool) { return time.Minute, true }

func TestPartitionedForgets(t *testing.T) {
	tableRow(t, "G180", PartitionedOptions{}, func(string) (Limiter, error) {
		return &phantom{Limiter: slots(1, 0), idle: oneMinute}, nil
	}, func(t *testing.T, table *keyTable) {
		granted(t, table.of("k"), 1)
		require.Equal(t, 1, table.Len())
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		require.Zero(t, table.Len())
		granted(t, table.of("k"), 1)
		require.EqualValues(t, 2, table.made.Load())
	})
	t.Run("G180, closed outside of the locks", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var table *keyTable
			table = newTable(t, PartitionedOptions{}, func(string) (Limiter, error) {
				return &phantom{Limiter: slots(1, 0), idle: oneMinute, closed: func() error {
					_, err := table.TryAcquire("k", 0)
					return err
				}}, nil
			})
			granted(t, table.of("k"), 1)
			table.SweepNow()
			require.EqualValues(t, 2, table.made.Load())
		})
	})
	t.Run("G182", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var table *keyTable
			meanwhile := func() {}
			table = newTable(t, PartitionedOptions{Sweep: time.Hour}, func(string) (Limiter, error) {
				return &phantom{Limiter: slots(2, 0), idle: func() (time.Duration, bool) {
					meanwhile()
					return oneMinute()
				}}, nil
			})
			granted(t, table.of("k"), 1)
			meanwhile = func() { granted(t, table.of("k"), 1) } // after it was seen to be idle
			table.SweepNow()
			require.Equal(t, 1, table.Len())
			available(t, 0, table.of("k"))
			meanwhile = func() {}
			table.SweepNow()
			require.Zero(t, table.Len())
		})
	})
	t.Run("G183 E131", func(t *testing.T) { // a call that has its limiter keeps it from being forgotten
		synctest.Test(t, func(t *testing.T) {
			var table *keyTable
			table = newTable(t, PartitionedOptions{}, func(string) (Limiter, error) {
				return &sweptWhileAsked{phantom{Limiter: slots(1, 1), idle: oneMinute}, func() { table.SweepNow() }}, nil
			})
			lease := granted(t, table.of("k"), 1)
			require.Equal(t, 1, table.Len())
			require.EqualValues(t, 1, table.made.Load())
			waiter := acquire(ctx, table.of("k"), 1)
			table.SweepNow()
			require.Equal(t, 1, table.Len(), "with a waiter")
			lease.Release()
			waiter.granted(t)
			table.SweepNow()
			require.Zero(t, table.Len())
		})
	})
	var last *Concurrency
	tableRow(t, "G183 E131, closed by somebody else", PartitionedOptions{}, func(string) (Limiter, error) {
		last = slots(1, 1)
		return last, nil
	}, func(t *testing.T, table *keyTable) {
		for i := range 5 {
			granted(t, table.of("k"), 1)
			require.EqualValues(t, i+1, table.made.Load())
			require.Equal(t, 1, table.Len())
			require.NoError(t, last.Close())
		}
	})
	tableRow(t, "made closed", PartitionedOptions{}, func(string) (Limiter, error) {
		l := slots(1, 1)
		return l, l.Close()
	}, func(t *testing.T, table *keyTable) {
		_, err := table.TryAcquire("k", 1)
		require.ErrorIs(t, err, ErrClosed)
		require.ErrorContains(t, err, "partition k")
		require.EqualValues(t, maxAttempts, table.made.Load())
		require.Zero(t, table.Len())
	})
	tableRow(t, "strictly after IdleAfter", PartitionedOptions{}, oneSlot, func(t *testing.T, table *keyTable) {
		granted(t, table.of("k"), 1).Release()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(t, 1, table.Len())
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		require.Zero(t, table.Len())
	})
	tableRow(t, "options", PartitionedOptions{IdleAfter: time.Second, Sweep: time.Minute}, oneSlot, func(t *testing.T, table *keyTable) {
		granted(t, table.of("k"), 1).Release()
		time.Sleep(time.Second + 1)
		table.SweepNow()
		require.Zero(t, table.Len())
		granted(t, table.of("k"), 1).Release()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Zero(t, table.Len())
	})
}

// sweptWhileAsked sweeps the table in the middle of a call.
type sweptWhileAsked struct {
	phantom
	sweep func()
}

func (s *sweptWhileAsked) TryAcquire(n int) (Lease, error) {
	s.sweep()
	return s.Limiter.TryAcquire(n)
}

func (s *sweptWhileAsked) Acquire(ctx context.Context, n int) (Lease, error) {
	s.sweep()
	return s.Limiter.Acquire(ctx, n)
}

func TestPartitionedErrors(t *testing.T) { // G184
	var got []error
	errOther := errors.New("other")
	closes := 0
	tableRow(t, "G184", PartitionedOptions{OnError: func(err error) { got = append(got, err) }}, func(key string) (Limiter, error) {
		err := map[string]error{"1": errTest, "2": errOther}[key]
		return &phantom{Limiter: slots(1, 0), idle: oneMinute, closed: func() error { closes++; return err }}, nil
	}, func(t *testing.T, table *keyTable) {
		granted(t, table.of("1"), 1)
		granted(t, table.of("2"), 1)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		require.Zero(t, table.Len())
		require.Equal(t, 2, closes)
		require.Len(t, got, 1)
		require.ErrorIs(t, got[0], errTest)
		require.ErrorIs(t, got[0], errOther)
		granted(t, table.of("1"), 1) // the heartbeat goes on
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, 3, closes)
	})
	tableRow(t, "G184, nobody listens", PartitionedOptions{}, func(string) (Limiter, error) {
		return &phantom{Limiter: slots(1, 0), idle: oneMinute, closed: func() error { return errTest }}, nil
	}, func(t *testing.T, table *keyTable) {
		granted(t, table.of("1"), 1)
		table.SweepNow()
		require.Zero(t, table.Len())
	})
}

func TestPartitionedRemembers(t *testing.T) {
	tableRow(t, "G186", PartitionedOptions{Sweep: time.Second}, func(key string) (Limiter, error) {
		if key == "free" {
			return Unlimited(), nil
		}
		return slots(1, 0), nil
	}, func(t *testing.T, table *keyTable) {
		granted(t, table.of("held"), 1)
		granted(t, table.of("free"), 1000)
		require.Equal(t, 1, table.Len(), "no state for keys without a limit")
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, 1, table.Len())
		denied(t, table.of("held"), 1)
	})
	tableRow(t, "G187", PartitionedOptions{Sweep: time.Second}, func(string) (Limiter, error) {
		return NewTokenBucket(auto(10, 10, time.Hour, Queue{}))
	}, func(t *testing.T, table *keyTable) {
		grants := 0
		for range 200 {
			lease, err := table.TryAcquire("k", 1)
			require.NoError(t, err)
			if lease.Acquired() {
				grants++
			}
			time.Sleep(20 * time.Second)
		}
		require.Equal(t, 10+11, grants) // the 11 of 66 min 20 s
		require.EqualValues(t, 1, table.made.Load())
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		require.Zero(t, table.Len())
	})
}

func TestPartitionedIsBounded(t *testing.T) {
	tableRow(t, "cap", PartitionedOptions{MaxPartitions: 100}, func(key string) (Limiter, error) {
		if key == "free" {
			return Unlimited(), nil
		}
		return slots(1, 0), nil
	}, func(t *testing.T, table *keyTable) {
		leases := make([]Lease, 100)
		for i := range leases {
			leases[i] = granted(t, table.of(fmt.Sprint(i)), 1)
		}
		for range 10 {
			lease := denied(t, table.of("new"), 1)
			require.Equal(t, "too many keys", lease.Reason())
			noRetryAfter(t, lease)
		}
		acquire(ctx, table.of("new"), 1).denied(t, "too many keys")
		_, err := table.Stats("new")
		require.ErrorContains(t, err, "limiter: too many keys")
		require.Equal(t, 100, table.Len())
		granted(t, table.of("free"), 1)
		for _, i := range []int{77, 3, 50} { // wherever the one is that has nothing to remember
			leases[i].Release()
			name := fmt.Sprint("new", i)
			granted(t, table.of(name), 1)
			require.Equal(t, 100, table.Len())
			denied(t, table.of("new"), 1)
			denied(t, table.of(name), 1)
		}
	})
	tableRow(t, "G191", PartitionedOptions{Sweep: time.Hour}, oneSlot, func(t *testing.T, table *keyTable) {
		for i := range 2000 {
			granted(t, table.of(fmt.Sprint(i)), 1).Release()
		}
		// No lock is held while limiters are asked, and for at most sweepStep
		// partitions at a time else.
		var found [sweepStep]candidate[string]
		for i := range table.table.shards {
			s := &table.table.shards[i]
			n, next := s.read(&s.kept, fromEnd, found[:])
			require.LessOrEqual(t, n, sweepStep)
			require.Equal(t, max(0, len(s.kept.partitions)-n), next)
		}
		time.Sleep(11 * time.Second)
		table.SweepNow()
		require.Zero(t, table.Len())
	})
}

// The heartbeat runs only while there are keys, and not after Close.
func TestPartitionedHeartbeat(t *testing.T) {
	tableRow(t, "heartbeat", PartitionedOptions{}, oneSlot, func(t *testing.T, table *keyTable) {
		w := &table.table.sweeper
		beating := func() bool {
			synctest.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.beating
		}
		require.False(t, beating())
		granted(t, table.of("k"), 1).Release()
		require.True(t, beating())
		time.Sleep(11 * time.Second)
		require.False(t, beating())
		granted(t, table.of("k"), 1)
		require.True(t, beating())
		require.NoError(t, table.Close())
		require.False(t, beating())
		require.False(t, w.timer.Stop())
	})
	t.Run("large tables", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			table := newTable(t, PartitionedOptions{Sweep: 11 * time.Second}, func(string) (Limiter, error) { return slots(1, 0), nil })
			const keys = minBeat + minBeat/4
			for i := range keys {
				_, err := table.TryAcquire(strconv.Itoa(i), 0)
				require.NoError(t, err)
			}
			time.Sleep(11 * time.Second)
			synctest.Wait()
			require.InDelta(t, keys-minBeat, table.Len(), keys/tableShards*2, "a bounded number at a time")
			time.Sleep(11 * time.Second)
			synctest.Wait()
			require.Zero(t, table.Len())
		})
	})
}

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
