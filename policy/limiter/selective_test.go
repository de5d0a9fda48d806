package limiter

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTranslate(t *testing.T) { // G190
	for _, leaveOpen := range []bool{true, false} {
		inner := must(NewPartitioned(func(n int) Partition[int] {
			return Partition[int]{Key: n, New: func(int) (Limiter, error) { return slots(2, 0), nil }}
		}, PartitionedOptions{}))
		calls := 0
		outer := Translate(inner, func(s string) int {
			calls++
			return len(s)
		}, leaveOpen)
		for _, s := range []string{"ab", "cd"} {
			lease, err := outer.TryAcquire(s, 1)
			require.NoError(t, err)
			require.True(t, lease.Acquired())
		}
		lease, err := outer.Acquire(ctx, "ef", 1)
		require.NoError(t, err)
		require.False(t, lease.Acquired())
		require.Equal(t, 3, calls)
		require.Equal(t, Stats{Successful: 2, Failed: 1}, must(outer.Stats("gh")))
		require.Equal(t, 4, calls)

		require.NoError(t, outer.Close())
		require.NoError(t, outer.Close())
		_, err = outer.TryAcquire("ab", 1)
		require.ErrorIs(t, err, ErrClosed)
		_, err = outer.Acquire(ctx, "ab", 1)
		require.ErrorIs(t, err, ErrClosed)
		_, err = outer.Stats("ab")
		require.ErrorIs(t, err, ErrClosed)
		require.Equal(t, 4, calls)
		_, err = inner.TryAcquire(2, 1)
		require.Equal(t, leaveOpen, !errors.Is(err, ErrClosed))
		require.NoError(t, inner.Close())
	}
}
