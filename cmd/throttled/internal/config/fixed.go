package config

import (
	"cmp"
	"time"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/netx"
)

// A fixedKey is one whose value a running gateway cannot change. keep puts the
// value of another configuration into c, and says whether c had a different one.
type fixedKey struct {
	key  string
	keep func(c, running *Config) (differs bool)
}

// fixed makes a fixedKey. What is not set is as good as the standard value.
func fixed[T comparable](key string, at func(*Config) *T, standard T) fixedKey {
	return fixedKey{key, func(c, running *Config) bool {
		wanted, runs := at(c), at(running)
		differs := cmp.Or(*wanted, standard) != cmp.Or(*runs, standard)
		*wanted = *runs
		return differs
	}}
}

var fixedKeys = []fixedKey{
	fixed("admin.listen", func(c *Config) *string { return &c.Admin.Listen }, ""),
	fixed("state.path", func(c *Config) *string { return &c.State.Path }, ""),
	fixed("report.path", func(c *Config) *string { return &c.Report.Path }, ""),
	fixed("engine.shards", func(c *Config) *int { return &c.Engine.Shards }, engine.DefaultShards),
	fixed("engine.max_endpoints", func(c *Config) *int { return &c.Engine.MaxTrackedEndpoints }, engine.DefaultMaxTrackedEndpoints),
	fixed("engine.on_full", func(c *Config) *engine.OnFull { return &c.Engine.OnFull }, engine.EvictIdle),
	fixed("engine.stale_after", func(c *Config) *time.Duration { return &c.Engine.StaleAfter }, engine.DefaultStaleAfter),
	fixed("engine.cleanup_interval", func(c *Config) *time.Duration { return &c.Engine.CleanupInterval }, engine.DefaultCleanupInterval),
	fixed("engine.ipv4_prefix", func(c *Config) *int { return &c.Engine.IPv4Prefix }, engine.DefaultIPv4Prefix),
	fixed("engine.ipv6_prefix", func(c *Config) *int { return &c.Engine.IPv6Prefix }, engine.DefaultIPv6Prefix),
	fixed("engine.key_by_port", func(c *Config) *bool { return &c.Engine.KeyByPort }, false),
	fixed("engine.adaptive", func(c *Config) *Adaptive { return &c.Adaptive }, Adaptive{}),
	fixed("kernel_drop", func(c *Config) *netx.KernelDrop { return &c.KernelDrop }, netx.KernelDropOff),
}

// KeepFixed makes c, which was read while a gateway runs, the configuration that
// this gateway can go on with: what it cannot change is as it runs. It returns
// the keys that wait for a restart. A token is what its file holds now,
// unless another file is to have it.
func (c *Config) KeepFixed(running *Config) (waiting []string) {
	for _, k := range fixedKeys {
		if k.keep(c, running) {
			waiting = append(waiting, k.key)
		}
	}
	c.Engine.Load = running.Engine.Load // what adaptive has become
	if c.Admin.TokenFile != running.Admin.TokenFile {
		c.Admin.TokenFile, c.Admin.Token = running.Admin.TokenFile, running.Admin.Token
		waiting = append(waiting, "admin.token_file")
	}
	return waiting
}
