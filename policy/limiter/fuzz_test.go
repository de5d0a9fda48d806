package limiter

import (
	"encoding/binary"
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An oracle is a bucket in fractions.
type oracle struct {
	limit, rate *big.Rat
	level       *big.Rat
	last        int64
}

func (o *oracle) at(now int64) *big.Rat {
	level := new(big.Rat).Mul(o.rate, new(big.Rat).SetInt64(max(0, now-o.last)))
	level.Add(level, o.level)
	if level.Cmp(o.limit) > 0 {
		level.Set(o.limit)
	}
	return level
}

func (o *oracle) take(now, n int64) bool {
	level := o.at(now)
	o.level, o.last = level, max(o.last, now)
	if level.Cmp(new(big.Rat).SetInt64(n)) < 0 {
		return false
	}
	level.Sub(level, new(big.Rat).SetInt64(n))
	return true
}

// The integers of a bucket do what fractions do, for any limit, rate, times and
// numbers; after exactly the wait the permits are there and a nanosecond
// earlier they are not.
func FuzzBucket(f *testing.F) {
	f.Add(uint64(10), uint64(1), uint64(1e9), []byte("0123456789abcdef"))
	f.Add(uint64(math.MaxInt64), uint64(math.MaxInt64), uint64(math.MaxInt64), make([]byte, 64))
	f.Add(uint64(math.MaxInt64), uint64(1), uint64(math.MaxInt64), []byte("\xff\xff\xff\xff\xff\xff\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x7f"))
	f.Add(uint64(1), uint64(3), uint64(7), []byte("ababababababababbabbabbabbabbabb"))
	f.Fuzz(func(t *testing.T, limit, tokens, period uint64, calls []byte) {
		limit, tokens, period = positive(limit), positive(tokens), positive(period)
		b := newBucket(int64(limit), int64(tokens), time.Duration(period))
		o := &oracle{
			limit: new(big.Rat).SetInt64(int64(limit)),
			rate:  new(big.Rat).SetFrac(new(big.Int).SetUint64(tokens), new(big.Int).SetUint64(period)),
			level: new(big.Rat).SetInt64(int64(limit)),
		}
		now := int64(0)
		for calls = calls[:min(len(calls), 512)]; len(calls) >= 8; calls = calls[8:] {
			c := binary.LittleEndian.Uint64(calls)
			// Steps and numbers of all sizes: a mantissa and a shift.
			now = min(after(now, int64(c&0xffff<<(c>>16&47))), math.MaxInt64/2)
			n := int64(c >> 32 & 0xfff << (c >> 24 & 51) & math.MaxInt64)
			check(t, &b, o, now, max(1, min(n, int64(limit))))
		}
	})
}

func positive(n uint64) uint64 { return max(1, n&math.MaxInt64) }

func check(t *testing.T, b *bucket, o *oracle, now, n int64) {
	level := o.at(now)
	whole := new(big.Int).Quo(level.Num(), level.Denom())
	require.Equal(t, whole.Int64(), b.available(now))
	wait, ok := b.wait(now, nil, n)
	require.True(t, ok)
	there := level.Cmp(new(big.Rat).SetInt64(n)) >= 0
	require.Equal(t, there, wait == 0)
	if wait < math.MaxInt64 {
		due := now + wait
		require.GreaterOrEqual(t, o.at(due).Cmp(new(big.Rat).SetInt64(n)), 0, "after the wait")
		if wait > 0 {
			require.Less(t, o.at(due-1).Cmp(new(big.Rat).SetInt64(n)), 0, "a nanosecond before")
		}
	} else {
		require.Less(t, o.at(math.MaxInt64-1).Cmp(new(big.Rat).SetInt64(n)), 0, "never")
	}
	since, idle := b.idle(now)
	require.Equal(t, level.Cmp(o.limit) == 0, idle)
	require.True(t, !idle || since <= now)

	before := *b
	got, ok := b.take(now, n)
	require.Equal(t, there, ok)
	require.Equal(t, there, o.take(now, n))
	if !ok {
		require.Equal(t, before, *b, "a denial changes nothing")
		return
	}
	copied := *b
	copied.giveBack(now, got)
	require.Equal(t, before.available(now), copied.available(now), "given back at once")
}
