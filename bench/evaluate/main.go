// Command evaluate measures the engine's decision beside the floor, the least
// that a table of endpoints can cost, in turn in one run, and prints medians as
// the table of the README.
package main

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

var (
	runs  = flag.Int("runs", 7, "measurements of each figure; the median is printed")
	large = flag.Int("largest", 1_000_000, "leave out tables with more endpoints")
)

func main() {
	testing.Init()
	flag.Parse()
	if err := flag.Set("test.benchtime", "200ms"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("| decision | endpoints | cores | floor ns | throttled ns | ratio | min-max | allocs | B/endpoint |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|")
	for _, path := range paths() {
		for _, n := range []int{1, 1_000, 100_000, 1_000_000} {
			if n <= *large && !(path.usesUp() && n < 100_000) { // a few new ones are no measurement
				path.measure(n)
			}
		}
	}
}

// A path is one way through a decision.
type path struct {
	name  string
	cfg   engine.Config
	warm  int  // packets of each endpoint before the measurement
	fresh bool // the endpoints measured are not those of the table
	floor int64
}

// limit is a policy of so many packets with next to no refill.
func limit(capacity int64) policy.Policy {
	return policy.Policy{
		Packets:    tokenbucket.Limit{Capacity: capacity, RefillPerSecond: 1e-6},
		Escalation: policy.Escalation{Disabled: true},
	}
}

func paths() []path {
	const plenty = 1<<31 - 1
	locked := limit(1)
	locked.Escalation = policy.Escalation{MaxSoftViolations: 1, Lockout: time.Hour}
	return []path{
		{name: "allowed", cfg: engine.Config{Default: limit(plenty)}, warm: 1, floor: plenty},
		{name: "soft-denied", cfg: engine.Config{Default: limit(1)}, warm: 2, floor: 1},
		{name: "locked", cfg: engine.Config{Default: locked}, warm: 2, floor: 1},
		{name: "new", cfg: engine.Config{}, fresh: true, floor: plenty},
		{name: "table full", cfg: engine.Config{Default: limit(1)}, warm: 1, fresh: true, floor: plenty},
	}
}

// usesUp reports whether a measurement uses its targets up: they are new once.
func (p path) usesUp() bool { return p.fresh && p.warm == 0 }

func (p path) measure(n int) {
	for _, cores := range []int{1, 2} {
		runtime.GOMAXPROCS(cores)
		var floors, ours []float64
		var allocs int64
		var bytes float64
		for range *runs {
			f := p.runFloor(n)
			r, b := p.runEngine(n)
			floors = append(floors, f)
			ours = append(ours, nsPerOp(r))
			allocs, bytes = max(allocs, r.AllocsPerOp()), b
		}
		slices.Sort(floors)
		slices.Sort(ours)
		f, o := floors[len(floors)/2], ours[len(ours)/2]
		fmt.Printf("| %s | %d | %d | %.0f | %.0f | %.2f | %.0f-%.0f | %d | %s |\n",
			p.name, n, cores, f, o, o/f, ours[0], ours[len(ours)-1], allocs, p.perEndpoint(bytes))
	}
}

// perEndpoint is the heap for each endpoint, where the table was made before.
func (p path) perEndpoint(bytes float64) string {
	if p.usesUp() {
		return "-"
	}
	return fmt.Sprintf("%.0f", bytes)
}

func nsPerOp(r testing.BenchmarkResult) float64 { return float64(r.T.Nanoseconds()) / float64(r.N) }

func (p path) runFloor(n int) float64 {
	list := addresses(n, 10)
	var f *floor
	return nsPerOp(p.benchmark(p.targets(n), func() {
		f = newFloor(n)
		if !p.fresh {
			for _, a := range list {
				f.allow(a, p.floor)
			}
		}
		runtime.GC()
	}, func(ep netip.AddrPort) { f.allow(ep, p.floor) }))
}

// runEngine also returns the heap for each endpoint of a full table.
func (p path) runEngine(n int) (testing.BenchmarkResult, float64) {
	list := addresses(n, 10)
	targets := p.targets(n)
	var e *engine.Engine
	var used float64
	r := p.benchmark(targets, func() {
		if e != nil {
			e.Close()
			e = nil
		}
		before := heap()
		p.cfg.MaxTrackedEndpoints = n
		p.cfg.Load = engine.NoLoad
		var err error
		if e, err = engine.New(p.cfg); err != nil {
			panic(err)
		}
		for range p.warm {
			for _, a := range list {
				e.Evaluate(a)
			}
		}
		used = float64(heap()-before) / float64(n)
	}, func(ep netip.AddrPort) { e.Evaluate(ep) })
	e.Close()
	return r, used
}

// targets are the endpoints whose decision is measured.
func (p path) targets(n int) []netip.AddrPort {
	if p.fresh {
		return addresses(n, 11)
	}
	return addresses(n, 10)
}

// benchmark runs f over the targets on all cores, each from another place. What
// setup makes serves for all rounds, but where the targets must be new it is
// made for each, and a round that is longer than the targets ends with known ones.
func (p path) benchmark(targets []netip.AddrPort, setup func(), f func(netip.AddrPort)) testing.BenchmarkResult {
	if !p.usesUp() {
		setup()
	}
	return testing.Benchmark(func(b *testing.B) {
		if p.usesUp() {
			setup()
		}
		b.ReportAllocs()
		b.ResetTimer()
		b.RunParallel(func(pb *testing.PB) {
			for i := rand.IntN(len(targets)); pb.Next(); i++ {
				if i >= len(targets) {
					i = 0
				}
				f(targets[i])
			}
		})
	})
}

// addresses are n distinct IPv4 endpoints of a /8 in random order.
func addresses(n int, net uint32) []netip.AddrPort {
	list := make([]netip.AddrPort, n)
	for i := range list {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], net<<24+uint32(i))
		list[i] = netip.AddrPortFrom(netip.AddrFrom4(b), 7000)
	}
	rand.Shuffle(n, func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
