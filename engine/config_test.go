package engine_test

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// The zero Config is what the documentation says.
func TestConfigDefaults(t *testing.T) {
	r := newEngine(t, engine.Config{}).Report()
	assert.EqualValues(t, 64, r.CapacityTokens)
	assert.EqualValues(t, 32, r.RefillPerSecond)
	assert.EqualValues(t, 100, r.TokenScale)
	assert.Equal(t, 256, r.Shards)
	assert.EqualValues(t, 30, r.HardLockoutSeconds)
	assert.EqualValues(t, 180, r.StaleEntrySeconds)
	assert.EqualValues(t, 45, r.CleanupIntervalSecs)
	assert.Equal(t, 100_000, r.MaxTrackedEndpoints)
	assert.Equal(t, "default", r.Policies[0].Name)
}

// Every mistake is named, all of them at once, and nothing runs afterwards: the
// bubble ends only when no goroutine is left. 56
func TestConfigMistakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			want string
			cfg  engine.Config
		}{
			{"Shards: 3", engine.Config{Shards: 3}},
			{"Shards: -1", engine.Config{Shards: -1}},
			{"Shards: 131072", engine.Config{Shards: 1 << 17}},
			{"MaxTrackedEndpoints: -1", engine.Config{MaxTrackedEndpoints: -1}},
			{"OnFull: 3", engine.Config{OnFull: 3}},
			{"StaleAfter: -1ns", engine.Config{StaleAfter: -1}},
			{"CleanupInterval: -1ns", engine.Config{CleanupInterval: -1}},
			{"IPv4Prefix: 33", engine.Config{IPv4Prefix: 33}},
			{"IPv4Prefix: -1", engine.Config{IPv4Prefix: -1}},
			{"IPv6Prefix: 129", engine.Config{IPv6Prefix: 129}},
			{"IPv6Prefix: -1", engine.Config{IPv6Prefix: -1}},
			{`policy "default": Packets.Capacity: -1`, engine.Config{Default: rate(-1, 1)}},
			{`policy "a": Bytes.Capacity: 0`, engine.Config{Policies: []policy.Policy{
				{Name: "a", Bytes: &tokenbucket.Limit{RefillPerSecond: 1}},
			}}},
		} {
			e, err := engine.New(c.cfg)
			require.ErrorContains(t, err, "engine: ")
			require.ErrorContains(t, err, c.want)
			require.Nil(t, e)
		}
		_, err := engine.New(engine.Config{Shards: 3, IPv4Prefix: 40, Default: rate(-1, -1)})
		for _, want := range []string{"Shards", "IPv4Prefix", "Capacity", "RefillPerSecond"} {
			require.ErrorContains(t, err, want)
		}
	})
}

// The least and the most that a Config allows.
func TestConfigExtremes(t *testing.T) {
	for _, c := range []engine.Config{
		{Shards: 1, MaxTrackedEndpoints: 1, IPv4Prefix: 1, IPv6Prefix: 1},
		{Shards: engine.MaxShards, MaxTrackedEndpoints: engine.MaxEndpoints, IPv4Prefix: 32, IPv6Prefix: 128},
		{StaleAfter: 1<<63 - 1, CleanupInterval: 1<<63 - 1},
	} {
		e := newEngine(t, c)
		for i := range 50 {
			require.True(t, e.Evaluate(addressOf(i)).Allowed)
		}
		require.LessOrEqual(t, e.Report().TrackedEndpoints, 50)
	}
}

// What the caller does with its Config later is its own affair.
func TestConfigIsCopied(t *testing.T) {
	bytes := tokenbucket.Limit{Capacity: 100, RefillPerSecond: 1e-6}
	named := []policy.Policy{{Name: "a", Bytes: &bytes}}
	e := newEngine(t, engine.Config{Default: policy.Policy{Bytes: &bytes}, Policies: named, Logger: slog.New(slog.DiscardHandler)})
	bytes.Capacity = 1 << 30
	named[0].Name = "b"
	out := make([]policy.Decision, 1)
	e.EvaluateBatch([]engine.Request{{Endpoint: client, Bytes: 101}}, out)
	require.Equal(t, policy.Never, out[0].RetryAfter)
	_, ok := e.Policy("a")
	require.True(t, ok)

	require.NoError(t, e.SetPolicies(policy.Policy{Bytes: &bytes}, nil))
	bytes.Capacity = 1
	e.EvaluateBatch([]engine.Request{{Endpoint: client, Bytes: 99}}, out)
	require.True(t, out[0].Allowed, "of the first 100 there are 99 at least")
}

// After a long time of rest a bucket holds its capacity, and no more. 11, 29, C33
func TestLongRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, engine.Config{
			Default: rate(1000, 1e9), Policies: []policy.Policy{named("slow", rate(5, 1e-6))},
			Shards: 1, StaleAfter: 1 << 62, CleanupInterval: time.Hour,
		})
		slow, _ := e.Policy("slow")
		require.Equal(t, 5, allowed(e, slow, 10))
		for range 3 {
			time.Sleep(400 * 24 * time.Hour)
			require.Equal(t, policy.Decision{Allowed: true, Credit: 999}, e.Evaluate(client))
			require.Equal(t, 5, allowed(e, slow, 10))
		}
	})
}
