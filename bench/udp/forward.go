package main

import (
	"fmt"
	"time"

	"github.com/seed-ee4278a0/throttled/bench/internal/lab"
	"github.com/seed-ee4278a0/throttled/bench/internal/load"
	"github.com/seed-ee4278a0/throttled/bench/internal/peer"
	"github.com/seed-ee4278a0/throttled/bench/internal/result"
)

const (
	nginxName = "nginx stream"
	cpuName   = "CPU of a packet and direction"
)

// The ways in which round trips are made.
const (
	saturated = "saturated"
	paced     = "paced"
)

// plainName is the gateway without batches.
const plainName = "gnet, a datagram at a time"

// forwarding measures round trips of n clients.
func forwarding(l *lab.Lab, r *result.Report, o options, n int, ways ...string) error {
	upstream, err := load.StartEcho()
	if err != nil {
		return err
	}
	defer upstream.Close()
	gateways, err := peer.StartAll(l, "udp", upstream.Addr, r.Missing, peer.Nginx(),
		peer.Throttled("throttled", peer.Plenty), peer.Plain(plainName, "relay", peer.Plenty))
	if err != nil {
		return err
	}
	defer gateways.Stop()
	for _, way := range ways {
		clients := make([]*load.Client, len(gateways))
		for i, g := range gateways {
			cfg := load.Config{Target: g.Listen, Sources: load.Spread(n)}
			if way == paced {
				cfg.Rate = o.rate
			} else {
				cfg.Window = o.window
			}
			if clients[i], err = load.NewClient(cfg); err != nil {
				return err
			}
			defer clients[i].Close()
			if err := warm(clients[i], n); err != nil {
				return err
			}
		}
		for range o.rounds {
			for i, g := range gateways {
				var trips *load.Result
				cpu, err := g.CPUOf(func() (err error) { trips, err = clients[i].Run(o.slice); return err })
				if err != nil {
					return err
				}
				report(r, title(n, way), g.Name, way, trips, cpu)
			}
		}
	}
	return nil
}

func title(sources int, way string) string { return fmt.Sprintf("%d sources, %s", sources, way) }

// warm visits every source twice, so that all have their session, or as many as
// can be in some seconds.
func warm(c *load.Client, sources int) error {
	sent := uint64(0)
	for end := time.Now().Add(5 * time.Second); sent < uint64(2*sources) && time.Now().Before(end); {
		trips, err := c.Run(100 * time.Millisecond)
		if err != nil {
			return err
		}
		sent += trips.Sent
	}
	return nil
}

func report(r *result.Report, what, who, way string, trips *load.Result, cpu time.Duration) {
	if trips.Answered == 0 {
		r.Note("%s: no answer through %s", what, who)
		return
	}
	add := func(name, unit string, v float64) { r.Figure(what+": "+name, unit, nginxName).Add(who, v) }
	add(cpuName, "ns", perPacket(cpu, trips.Answered))
	add("answered", "%", 100*float64(trips.Answered)/float64(trips.Sent))
	if way == saturated {
		add("round trips", "1/s", float64(trips.Answered)/trips.Elapsed.Seconds())
		return
	}
	add("RTT p50", "µs", micros(trips.RTT.Quantile(0.5)))
	add("RTT p99", "µs", micros(trips.RTT.Quantile(0.99)))
}

// perPacket is for each packet and direction: a round trip is two.
func perPacket(cpu time.Duration, trips uint64) float64 { return float64(cpu) / float64(2*trips) }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
