package config

import (
	"github.com/seed-ee4278a0/throttled/engine"
)

// engine reads the engine section, and lets the engine judge its ranges.
func (d *decoder) engine(c *engine.Config, v value) {
	at := places{}
	ok := d.mapping(v, at, []field{
		{"shards", "Shards", count(&c.Shards)},
		{"max_endpoints", "MaxTrackedEndpoints", count(&c.MaxTrackedEndpoints)},
		{"on_full", "OnFull", choice(&c.OnFull, []string{"evict_idle", "deny", "allow"},
			[]engine.OnFull{engine.EvictIdle, engine.Deny, engine.Allow})},
		{"stale_after", "StaleAfter", duration(&c.StaleAfter)},
		{"cleanup_interval", "CleanupInterval", duration(&c.CleanupInterval)},
		{"ipv4_prefix", "IPv4Prefix", count(&c.IPv4Prefix)},
		{"ipv6_prefix", "IPv6Prefix", count(&c.IPv6Prefix)},
		{"key_by_port", "KeyByPort", truth(&c.KeyByPort)},
		{"adaptive", "Load", func(d *decoder, v value) { d.adaptive(c, v) }},
	})
	if ok {
		d.judge(*c, at, v)
	}
}

// judge builds an engine of c to hear what is wrong with it. How busy the CPU is
// does not matter to that.
func (d *decoder) judge(c engine.Config, at places, otherwise value) {
	c.Load = engine.NoLoad
	e, err := engine.New(c)
	if err != nil {
		d.explain(err, at, otherwise)
		return
	}
	e.Close()
}

// adaptive reads what the use of the CPU does to the refill.
func (d *decoder) adaptive(c *engine.Config, v value) {
	type thresholds struct{ low, high, floor float64 }
	usual := thresholds{engine.DefaultLoadLow, engine.DefaultLoadHigh, engine.DefaultLoadFloor}
	enabled, t, at := true, usual, places{"CPULoad": v}
	ok := d.mapping(v, at, []field{
		{"enabled", "", truth(&enabled)},
		{"low", "", orElse(&t.low, 0, share(&t.low))},
		{"high", "", orElse(&t.high, 1, share(&t.high))},
		{"floor", "", share(&t.floor)},
	})
	if !ok {
		return
	}
	load, err := engine.CPULoad(t.low, t.high, t.floor)
	switch {
	case err != nil:
		d.explain(err, at, v)
	case !enabled:
		c.Load = engine.NoLoad
	case t != usual:
		c.Load = load
	}
}
