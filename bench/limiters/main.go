// Command limiters measures the limiters of policy/limiter beside those of
// other libraries, in turn in one run.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/seed-ee4278a0/throttled/bench/internal/result"
)

func main() {
	rounds := flag.Int("rounds", 7, "measurements of each figure")
	slice := flag.Duration("for", 200*time.Millisecond, "length of a measurement")
	out := flag.String("out", "results", "folder for limiters.json; empty = none")
	testing.Init()
	flag.Parse()
	if err := run(*rounds, *slice, *out); err != nil {
		fmt.Fprintln(os.Stderr, "limiters:", err)
		os.Exit(1)
	}
}

func run(rounds int, slice time.Duration, out string) error {
	if err := flag.Set("test.benchtime", slice.String()); err != nil {
		return err
	}
	r := result.New()
	for _, s := range scenes() {
		for _, cores := range []int{1, 2} {
			s.measure(r, cores, rounds)
		}
	}
	return r.Publish(out, "limiters")
}

// A scene is one thing that several limiters can do. The first of them is what
// the others are compared with.
type scene struct {
	what string
	who  []contender
}

// A contender sets up, and returns what is measured and what to do after it.
// The function is called by all cores, each with calls of its own.
type contender struct {
	name  string
	setup func() (call func(i int), after func())
	run   func(b *testing.B, call func(i int)) // nil: call it b.N times on all cores
}

func (s scene) measure(r *result.Report, cores, rounds int) {
	runtime.GOMAXPROCS(cores)
	what := fmt.Sprintf("%s, cores: %d", s.what, cores)
	fmt.Fprintln(os.Stderr, what)
	for range rounds {
		for _, c := range s.who {
			b := c.benchmark()
			r.Figure(what, "ns", s.who[0].name).Add(c.name, float64(b.T.Nanoseconds())/float64(b.N))
			r.Figure(s.what+": allocations", "each call", "").Add(c.name, float64(b.AllocsPerOp()))
		}
	}
}

func (c contender) benchmark() testing.BenchmarkResult {
	run := c.run
	if run == nil {
		run = onAllCores
	}
	return testing.Benchmark(func(b *testing.B) {
		call, after := c.setup()
		runtime.GC()
		b.ReportAllocs()
		b.ResetTimer()
		run(b, call)
		b.StopTimer()
		after()
	})
}

func onAllCores(b *testing.B, call func(i int)) {
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			call(i)
		}
	})
}
