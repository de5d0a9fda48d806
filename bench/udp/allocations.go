package main

import (
	"net/netip"
	"runtime"
	"time"

	"github.com/seed-ee4278a0/throttled/bench/internal/load"
	"github.com/seed-ee4278a0/throttled/bench/internal/result"
	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/netx"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// allocations counts those of a saturated gateway in this process: the load and
// the echo make none, as a run without the gateway shows.
func allocations(r *result.Report, o options) error {
	upstream, err := load.StartEcho()
	if err != nil {
		return err
	}
	defer upstream.Close()
	e, err := engine.New(engine.Config{
		Default: policy.Policy{Packets: tokenbucket.Limit{Capacity: 1 << 30, RefillPerSecond: 1e9}},
		Load:    engine.NoLoad,
	})
	if err != nil {
		return err
	}
	defer e.Close()
	g, err := netx.StartGateway(netx.GatewayConfig{Engine: e, Listeners: []netx.ListenerConfig{{
		Name: "bench", Protocol: netx.UDP, Listen: netip.MustParseAddrPort("127.0.0.1:0"), Upstream: upstream.Addr.String(),
	}}})
	if err != nil {
		return err
	}
	defer g.Close()
	const name = "allocations of a packet and direction, saturated"
	for _, t := range []struct {
		who string
		at  netip.AddrPort
	}{{"throttled", g.Addrs()[0]}, {"load and echo alone", upstream.Addr}} {
		c, err := load.NewClient(load.Config{Target: t.at, Sources: load.Spread(100), Window: o.window})
		if err != nil {
			return err
		}
		defer c.Close()
		if err := warm(c, 100); err != nil {
			return err
		}
		for range o.rounds {
			each, err := allocated(c, o.slice)
			if err != nil {
				return err
			}
			r.Figure(name, "each", "").Add(t.who, each)
		}
	}
	return nil
}

func allocated(c *load.Client, d time.Duration) (each float64, err error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	trips, err := c.Run(d)
	if err != nil {
		return 0, err
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / float64(max(2*trips.Answered, 1)), nil
}
