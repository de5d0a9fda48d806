package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every contender decides as the path wants it, or the figures mean nothing.
func TestContendersDecideAsThePathSays(t *testing.T) {
	const n = 10*chunk + 1
	k := newKeys(n)
	for _, p := range paths {
		for _, c := range contenders {
			t.Run(p.name+"/"+c.name, func(t *testing.T) {
				s := c.subject(k, p) // panics where it does not come to the path
				if s == nil {
					assert.True(t, c.peer)
					return
				}
				defer func() { s.close() }()
				ns, allocs := s.measure(2, time.Millisecond)
				assert.Positive(t, ns)
				assert.GreaterOrEqual(t, allocs, 0.0)
				if p.capacity == 1 && !p.full && c.name != wireguardName {
					assert.Zero(t, s.decide(0, chunk))
				}
			})
		}
	}
}

func TestBatchesDecideLikeSingleCalls(t *testing.T) {
	k := newKeys(chunk)
	single, batches := newSingle(k, paths[1]), newBatches(k, paths[1])
	defer single.end()
	defer batches.end()
	for _, want := range []int{chunk, 0} {
		assert.Equal(t, want, single.decide(0, chunk))
		assert.Equal(t, want, batches.decide(0, chunk))
	}
}

func TestKeysAreDistinct(t *testing.T) {
	k := newKeys(10_000)
	seen := make(map[string]bool)
	for i, name := range k.names {
		require.Len(t, name, 18)
		require.False(t, seen[name])
		seen[name] = true
		require.True(t, k.endpoints[i].IsValid())
	}
}

func TestWeigh(t *testing.T) {
	used, collections := weigh(contenders[5], paths[0], 10_000, 3)
	assert.Greater(t, used, 18.0, "an entry holds at least its key")
	assert.Len(t, collections, 3)
}

func TestLatencies(t *testing.T) {
	p50, p999, err := latencies(newKeys(1000), time.Nanosecond, 5*time.Millisecond)
	require.NoError(t, err)
	assert.Positive(t, p50)
	assert.GreaterOrEqual(t, p999, p50)
}
