package config

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each key is one that a reload changes, or one that it names.
func TestEveryKeyIsFixedOrLive(t *testing.T) {
	live := []string{"admin.token_file", "state.interval", "report.every", "drain.grace", "exempt", "deny", "policies", "listeners"}
	var all []string
	for section, node := range readSchema(t).Properties {
		if len(node.Properties) == 0 {
			all = append(all, section)
		}
		for key := range node.Properties {
			all = append(all, section+"."+key)
		}
	}
	var known []string
	for _, k := range fixedKeys {
		known = append(known, k.key)
	}
	slices.Sort(all)
	known = append(known, live...)
	slices.Sort(known)
	assert.Equal(t, all, known)
}

func TestKeepFixed(t *testing.T) {
	read := func(text string) *Config {
		c, err := Parse("f", []byte(text))
		require.NoError(t, err)
		return c
	}
	running := read("{admin: {token_file: a}, engine: {ipv4_prefix: 24, adaptive: {low: 50%}}, drain: {grace: 1s}}")
	running.Admin.Token = "old"

	same := read("{admin: {token_file: a}, engine: {shards: 256, ipv4_prefix: 24, adaptive: {low: 50%}}, drain: {grace: 2s}}")
	same.Admin.Token = "new"
	assert.Empty(t, same.KeepFixed(running), "what is written out may be the default")
	assert.Equal(t, "2s", same.Grace.String())
	assert.Equal(t, "new", same.Admin.Token, "the file has another one now")
	assert.Equal(t, running.Engine, same.Engine)

	other := read("{admin: {token_file: b}, engine: {shards: 64}}")
	other.Admin.Token = "other"
	assert.Equal(t, []string{"engine.shards", "engine.ipv4_prefix", "engine.adaptive", "admin.token_file"}, other.KeepFixed(running))
	assert.Equal(t, running.Engine, other.Engine)
	assert.Equal(t, running.Admin, other.Admin)
	assert.Equal(t, running.Adaptive, other.Adaptive)
}
