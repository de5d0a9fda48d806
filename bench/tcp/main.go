// Command tcp measures the gateway's TCP path beside nginx's stream module and
// haproxy: CPU time for each connection and for each megabyte. All run on one
// core, in turn, and clients and server on another.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/seed-ee4278a0/throttled/bench/internal/lab"
	"github.com/seed-ee4278a0/throttled/bench/internal/load"
	"github.com/seed-ee4278a0/throttled/bench/internal/peer"
	"github.com/seed-ee4278a0/throttled/bench/internal/result"
)

type options struct {
	rounds  int
	slice   time.Duration
	clients int
	bulk    int
	out     string
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 7, "measurements of each figure")
	flag.DurationVar(&o.slice, "for", time.Second, "length of a measurement")
	flag.IntVar(&o.clients, "clients", 16, "connections at a time where they are short")
	flag.IntVar(&o.bulk, "transfers", 4, "connections at a time that transfer")
	flag.StringVar(&o.out, "out", "results", "folder for tcp.json; empty = none")
	lab.Main(func(l *lab.Lab) error { return run(l, o) })
}

const nginxName = "nginx stream"

func run(l *lab.Lab, o options) error {
	r := result.New()
	r.Note("on the loopback the kernel's receive work runs on the sender's core: what clients and server send costs the load's core, what a gateway sends costs the gateway's")
	r.Note("a connection: connect, ask for 64 bytes, close, %d at a time; a megabyte: 2^20 bytes from the server, over %d connections", o.clients, o.bulk)
	upstream, err := load.StartServer()
	if err != nil {
		return err
	}
	defer upstream.Close()
	gateways, err := peer.StartAll(l, "tcp", upstream.Addr, r.Missing,
		peer.Nginx(), peer.Throttled("throttled", peer.Plenty), peer.HAProxy(false), peer.HAProxy(true))
	if err != nil {
		return err
	}
	defer gateways.Stop()
	if err := measure(r, gateways, options{rounds: 1, slice: o.slice / 10, clients: o.clients, bulk: o.bulk}); err != nil {
		return err // to warm up
	}
	r.Figures = nil
	if err := measure(r, gateways, o); err != nil {
		return err
	}
	return r.Publish(o.out, "tcp")
}

// addresses are the clients': with all of them there are ports enough for
// connections that are in TIME_WAIT.
const addresses = 1000

func measure(r *result.Report, gateways peer.Set, o options) error {
	for _, what := range []struct {
		cpu, rate string
		load      func(g *peer.Gateway) (int64, error)
	}{
		{"CPU of a connection", "connections", func(g *peer.Gateway) (int64, error) {
			return load.Connections(g.Listen, addresses, o.clients, o.slice)
		}},
		{"CPU of a megabyte", "megabytes", func(g *peer.Gateway) (int64, error) {
			return load.Transfer(g.Listen, o.bulk, o.slice)
		}},
	} {
		fmt.Fprintln(os.Stderr, what.cpu)
		for range o.rounds {
			for _, g := range gateways {
				var n int64
				start := time.Now()
				cpu, err := g.CPUOf(func() (err error) { n, err = what.load(g); return err })
				if err != nil {
					return fmt.Errorf("%s: %w", g.Name, err)
				}
				if n == 0 {
					return fmt.Errorf("%s: nothing served in %v", g.Name, o.slice)
				}
				elapsed := time.Since(start)
				r.Figure(what.cpu, "µs", nginxName).Add(g.Name, float64(cpu)/float64(n)/float64(time.Microsecond))
				r.Figure(what.rate, "1/s", nginxName).Add(g.Name, float64(n)/elapsed.Seconds())
			}
		}
	}
	return nil
}
