package limiter

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// How keys are forgotten and replenished: section G.

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
			meanwhile = func() {}
			require.Equal(t, 1, table.Len())
			available(t, 0, table.of("k"))
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
		switch key {
		case "free":
			return Unlimited(), nil
		case "free chain":
			return Chain(Unlimited(), must(Chain(Unlimited())))
		case "half free chain":
			return Chain(must(Chain(Unlimited())), slots(1, 0))
		}
		return slots(1, 0), nil
	}, func(t *testing.T, table *keyTable) {
		granted(t, table.of("held"), 1)
		granted(t, table.of("free"), 1000)
		granted(t, table.of("free chain"), 1000)
		require.Equal(t, 1, table.Len(), "no state for keys without a limit")
		granted(t, table.of("half free chain"), 1).Release()
		require.Equal(t, 2, table.Len())
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
