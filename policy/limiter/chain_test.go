package limiter

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Chains, of limiters and of selective ones: section F.
//
// Rows without a test, because the language rules out what they are about:
//
//	F144  Release returns nothing, so releases cannot fail and join their errors
//	F145  likewise; that the other members get theirs back is TestChainOrder
//	F150  a lease has one RetryAfter and one Reason and no list of names; a
//	      denial's are those of the member that denied, F140
//	F156  Replenish returns no error; that all members are replenished is F155
//
// Of A004 the statistics: Stats returns no error, and after Close what it has.
// Of B075 and C093 the nil options: they are values.

// chained runs f in a bubble with a chain of the members, once as a chain of
// limiters and once as one of selective limiters.
func chained(t *testing.T, id string, members func() []Limiter, f func(t *testing.T, chain, m1, m2 Limiter)) {
	t.Helper()
	t.Run(id, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := members()
			f(t, must(Chain(m...)), m[0], m[1])
		})
	})
	t.Run(id+" selective", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := members()
			var selective []Selective[string]
			for _, l := range m {
				selective = append(selective, keyless{l})
			}
			f(t, keyed{must(ChainSelective(selective...))}, m[0], m[1])
		})
	})
}

// keyless is a limiter as a selective one, and keyed the other way round.
type (
	keyless struct{ Limiter }
	keyed   struct{ Selective[string] }
)

func (l keyless) TryAcquire(_ string, n int) (Lease, error) { return l.Limiter.TryAcquire(n) }

func (l keyless) Acquire(ctx context.Context, _ string, n int) (Lease, error) {
	return l.Limiter.Acquire(ctx, n)
}

func (l keyless) Stats(string) (Stats, error) { return l.Limiter.Stats(), nil }

func (l keyed) TryAcquire(n int) (Lease, error) { return l.Selective.TryAcquire("", n) }

func (l keyed) Acquire(ctx context.Context, n int) (Lease, error) {
	return l.Selective.Acquire(ctx, "", n)
}

func (l keyed) Stats() Stats { return must(l.Selective.Stats("")) }

func (l keyed) Idle() (time.Duration, bool) { return 0, false }

func slots(limit, queue int) *Concurrency {
	return must(NewConcurrency(ConcurrencyOptions{PermitLimit: limit, Queue: Queue{Limit: queue}}))
}

func perMinute(n int) *FixedWindow {
	return must(NewFixedWindow(FixedWindowOptions{PermitLimit: n, Window: time.Minute}))
}

// failing is a limiter that says err.
type failing struct {
	Limiter
	err error
}

func (f failing) TryAcquire(int) (Lease, error) { return Lease{}, f.err }

func (f failing) Acquire(context.Context, int) (Lease, error) { return Lease{}, f.err }

func TestChainClose(t *testing.T) {
	chained(t, "F134", func() []Limiter { return []Limiter{slots(5, 0), perMinute(5)} }, func(t *testing.T, chain, m1, m2 Limiter) {
		require.NoError(t, chain.Close())
		require.NoError(t, chain.Close())
		_, err := chain.TryAcquire(1)
		require.ErrorIs(t, err, ErrClosed)
		_, err = chain.Acquire(ctx, 1)
		require.ErrorIs(t, err, ErrClosed)
		_, err = chain.TryAcquire(-1)
		require.ErrorAs(t, err, new(PermitError))
		granted(t, m1, 1)
		granted(t, m2, 1)
	})
	synctest.Test(t, func(t *testing.T) { // F134: idle, statistics and refill
		m := must(NewTokenBucket(manual(1, 1, time.Second, Queue{})))
		chain := must(Chain(m)).(Replenisher)
		require.True(t, chain.Replenish())
		require.NoError(t, chain.Close())
		require.False(t, chain.Replenish())
		idle(t, Never, chain)
		require.Equal(t, Stats{}, chain.Stats())
		selective := must(ChainSelective[string](keyless{m}))
		require.NoError(t, selective.Close())
		_, err := selective.Stats("")
		require.ErrorIs(t, err, ErrClosed)
	})
}

func TestChainMembers(t *testing.T) {
	members := []Limiter{slots(1, 0), slots(2, 0)} // F135
	chain := must(Chain(members...))
	members[0] = slots(5, 0)
	granted(t, chain, 1)
	denied(t, chain, 1)

	selective := []Selective[string]{keyless{slots(1, 0)}}
	keyed := must(ChainSelective(selective...))
	selective[0] = nil
	_, err := keyed.TryAcquire("", 1)
	require.NoError(t, err)

	_, err = Chain()
	require.ErrorContains(t, err, "limiter: a chain without members")
	_, err = Chain(slots(1, 0), nil, slots(1, 0), nil)
	require.ErrorContains(t, err, "limiter: member 1 of the chain is nil")
	require.ErrorContains(t, err, "limiter: member 3 of the chain is nil")
	_, err = ChainSelective[string]()
	require.Error(t, err)
	_, err = ChainSelective[string](nil)
	require.Error(t, err)
}

// counted is a limiter with made-up statistics.
type counted struct {
	Limiter
	stats Stats
}

func (c counted) Stats() Stats { return c.stats }

func TestChainStats(t *testing.T) {
	chained(t, "F136", func() []Limiter { return []Limiter{slots(34, 0), slots(22, 0), slots(13, 0)} }, func(t *testing.T, chain, _, _ Limiter) {
		available(t, 13, chain)
	})
	chained(t, "F137", func() []Limiter {
		return []Limiter{
			counted{slots(1, 0), Stats{Available: 1, Queued: 2, Failed: 4, Successful: 9}},
			counted{slots(1, 0), Stats{Available: 1, Queued: 3, Failed: 1, Successful: 7}},
		}
	}, func(t *testing.T, chain, _, _ Limiter) {
		require.Equal(t, Stats{Available: 1, Queued: 5, Failed: 5, Successful: 7}, chain.Stats())
	})
	chained(t, "F139", func() []Limiter { return []Limiter{slots(5, 0), slots(3, 0)} }, func(t *testing.T, chain, m1, m2 Limiter) {
		lease := granted(t, chain, 3)
		available(t, 2, m1)
		available(t, 0, m2)
		lease.Release()
		lease.Release()
		available(t, 5, m1)
		available(t, 3, m2)
	})
}

func TestChainWaits(t *testing.T) {
	chained(t, "F148", func() []Limiter { return []Limiter{slots(1, 1), slots(1, 0)} }, func(t *testing.T, chain, m1, m2 Limiter) {
		held, other := granted(t, m1, 1), granted(t, m2, 1)
		c := acquire(ctx, chain, 1)
		c.pending(t)
		require.Zero(t, m2.Stats().Failed, "m2 has not been asked")
		other.Release()
		held.Release()
		c.granted(t).Release()
		available(t, 1, m1)
		available(t, 1, m2)
	})
	chained(t, "F158", func() []Limiter { return []Limiter{perMinute(10), slots(1, 5)} }, func(t *testing.T, chain, m1, m2 Limiter) {
		held := granted(t, m2, 1)
		ctx, cancel := context.WithCancel(context.Background())
		a, b := acquire(ctx, chain, 1), acquire(context.Background(), chain, 1)
		available(t, 8, m1) // one for each, held while they wait
		cancel()
		a.failed(t, context.Canceled)
		available(t, 9, m1)
		held.Release()
		b.granted(t)
		available(t, 9, m1)
	})
	chained(t, "a context that is done", func() []Limiter { return []Limiter{slots(1, 1), slots(1, 0)} }, func(t *testing.T, chain, m1, _ Limiter) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		acquire(ctx, chain, 1).failed(t, context.Canceled)
		require.Zero(t, m1.Stats().Successful)
	})
	synctest.Test(t, func(t *testing.T) { // what can never be granted makes nobody wait
		m1 := slots(5, 5)
		granted(t, m1, 5)
		acquire(ctx, must(Chain(must(Chain(m1)), Managed(slots(3, 0)), Unlimited())), 4).failed(t, PermitError{Asked: 4, Limit: 3})
		require.Zero(t, m1.Stats().Queued)
	})
}

func TestChainOfOne(t *testing.T) { // F151
	each(t, 2, Queue{Limit: 1}, func(t *testing.T, l *fixture) {
		chain := must(Chain(l.Limiter))
		_, is := chain.(Replenisher)
		_, want := l.Limiter.(Replenisher)
		require.Equal(t, want, is)
		lease := granted(t, chain, 1)
		require.Equal(t, Stats{Available: 1, Successful: 1}, chain.Stats())
		inUse(t, chain)
		lease.undo()
		require.Equal(t, l.Stats(), chain.Stats())
		idle(t, 0, chain)
		granted(t, chain, 2)
		require.Equal(t, denied(t, l, 1), denied(t, chain, 1))
		acquire(ctx, chain, 1).pending(t)
		require.Equal(t, l.Stats(), chain.Stats())
	})
}

// idler is a limiter with a made-up idle time.
type idler struct {
	Limiter
	idle time.Duration
	ok   bool
}

func (i idler) Idle() (time.Duration, bool) { return i.idle, i.ok }

func TestChainIdle(t *testing.T) {
	m1, m2 := idler{slots(1, 0), 5 * time.Second, true}, idler{slots(1, 0), 3 * time.Second, true}
	idle(t, 3*time.Second, must(Chain(m1, m2))) // F153
	idle(t, 3*time.Second, must(Chain(m2, Unlimited(), m1)))
	inUse(t, must(Chain(m1, idler{slots(1, 0), 0, false}, m2)))
	idle(t, 3*time.Second, must(Chain(must(Chain(Unlimited())), m2)))
	inUse(t, must(Chain(Unlimited())))
}

func TestChainReplenish(t *testing.T) {
	bucket := must(NewTokenBucket(auto(1, 1, 2*time.Second, Queue{})))
	window := must(NewFixedWindow(FixedWindowOptions{PermitLimit: 1, Window: time.Second}))
	chain := must(Chain(bucket, slots(1, 0), window)).(Replenisher) // F155
	require.True(t, chain.Auto())
	require.Equal(t, time.Second, chain.Period())
	require.False(t, chain.Replenish())
	_, is := must(Chain(slots(1, 0), Unlimited())).(Replenisher)
	require.False(t, is)

	synctest.Test(t, func(t *testing.T) {
		byHand := must(NewTokenBucket(manual(1, 1, time.Second, Queue{})))
		mixed := must(Chain(bucket, byHand)).(Replenisher)
		require.False(t, mixed.Auto())
		granted(t, byHand, 1)
		time.Sleep(time.Second)
		require.True(t, mixed.Replenish())
		granted(t, byHand, 1)
	})
}

func TestChainShares(t *testing.T) { // F161
	shared := slots(2, 0)
	one, two := must(Chain(shared, slots(5, 0))), must(Chain(perMinute(5), shared))
	granted(t, one, 1)
	granted(t, two, 1)
	denied(t, one, 1)
	denied(t, two, 1)
	require.NoError(t, one.Close())
	available(t, 0, two)
	require.Equal(t, "concurrency limit reached", denied(t, two, 1).Reason())
}
