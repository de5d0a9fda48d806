package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed-ee4278a0/throttled/bench/internal/lab"
	"github.com/seed-ee4278a0/throttled/bench/internal/load"
	"github.com/seed-ee4278a0/throttled/bench/internal/peer"
	"github.com/seed-ee4278a0/throttled/bench/internal/result"
)

// receiving measures what a datagram costs that goes no further: one that a bare
// gnet server discards, and one from a locked-out source, which the gateway also
// has to decide on.
func receiving(l *lab.Lab, r *result.Report, o options) error {
	upstream, err := load.StartEcho()
	if err != nil {
		return err
	}
	defer upstream.Close()
	const bare = "gnet, discards"
	gateways, err := peer.StartAll(l, "udp", upstream.Addr, r.Missing,
		peer.Plain(bare, "receive", peer.Plenty),
		peer.Throttled("throttled, all locked out", peer.Budget{Capacity: 1, Refill: 1}))
	if err != nil {
		return err
	}
	defer gateways.Stop()
	floods := make([]*load.Flood, len(gateways))
	for i, g := range gateways {
		if floods[i], err = load.NewFlood(g.Listen, load.Sources{Addresses: 100}, 0); err != nil {
			return err
		}
		defer floods[i].Close()
		if _, err := floods[i].Run(100*time.Millisecond, nil); err != nil { // locks them out
			return err
		}
	}
	for range o.rounds {
		for i, g := range gateways {
			each, err := backlogs(g, floods[i], o.slice)
			if err != nil {
				return err
			}
			r.Figure("receive only, saturated: CPU of a packet", "ns", bare).Add(g.Name, each)
		}
	}
	return nil
}

// fill is how long the queue of a gateway is filled; settle is time for what it
// has read last.
const (
	fill   = 20 * time.Millisecond
	settle = 2 * time.Millisecond
)

// backlogs is the CPU time of a packet of which so many others wait that the
// gateway does not find the end of them: it is stopped while they are sent. A
// load that has but one core is not fast enough to do that to a gateway that runs.
func backlogs(g *peer.Gateway, f *load.Flood, d time.Duration) (each float64, err error) {
	var packets uint64
	var cpu time.Duration
	for end := time.Now().Add(d); packets == 0 || time.Now().Before(end); {
		n, t, err := backlog(g, f)
		if err != nil {
			return 0, err
		}
		packets += n
		cpu += t
	}
	return float64(cpu) / float64(packets), nil
}

// backlog stops a gateway, fills its queue and measures it while it empties that:
// all that the kernel has not dropped at its socket.
func backlog(g *peer.Gateway, f *load.Flood) (received uint64, cpu time.Duration, err error) {
	before, err := g.Drops()
	if err != nil {
		return 0, 0, err
	}
	if err := g.Pause(); err != nil {
		return 0, 0, err
	}
	flooded, err := f.Run(fill, nil)
	if err != nil {
		return 0, 0, errors.Join(err, g.Resume())
	}
	cpu, err = g.CPUOf(func() error {
		if err := g.Resume(); err != nil {
			return err
		}
		err := g.Await(g.Idle)
		time.Sleep(settle)
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	after, err := g.Drops()
	if err != nil {
		return 0, 0, err
	}
	if received = flooded.Sent - (after - before); received == 0 || received > flooded.Sent {
		return 0, 0, fmt.Errorf("%s: %d sent, %d dropped", g.Name, flooded.Sent, after-before)
	}
	return received, cpu, nil
}
