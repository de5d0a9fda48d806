package tokenbucket

import (
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fractions are rates that no float64 and no Limit holds beside usual ones.
func fractions() []Rate {
	var all []Rate
	for _, capacity := range []int64{1, 2, 64, MaxCapacity, math.MaxInt64 - 1, math.MaxInt64} {
		for _, tokens := range []int64{1, 3, 1000, 1<<53 + 1, math.MaxInt64} {
			for _, period := range []time.Duration{1, 7, time.Second, 24 * time.Hour, math.MaxInt64} {
				all = append(all, Fraction(capacity, tokens, period))
			}
		}
	}
	return all
}

// The rate is the fraction, to the last digit.
func TestFractionIsExact(t *testing.T) {
	r := Fraction(5, 6, 21)
	require.Equal(t, big.NewRat(2, 7), newOracle(&r, 0).perNano)
	require.Equal(t, Limit{Capacity: 5, RefillPerSecond: 6 / (21e-9), Scale: 1, Initial: 5}, r.Limit())
	for _, r := range fractions() {
		require.Less(t, r.capacity.big().BitLen(), maxCapacityBits+1)
	}
}

// A bucket of a fraction and the oracle give the same answers, also on what it
// holds after a charge was taken back, and on the wait behind others.
func TestFractionOracle(t *testing.T) {
	for _, p := range patterns {
		t.Run(p.name, func(t *testing.T) {
			rng := newRand()
			for _, r := range fractions() {
				now := rng.Int64N(day)
				b, o := r.New(now), newOracle(&r, now)
				for range 10 {
					now += p.gap(rng)
					n := 1 + rng.Int64N(r.limit.Capacity)
					if rng.IntN(2) == 0 {
						n = min(n, 3)
					}
					requireSame(t, &r, b, o, now, n)
					requireDebt(t, &r, b, o, now, n)
					if o.has(n) {
						before := b
						r.Take(&b, now, n)
						undone := b
						r.Give(&undone, now, n)
						require.Equal(t, r.Tokens(before, now), r.Tokens(undone, now))
						requireSame(t, &r, undone, o, now, n)
						o.take(n)
					}
				}
				r.Give(&b, now, r.limit.Capacity)
				require.True(t, r.Full(b, now))
				require.Equal(t, r.limit.Capacity, r.Tokens(b, now), "never more than full")
			}
		})
	}
}

// requireDebt lets others take the whole capacity and n first.
func requireDebt(t *testing.T, r *Rate, b Bucket, o *oracle, now, n int64) {
	t.Helper()
	behind := &oracle{perNano: o.perNano, capacity: o.capacity, tokens: new(big.Rat).Set(o.tokens), last: now}
	for _, others := range []int64{r.limit.Capacity, n} {
		r.Take(&b, now, others)
		behind.take(others)
		require.Equal(t, behind.wait(n), r.Wait(b, now, n), "for %d behind %d at %d: %+v", n, others, now, r.limit)
		if others > math.MaxInt64-n {
			return // those who wait never ask for more than this together
		}
	}
}
