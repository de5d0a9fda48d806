package limiter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What a chain gives back, and when: section F.

func TestChainGivesBack(t *testing.T) {
	full := func() *Concurrency {
		l := slots(5, 0)
		granted(t, l, 5)
		return l
	}
	chained(t, "F140", func() []Limiter {
		spent := perMinute(1)
		granted(t, spent, 1)
		return []Limiter{slots(1, 0), spent}
	}, func(t *testing.T, chain, m1, m2 Limiter) {
		require.Equal(t, denied(t, m2, 1), denied(t, chain, 1), "the lease of the one that denied")
		available(t, 1, m1)
	})
	chained(t, "F142", func() []Limiter { return []Limiter{slots(1, 0), failing{slots(1, 0), errTest}} }, func(t *testing.T, chain, m1, _ Limiter) {
		_, err := chain.TryAcquire(1)
		require.Equal(t, errTest, err)
		_, err = chain.Acquire(ctx, 1)
		require.Equal(t, errTest, err)
		available(t, 1, m1)
	})
	chained(t, "F159", func() []Limiter { return []Limiter{must(NewTokenBucket(auto(10, 1, time.Hour, Queue{}))), full()} }, func(t *testing.T, chain, m1, m2 Limiter) {
		for range 10 {
			denied(t, chain, 1)
		}
		available(t, 10, m1)
		require.EqualValues(t, 10, m2.Stats().Failed)
	})
	chained(t, "F160", func() []Limiter { return []Limiter{Unlimited(), full()} }, func(t *testing.T, chain, _, _ Limiter) {
		require.Equal(t, "concurrency limit reached", denied(t, chain, 1).Reason())
	})
	tableRow(t, "F160, the rest of the chain left out", PartitionedOptions{}, func(key string) (Limiter, error) {
		if key == "exempt" {
			return Unlimited(), nil
		}
		return Chain(perMinute(5), full())
	}, func(t *testing.T, table *keyTable) {
		denied(t, table.of("other"), 1)
		granted(t, table.of("exempt"), 1)
	})
	chained(t, "a member that panics", func() []Limiter { return []Limiter{slots(1, 0), nowhere{slots(1, 0)}} }, func(t *testing.T, chain, m1, _ Limiter) {
		require.Panics(t, func() { chain.TryAcquire(1) })
		available(t, 1, m1)
	})
	for _, k := range kinds { // rate permits too
		chained(t, "refund "+k.name, func() []Limiter { return []Limiter{must(k.make(3, Queue{})), full()} }, func(t *testing.T, chain, m1, _ Limiter) {
			granted(t, m1, 1)
			denied(t, chain, 2)
			available(t, 2, m1)
			lease := granted(t, m1, 2)
			lease.Release()
			denied(t, m1, 3)
		})
	}
	t.Run("nested", func(t *testing.T) {
		m1, m2 := perMinute(3), slots(3, 0)
		inner := must(Chain(m1, m2))
		outer := must(Chain(inner, full()))
		denied(t, outer, 2)
		available(t, 3, m1)
		available(t, 3, m2)
		granted(t, inner, 2).Release()
		available(t, 1, m1)
		available(t, 3, m2)
	})
}

type nowhere struct{ Limiter }

func (nowhere) TryAcquire(int) (Lease, error) { panic(errTest) }

// traced tells when its permits come back.
type traced struct {
	Limiter
	name string
	log  *[]string
}

type tracedSource struct {
	*source
	*traced
}

func (s tracedSource) release(c claim) {
	*s.log = append(*s.log, s.name)
	s.source.release(c)
}

func (s tracedSource) undo(c claim) {
	*s.log = append(*s.log, s.name)
	s.source.undo(c)
}

func (t *traced) TryAcquire(n int) (Lease, error) {
	lease, err := t.Limiter.TryAcquire(n)
	lease.from = &source{tracedSource{lease.from, t}}
	return lease, err
}

func TestChainOrder(t *testing.T) {
	var log []string
	m1, m2 := &traced{slots(1, 0), "m1", &log}, &traced{slots(1, 0), "m2", &log}
	_, err := must(Chain(m1, m2, failing{slots(1, 0), errTest})).TryAcquire(1) // F147
	require.Equal(t, errTest, err)
	require.Equal(t, []string{"m2", "m1"}, log)

	log = nil
	granted(t, must(Chain(m1, m2)), 1).Release()
	require.Equal(t, []string{"m2", "m1"}, log)
	available(t, 1, m1)
	available(t, 1, m2)
}
