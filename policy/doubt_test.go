package policy

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// Whatever others send in somebody's name, his own packets are within his budgets
// exactly where they would have passed without that.
func TestOwnWithinIsAsIfAlone(t *testing.T) {
	for name, bytes := range map[string]*tokenbucket.Limit{"packets": nil, "bytes": {Capacity: 300, RefillPerSecond: 400}} {
		t.Run(name, func(t *testing.T) {
			rule, err := Policy{Packets: tokenbucket.Limit{Capacity: 5, RefillPerSecond: 7}, Bytes: bytes}.Compile()
			require.NoError(t, err)
			var at Instant
			s, h := rule.New(at), rule.NewHistory(at)
			alone, aloneH := rule.New(at), rule.NewHistory(at)
			require.False(t, h.Doubted())
			r := rand.New(rand.NewPCG(3, 4))
			blamed, denied := 0, 0
			for range 100_000 {
				at.Now += r.Int64N(int64(100 * time.Millisecond))
				at.Refill = at.Now
				n := r.Int64N(120)
				if r.IntN(3) > 0 {
					h.Doubt()
					rule.Take(&s, &h, at, n)
					continue
				}
				want := rule.Take(&alone, &aloneH, at, n).Allowed
				got := rule.Take(&s, &h, at, n).Allowed
				if !h.Doubted() {
					require.Equal(t, want, got)
					continue
				}
				require.Equal(t, want, rule.OwnWithin(&h, at, n))
				if !got {
					denied++
				}
				if !got && !want {
					blamed++
				}
			}
			assert.Positive(t, blamed)
			assert.Greater(t, denied, 2*blamed)
		})
	}
	assert.False(t, (*History)(nil).Doubted())
}

// Budgets that began empty and are full by now are his in full.
func TestOwnWithinOfBudgetsThatBeganEmpty(t *testing.T) {
	empty := tokenbucket.Limit{Capacity: 5, RefillPerSecond: 1, Initial: tokenbucket.Empty}
	rule, err := Policy{Packets: empty, Bytes: &empty}.Compile()
	require.NoError(t, err)
	h := rule.NewHistory(Instant{})
	at := Instant{Now: int64(time.Minute), Refill: int64(time.Minute)}
	h.Doubt()
	for range 5 {
		require.True(t, rule.OwnWithin(&h, at, 1))
	}
	require.False(t, rule.OwnWithin(&h, at, 0))
}
