package main

import (
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
			received, cpu, err := receive(g, floods[i], o.slice)
			if err != nil {
				return err
			}
			r.Figure("receive only: CPU of a packet", "ns", bare).Add(g.Name, float64(cpu)/float64(received))
			r.Figure("receive only: received", "1000/s", bare).Add(g.Name, float64(received)/o.slice.Seconds()/1000)
		}
	}
	return nil
}

// receive floods a gateway and counts what it has read: all that the kernel has
// not dropped at its socket.
func receive(g *peer.Gateway, f *load.Flood, d time.Duration) (received uint64, cpu time.Duration, err error) {
	before, err := g.Drops()
	if err != nil {
		return 0, 0, err
	}
	var flooded load.Flooded
	cpu, err = g.CPUOf(func() (err error) {
		flooded, err = f.Run(d, nil)
		time.Sleep(20 * time.Millisecond) // for what is queued still
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
