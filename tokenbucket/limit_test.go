package tokenbucket

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestValidate(t *testing.T) {
	const (
		badRate    = " is outside 1e-06..1e+09"
		badScale   = " is outside 1..1000000 (0 means 100)"
		badInitial = " is outside 1..Capacity (0 means full, -1 empty)"
	)
	tests := []struct {
		name  string
		limit Limit
		want  string // "" where the limit is valid
	}{
		{"usual", Limit{Capacity: 64, RefillPerSecond: 32}, ""},
		{"all fields", Limit{Capacity: 64, RefillPerSecond: 32, Scale: 7, Initial: 3}, ""},
		{"zero value", Limit{}, "Capacity: 0 is outside 1..2147483647\nRefillPerSecond: 0" + badRate},
		{"every field", Limit{Capacity: -1, RefillPerSecond: -1, Scale: -1, Initial: -2},
			"Capacity: -1 is outside 1..2147483647\nRefillPerSecond: -1" + badRate +
				"\nScale: -1" + badScale + "\nInitial: -2" + badInitial},

		{"smallest capacity", Limit{Capacity: 1, RefillPerSecond: 1}, ""},
		{"largest capacity", Limit{Capacity: 1<<31 - 1, RefillPerSecond: 1}, ""},
		{"no capacity", Limit{RefillPerSecond: 1}, "Capacity: 0 is outside 1..2147483647"}, // 15
		// C29
		{"capacity 2^31", Limit{Capacity: 1 << 31, RefillPerSecond: 1}, "Capacity: 2147483648 is outside 1..2147483647"},
		// 9
		{"capacity 2^60", Limit{Capacity: 1 << 60, RefillPerSecond: 1}, "Capacity: 1152921504606846976 is outside 1..2147483647"},

		{"lowest rate", Limit{Capacity: 1, RefillPerSecond: 1e-6}, ""},
		{"highest rate", Limit{Capacity: 1, RefillPerSecond: 1e9}, ""},
		{"below the lowest", Limit{Capacity: 1, RefillPerSecond: math.Nextafter(1e-6, 0)}, "RefillPerSecond: 9.999999999999997e-07" + badRate},
		{"above the highest", Limit{Capacity: 1, RefillPerSecond: math.Nextafter(1e9, 2e9)}, "RefillPerSecond: 1.0000000000000001e+09" + badRate},
		{"rate 1e-10", Limit{Capacity: 1, RefillPerSecond: 1e-10}, "RefillPerSecond: 1e-10" + badRate},            // 17
		{"rate 2e9", Limit{Capacity: 1, RefillPerSecond: 2e9}, "RefillPerSecond: 2e+09" + badRate},                // 5, 7
		{"rate 4e9", Limit{Capacity: 1, RefillPerSecond: 4e9}, "RefillPerSecond: 4e+09" + badRate},                // C29
		{"rate NaN", Limit{Capacity: 1, RefillPerSecond: math.NaN()}, "RefillPerSecond: NaN" + badRate},           // 12
		{"rate Inf", Limit{Capacity: 1, RefillPerSecond: math.Inf(1)}, "RefillPerSecond: +Inf" + badRate},         // 13, 16
		{"rate -Inf", Limit{Capacity: 1, RefillPerSecond: math.Inf(-1)}, "RefillPerSecond: -Inf" + badRate},       // 13
		{"rate -0", Limit{Capacity: 1, RefillPerSecond: math.Copysign(0, -1)}, "RefillPerSecond: -0" + badRate},   // 13
		{"negative rate", Limit{Capacity: 1, RefillPerSecond: -5}, "RefillPerSecond: -5" + badRate},               // 13
		{"smallest float", Limit{Capacity: 1, RefillPerSecond: 5e-324}, "RefillPerSecond: 5e-324" + badRate},      // 13
		{"rate of a burst", Limit{Capacity: 1<<31 - 1, RefillPerSecond: 1e9, Scale: 1e6, Initial: 1<<31 - 1}, ""}, // C29

		{"smallest scale", Limit{Capacity: 1, RefillPerSecond: 1, Scale: 1}, ""},
		{"largest scale", Limit{Capacity: 1, RefillPerSecond: 1, Scale: 1_000_000}, ""},
		{"above the largest scale", Limit{Capacity: 1, RefillPerSecond: 1, Scale: 1_000_001}, "Scale: 1000001" + badScale},
		{"negative scale", Limit{Capacity: 1, RefillPerSecond: 1, Scale: -1}, "Scale: -1" + badScale},

		{"initial empty", Limit{Capacity: 5, RefillPerSecond: 1, Initial: Empty}, ""},
		{"initial 1", Limit{Capacity: 5, RefillPerSecond: 1, Initial: 1}, ""},
		{"initial full", Limit{Capacity: 5, RefillPerSecond: 1, Initial: 5}, ""},
		{"initial above capacity", Limit{Capacity: 5, RefillPerSecond: 1, Initial: 6}, "Initial: 6" + badInitial},
		{"initial is right where capacity is not", Limit{Capacity: -5, RefillPerSecond: 1}, "Capacity: -5 is outside 1..2147483647"},
		{"initial below empty", Limit{Capacity: 5, RefillPerSecond: 1, Initial: -2}, "Initial: -2" + badInitial},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.limit.Validate()
			_, compileErr := tt.limit.Compile()
			if tt.want == "" {
				require.NoError(t, err)
				require.NoError(t, compileErr)
				return
			}
			require.EqualError(t, err, tt.want)
			require.EqualError(t, compileErr, tt.want)
		})
	}
}

func TestCompileFillsIn(t *testing.T) {
	tests := []struct {
		name                 string
		scale, initial       int64
		wantScale, wantStart int64
	}{
		{"zero fields", 0, 0, DefaultScale, 5},
		{"empty", 1, Empty, 1, 0},
		{"some", MaxScale, 2, MaxScale, 2},
		{"full", 3, 5, 3, 5},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			limit := Limit{Capacity: 5, RefillPerSecond: 1, Scale: tt.scale, Initial: tt.initial}
			r := compile(t, limit)
			assert.Equal(t, Limit{Capacity: 5, RefillPerSecond: 1, Scale: tt.wantScale, Initial: tt.wantStart}, r.Limit())
			assert.Equal(t, tt.wantStart, r.Tokens(r.New(12345), 12345))
		})
	}
}

// 17: the worst relative error of a compiled rate is published and held. Usual
// limits have none. Rates near 1e-6 beside the largest capacity and a scale
// that leaves the units least room have the worst.
func TestCompiledRateError(t *testing.T) {
	t.Run("exact", func(t *testing.T) {
		for _, limit := range limits() {
			if limit.Capacity == MaxCapacity {
				continue
			}
			limit.Scale = DefaultScale
			r := compile(t, limit)
			assert.Zero(t, relativeError(limit, r), "%+v", limit)
		}
	})
	t.Run("worst", func(t *testing.T) {
		rng, worst := newRand(), 0.0
		for i := range 10_000 {
			limit := Limit{Capacity: MaxCapacity, RefillPerSecond: 1e-6 * (1 + rng.Float64()*1e-3), Scale: 1 + rng.Int64N(MaxScale)}
			if i%2 == 0 {
				limit.RefillPerSecond = math.Pow(10, rng.Float64()*15-6)
			} else {
				limit.Scale = 550 << rng.IntN(10) // 550e9 is just above 2^39
			}
			e := relativeError(limit, compile(t, limit))
			require.GreaterOrEqual(t, e, 0.0, "%+v is rounded up", limit)
			worst = max(worst, e)
		}
		t.Logf("worst relative error: 2^%.2f", math.Log2(worst))
		assert.Less(t, worst, 0x1p-44)
		assert.Greater(t, worst, 0x1p-45, "the search has lost the worst case")
	})
}
