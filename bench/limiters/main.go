// Command limiters measures the limiters of policy/limiter beside those of
// other libraries, in turn in one run, and prints the medians as a table.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
)

var runs = flag.Int("runs", 7, "measurements of each figure; the median is printed")

func main() {
	testing.Init()
	flag.Parse()
	if err := flag.Set("test.benchtime", "200ms"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("| what | cores | who | ns | of the first | min-max | allocs |")
	fmt.Println("|---|---|---|---|---|---|---|")
	for _, s := range scenes() {
		for _, cores := range []int{1, 2} {
			s.measure(cores)
		}
	}
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

func (s scene) measure(cores int) {
	runtime.GOMAXPROCS(cores)
	times := make([][]float64, len(s.who))
	allocs := make([]int64, len(s.who))
	for range *runs {
		for i, c := range s.who {
			r := c.benchmark()
			times[i] = append(times[i], float64(r.T.Nanoseconds())/float64(r.N))
			allocs[i] = max(allocs[i], r.AllocsPerOp())
		}
	}
	first := median(times[0])
	for i, c := range s.who {
		m := median(times[i])
		fmt.Printf("| %s | %d | %s | %.0f | %.2f | %.0f-%.0f | %d |\n",
			s.what, cores, c.name, m, m/first, slices.Min(times[i]), slices.Max(times[i]), allocs[i])
	}
}

func median(times []float64) float64 {
	slices.Sort(times)
	return times[len(times)/2]
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
