// Command lib measures the engine's decision beside other libraries and beside
// the floor, the least that a table of endpoints can cost: time, allocations,
// heap and the work they give the garbage collector.
//
// All contenders are there at once and are measured in turn, round by round,
// over the same endpoints in the same random order. Those that are keyed by a
// string get it ready made, which flatters them.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/seed-ee4278a0/throttled/bench/internal/result"
)

type options struct {
	rounds int
	slice  time.Duration
	keys   result.Numbers
	sweep  bool
	out    string
}

func main() {
	o := options{keys: result.Numbers{100_000, 1_000_000}}
	flag.IntVar(&o.rounds, "rounds", 7, "measurements of each figure")
	flag.DurationVar(&o.slice, "for", 100*time.Millisecond, "length of a measurement")
	flag.Var(&o.keys, "keys", "sizes of the tables")
	flag.BoolVar(&o.sweep, "sweep", false, "measure only decisions during a sweep")
	flag.StringVar(&o.out, "out", "results", "folder for lib.json; empty = none")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "lib:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	r := result.New()
	r.Note("decisions on endpoints in random order; on two cores both decide, and the time is that of both together for each decision")
	r.Note("%s is fixed to 20 a second: it allows a part where others deny all, and is left out where it would allow all", wireguardName)
	for _, n := range o.keys {
		if n < 2*chunk {
			return fmt.Errorf("a table of %d keys is too small to measure", n)
		}
		if !o.sweep {
			decisions(r, o, newKeys(n))
			weights(r, o, n)
		}
		if err := sweeps(r, o, newKeys(n)); err != nil {
			return err
		}
	}
	name := "lib"
	if o.sweep {
		name = "sweep"
	}
	return r.Publish(o.out, name)
}

// decisions measures all paths over the same keys.
func decisions(r *result.Report, o options, k *keys) {
	for _, p := range paths {
		var subjects []*subject
		for _, c := range contenders {
			if s := c.subject(k, p); s != nil {
				subjects = append(subjects, s)
			}
		}
		for _, cores := range []int{1, 2} {
			what := fmt.Sprintf("%s, %d keys, cores: %d", p.name, len(k.endpoints), cores)
			fmt.Fprintln(os.Stderr, what)
			runtime.GOMAXPROCS(cores)
			runtime.GC()
			for range o.rounds {
				for _, s := range subjects {
					ns, allocs := s.measure(cores, o.slice)
					r.Figure(what, "ns", floorName).Add(s.name, ns)
					r.Figure(p.name+", allocations", "each decision", "").Add(s.name, allocs)
				}
			}
		}
		for _, s := range subjects {
			s.close()
		}
	}
}
