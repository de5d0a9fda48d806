package tokenbucket

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const day = int64(24 * time.Hour)

func compile(t testing.TB, l Limit) *Rate {
	t.Helper()
	r, err := l.Compile()
	require.NoError(t, err)
	return &r
}

func newRand() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// An oracle is the textbook token bucket in rational numbers: it holds tokens,
// and adds to them what has come since it was last asked.
type oracle struct {
	perNano, capacity, tokens *big.Rat
	last                      int64
}

// newOracle returns a bucket of the rate as it was compiled, first seen at now.
func newOracle(r *Rate, now int64) *oracle {
	return &oracle{
		perNano:  new(big.Rat).SetFrac(new(big.Int).SetUint64(r.perNano), r.token.big()),
		capacity: new(big.Rat).SetInt64(r.limit.Capacity),
		tokens:   new(big.Rat).SetInt64(r.limit.Initial),
		last:     now,
	}
}

func (o *oracle) refill(now int64) {
	o.tokens.Add(o.tokens, times(o.perNano, now-o.last))
	if o.tokens.Cmp(o.capacity) > 0 {
		o.tokens.Set(o.capacity)
	}
	o.last = now
}

func (o *oracle) has(n int64) bool {
	return n >= 0 && o.tokens.Cmp(new(big.Rat).SetInt64(n)) >= 0
}

func (o *oracle) take(n int64) { o.tokens.Sub(o.tokens, new(big.Rat).SetInt64(n)) }

func (o *oracle) full() bool { return o.tokens.Cmp(o.capacity) == 0 }

// whole returns the whole tokens.
func (o *oracle) whole() int64 {
	return new(big.Int).Quo(o.tokens.Num(), o.tokens.Denom()).Int64()
}

func (o *oracle) wait(n int64) time.Duration {
	need := new(big.Rat).SetInt64(n)
	if n < 0 || need.Cmp(o.capacity) > 0 {
		return Never
	}
	need.Sub(need, o.tokens)
	if need.Sign() <= 0 {
		return 0
	}
	need.Quo(need, o.perNano)
	ns := new(big.Int).Add(need.Num(), need.Denom())
	ns.Sub(ns, big.NewInt(1)).Quo(ns, need.Denom()) // rounded up
	if end := new(big.Int).Add(ns, big.NewInt(o.last)); end.Cmp(big.NewInt(math.MaxInt64)) >= 0 {
		return Never
	}
	return time.Duration(ns.Int64())
}

func times(x *big.Rat, n int64) *big.Rat {
	return new(big.Rat).Mul(x, new(big.Rat).SetInt64(n))
}

// perNano is the rate of a limit as it is written, in tokens per nanosecond.
func perNano(l Limit) *big.Rat {
	perSecond := new(big.Rat).SetFloat64(l.RefillPerSecond)
	return perSecond.Quo(perSecond, big.NewRat(int64(time.Second), 1))
}

// relativeError is what the compiled rate lacks, as a part of the limit's.
func relativeError(l Limit, r *Rate) float64 {
	wanted := perNano(l)
	lacking := new(big.Rat).Sub(wanted, newOracle(r, 0).perNano)
	e, _ := lacking.Quo(lacking, wanted).Float64()
	return e
}

// limits returns awkward and usual rates, each with some capacities and scales.
func limits() []Limit {
	rates := []float64{1e-6, 1.0 / 86400, 1.0 / 3600, 3.0 / 60, 1.0 / 3, 100.0 / 60, 32, 5000, 123456789, 700e6, 1e9}
	capacities := []int64{1, 2, 64, 150_000, MaxCapacity}
	scales := []int64{1, 3, DefaultScale, 999_983, MaxScale}
	var all []Limit
	for i, rate := range rates {
		for j, capacity := range capacities {
			all = append(all, Limit{Capacity: capacity, RefillPerSecond: rate, Scale: scales[(i+j)%len(scales)]})
		}
	}
	return all
}

// patterns are ways to arrive: each returns the time to the next arrival.
var patterns = []struct {
	name string
	gap  func(*rand.Rand) int64
}{
	{"each nanosecond", func(*rand.Rand) int64 { return 1 }},
	{"each millisecond", func(*rand.Rand) int64 { return int64(time.Millisecond) }},
	{"sparse", func(rng *rand.Rand) int64 { return rng.Int64N(int64(time.Hour)) }},
	{"bursts", func(rng *rand.Rand) int64 {
		if rng.IntN(20) > 0 {
			return 0
		}
		return rng.Int64N(int64(10 * time.Second))
	}},
	{"idle for 400 days", func(rng *rand.Rand) int64 {
		if rng.IntN(50) > 0 {
			return rng.Int64N(int64(10 * time.Millisecond))
		}
		return 400 * day
	}},
}

// A bucket and the oracle give the same answers to the same questions.
func TestOracle(t *testing.T) {
	for _, p := range patterns {
		t.Run(p.name, func(t *testing.T) {
			rng := newRand()
			for _, limit := range limits() {
				limit.Initial = []int64{0, Empty, 1}[rng.IntN(3)]
				now := rng.Int64N(day)
				r := compile(t, limit)
				b, o := r.New(now), newOracle(r, now)
				for range 100 {
					now += p.gap(rng)
					n := min(1+rng.Int64N(4), limit.Capacity+1)
					if rng.IntN(4) == 0 {
						n = rng.Int64N(limit.Capacity + 2)
					}
					requireSame(t, r, b, o, now, n)
					if o.has(n) {
						r.Take(&b, now, n)
						o.take(n)
					}
				}
			}
		})
	}
}

// requireSame asks both the same things and leaves the oracle refilled to now.
func requireSame(t testing.TB, r *Rate, b Bucket, o *oracle, now, n int64) {
	t.Helper()
	o.refill(now)
	require.Equal(t, o.has(n), r.Has(b, now, n), "has %d at %d: %+v", n, now, r.limit)
	require.Equal(t, o.whole(), r.Tokens(b, now), "tokens at %d: %+v", now, r.limit)
	require.Equal(t, o.wait(n), r.Wait(b, now, n), "wait for %d at %d: %+v", n, now, r.limit)
	require.Equal(t, o.full(), r.Full(b, now), "full at %d: %+v", now, r.limit)
	if left := r.FullAt(b) - now; o.full() {
		require.LessOrEqual(t, left, int64(0), "full at %d: %+v", now, r.limit)
	} else if wait := o.wait(r.limit.Capacity); wait != Never {
		require.Equal(t, int64(wait), left, "full at %d: %+v", now, r.limit)
	}
}

// Over any interval a bucket gives at most capacity + rate*T tokens, and where
// they are asked for at most one less than start + rate*T. The rate is the one
// that is written, not the compiled one.
func TestConservation(t *testing.T) {
	one := big.NewRat(1, 1)
	for _, p := range patterns {
		t.Run(p.name, func(t *testing.T) {
			rng := newRand()
			for _, limit := range limits() {
				r, rate := compile(t, limit), perNano(limit)
				capacity := new(big.Rat).SetInt64(limit.Capacity)
				b, now := r.New(0), int64(0)

				// surplus is admitted - rate*now, before the admission at now.
				// An interval gives too much where a surplus after is above
				// the lowest surplus before by more than the capacity.
				surplus, lowest, base := new(big.Rat), new(big.Rat), new(big.Rat)
				for range 100 {
					if r.Full(b, now) {
						base.Add(surplus, capacity)
					}
					if surplus.Cmp(lowest) < 0 {
						lowest.Set(surplus)
					}
					n := r.Tokens(b, now)
					require.True(t, r.Has(b, now, n))
					r.Take(&b, now, n)
					surplus.Add(surplus, new(big.Rat).SetInt64(n))

					over := new(big.Rat).Sub(surplus, lowest)
					require.LessOrEqual(t, over.Cmp(capacity), 0, "too much at %d: %+v", now, limit)
					short := new(big.Rat).Sub(base, surplus)
					require.LessOrEqual(t, short.Cmp(one), 0, "too little at %d: %+v", now, limit)

					gap := p.gap(rng)
					now += gap
					surplus.Sub(surplus, times(rate, gap))
				}
			}
		})
	}
}
