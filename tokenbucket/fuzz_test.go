package tokenbucket

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzBucket holds any limit that compiles to the oracle's answers. The ops
// are pairs of varints: nanoseconds to the next request, tokens asked for.
func FuzzBucket(f *testing.F) {
	for _, limit := range limits() {
		ops := binary.AppendUvarint(nil, 1)
		ops = binary.AppendVarint(ops, limit.Capacity)
		ops = binary.AppendUvarint(ops, uint64(400*day))
		ops = binary.AppendVarint(ops, 1)
		ops = binary.AppendUvarint(ops, 0)
		ops = binary.AppendVarint(ops, -1)
		f.Add(limit.Capacity, limit.RefillPerSecond, limit.Scale, limit.Initial, ops)
	}
	f.Fuzz(func(t *testing.T, capacity int64, rate float64, scale, initial int64, ops []byte) {
		limit := Limit{Capacity: capacity, RefillPerSecond: rate, Scale: scale, Initial: initial}
		compiled, err := limit.Compile()
		require.Equal(t, limit.Validate(), err)
		if err != nil {
			return
		}
		r := &compiled
		lacking := relativeError(limit, r)
		require.GreaterOrEqual(t, lacking, 0.0)
		require.Less(t, lacking, 0x1p-44)

		b, o, now := r.New(0), newOracle(r, 0), int64(0)
		for range 64 {
			gap, n, rest := decodeOp(ops)
			if rest == nil || gap >= uint64(math.MaxInt64-now) {
				return
			}
			ops = rest
			now += int64(gap)
			requireSame(t, r, b, o, now, n)
			requireRoundTrip(t, r, b, now)
			if o.has(n) {
				r.Take(&b, now, n)
				o.take(n)
			}
		}
	})
}

// decodeOp returns a nil rest where there is no further operation.
func decodeOp(ops []byte) (gap uint64, n int64, rest []byte) {
	gap, i := binary.Uvarint(ops)
	if i <= 0 {
		return 0, 0, nil
	}
	n, j := binary.Varint(ops[i:])
	if j <= 0 {
		return 0, 0, nil
	}
	return gap, n, ops[i+j:]
}
