package config

import (
	"github.com/seed-ee4278a0/throttled/engine"
)

// engine reads the engine section, and lets the engine judge its ranges.
func (d *decoder) engine(config *Config, v value) {
	at, c := places{}, &config.Engine
	ok := d.mapping(v, at, []field{
		{"shards", "Shards", count(&c.Shards)},
		{"max_endpoints", "MaxTrackedEndpoints", count(&c.MaxTrackedEndpoints)},
		{"on_full", "OnFull", choice(&c.OnFull, onFullWords)},
		{"stale_after", "StaleAfter", duration(&c.StaleAfter)},
		{"cleanup_interval", "CleanupInterval", interval(&c.CleanupInterval)},
		{"ipv4_prefix", "IPv4Prefix", count(&c.IPv4Prefix)},
		{"ipv6_prefix", "IPv6Prefix", count(&c.IPv6Prefix)},
		{"key_by_port", "KeyByPort", truth(&c.KeyByPort)},
		{"adaptive", "Load", func(d *decoder, v value) { d.adaptive(config, v) }},
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

// Adaptive is what the use of the CPU does to the refill.
type Adaptive struct {
	Enabled          bool
	Low, High, Floor float64
}

var usualAdaptive = Adaptive{true, engine.DefaultLoadLow, engine.DefaultLoadHigh, engine.DefaultLoadFloor}

// adaptive reads it, and makes the load source of it.
func (d *decoder) adaptive(c *Config, v value) {
	a, at := usualAdaptive, places{"CPULoad": v}
	ok := d.mapping(v, at, []field{
		{"enabled", "", truth(&a.Enabled)},
		{"low", "", orElse(&a.Low, 0, share(&a.Low))},
		{"high", "", orElse(&a.High, 1, share(&a.High))},
		{"floor", "", share(&a.Floor)},
	})
	if !ok {
		return
	}
	load, err := engine.CPULoad(a.Low, a.High, a.Floor)
	switch {
	case err != nil:
		d.explain(err, at, v)
	case !a.Enabled:
		c.Engine.Load = engine.NoLoad
	case a != usualAdaptive:
		c.Engine.Load = load
	}
	c.Adaptive = a
}
