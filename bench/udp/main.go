// Command udp measures the gateway's UDP path beside nginx's stream module and
// beside gnet without batches: CPU time for each packet, round-trip times, and
// allocations. All run on one core, in turn, and the load and the upstream that
// echoes on another.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/seed-ee4278a0/throttled/bench/internal/lab"
	"github.com/seed-ee4278a0/throttled/bench/internal/result"
)

type options struct {
	rounds  int
	slice   time.Duration
	sources result.Numbers
	plot    result.Numbers
	rate    float64
	window  int
	out     string
}

func main() {
	o := options{sources: result.Numbers{100, 2000}, plot: result.Numbers{10, 30, 100, 300, 1000, 3000, 10000}}
	flag.IntVar(&o.rounds, "rounds", 7, "measurements of each figure")
	flag.DurationVar(&o.slice, "for", time.Second, "length of a measurement")
	flag.Var(&o.sources, "sources", "numbers of clients to measure with")
	flag.Var(&o.plot, "plot", "numbers of clients in the plot; empty = no plot")
	flag.Float64Var(&o.rate, "rate", 20_000, "round trips a second where they are paced")
	flag.IntVar(&o.window, "window", 192, "requests that wait for an answer at a time where they are not paced")
	flag.StringVar(&o.out, "out", "results", "folder for udp.json and udp-sources.svg; empty = none")
	lab.Main(func(l *lab.Lab) error { return run(l, o) })
}

func run(l *lab.Lab, o options) error {
	r := result.New()
	r.Note("on the loopback the kernel's receive work runs on the sender's core: what clients and upstream send costs the load's core, what a gateway sends costs the gateway's")
	r.Note("64 bytes; gateways on one core, load and echo on another; saturated: %d requests wait for their answer at a time; paced: %.0f round trips/s", o.window, o.rate)
	fmt.Fprintln(os.Stderr, "receiving")
	if err := receiving(l, r, o); err != nil {
		return err
	}
	for _, n := range o.sources {
		fmt.Fprintf(os.Stderr, "forwarding, %d sources\n", n)
		if err := forwarding(l, r, o, n, saturated, paced); err != nil {
			return err
		}
	}
	fmt.Fprintln(os.Stderr, "allocations")
	if err := allocations(r, o); err != nil {
		return err
	}
	if err := drawSources(l, o); err != nil {
		return err
	}
	return r.Publish(o.out, "udp")
}
