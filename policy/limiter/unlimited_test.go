package limiter

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnlimited(t *testing.T) {
	u := Unlimited()
	_, err := u.TryAcquire(-1)
	require.Equal(t, PermitError{Asked: -1, Limit: math.MaxInt}, err)
	granted(t, u, math.MaxInt).Release()
	granted(t, u, 0)
	ctx, cancel := context.WithCancelCause(context.Background())
	_, err = u.Acquire(ctx, 1)
	require.NoError(t, err)
	cancel(errTest)
	_, err = u.Acquire(ctx, 1)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, errTest)
	require.Equal(t, Stats{Available: math.MaxInt64, Successful: 3}, u.Stats())
	inUse(t, u)
	require.NoError(t, u.Close())
	_, err = u.Acquire(ctx, -1)
	require.ErrorAs(t, err, new(PermitError))
	_, err = u.Acquire(ctx, 1)
	require.ErrorIs(t, err, ErrClosed)
	require.Equal(t, Stats{Successful: 3}, u.Stats())
	idle(t, Never, u)
	require.NoError(t, u.Close())
}
