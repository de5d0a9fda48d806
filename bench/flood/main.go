// Command flood measures what is left for honest clients, and what it costs the
// gateway, while locked-out sources flood it: gnet without batches, this gateway
// dropping in user space and in the kernel, and this gateway behind nftables. All
// run on one core, in turn, and clients, flood and upstream on another.
package main

import (
	"flag"
	"time"

	"github.com/seed-ee4278a0/throttled/bench/internal/lab"
	"github.com/seed-ee4278a0/throttled/bench/internal/load"
	"github.com/seed-ee4278a0/throttled/bench/internal/peer"
	"github.com/seed-ee4278a0/throttled/bench/internal/result"
)

type options struct {
	rounds   int
	slice    time.Duration
	honest   int
	trips    float64
	flooders int
	rate     int
	plot     result.Numbers
	out      string
}

func main() {
	o := options{plot: result.Numbers{50_000, 100_000, 200_000, 300_000, 400_000, 600_000, 800_000}}
	flag.IntVar(&o.rounds, "rounds", 7, "measurements of each figure")
	flag.DurationVar(&o.slice, "for", time.Second, "length of a measurement")
	flag.IntVar(&o.honest, "honest", 100, "honest clients")
	flag.Float64Var(&o.trips, "trips", 5000, "round trips a second of all of them together")
	flag.IntVar(&o.flooders, "flooders", 20, "addresses that flood")
	flag.IntVar(&o.rate, "rate", 600_000, "datagrams a second of all of them together, as far as the machine can")
	flag.Var(&o.plot, "plot", "rates of the flood in the plot; empty = no plot")
	flag.StringVar(&o.out, "out", "results", "folder for flood.json and flood-rates.svg; empty = none")
	lab.Main(func(l *lab.Lab) error { return run(l, o) })
}

const perPacket = "gnet, a datagram at a time"

// budget is ten times what an honest client sends; who floods is locked out for
// an hour.
func (o options) budget() peer.Budget {
	each := int(o.trips)/o.honest + 1
	return peer.Budget{Capacity: 5 * each, Refill: 10 * each}
}

func run(l *lab.Lab, o options) error {
	r := result.New()
	r.Note("on the loopback the kernel's receive work, filters and nftables included, runs on the sender's core: it is in the cost of a flood packet at its sender, not in the gateway's")
	r.Note("%d honest clients make %.0f round trips/s; an answer after 200 ms is none; %d locked-out addresses flood", o.honest, o.trips, o.flooders)
	upstream, err := load.StartEcho()
	if err != nil {
		return err
	}
	defer upstream.Close()
	inKernel := o.budget()
	inKernel.KernelDrop = true
	gateways, err := peer.StartAll(l, "udp", upstream.Addr, r.Missing,
		peer.Plain(perPacket, "relay", o.budget()),
		peer.Throttled("throttled, dropping in user space", o.budget()),
		peer.Throttled("throttled, kernel_drop: socket", inKernel),
		peer.Throttled(nftName, o.budget()).Needing("nft", "nftables"))
	if err != nil {
		return err
	}
	defer gateways.Stop()
	scenes := make([]*scene, len(gateways))
	for i, g := range gateways {
		if scenes[i], err = newScene(g, o); err != nil {
			return err
		}
		defer scenes[i].close()
	}
	if err := compare(r, scenes, o); err != nil {
		return err
	}
	if err := drawRates(scenes, o); err != nil {
		return err
	}
	return r.Publish(o.out, "flood")
}
