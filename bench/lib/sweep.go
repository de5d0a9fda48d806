package main

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/seed-ee4278a0/throttled/bench/internal/result"
	"github.com/seed-ee4278a0/throttled/bench/internal/stat"
	"github.com/seed-ee4278a0/throttled/engine"
)

// sweeps measures the slow decisions while the janitor goes through the whole
// table without a rest, and while it does nothing. Nothing goes stale: each
// sweep finds all entries.
func sweeps(r *result.Report, o options, k *keys) error {
	n := len(k.endpoints)
	runtime.GOMAXPROCS(runtime.NumCPU())
	fmt.Fprintf(os.Stderr, "sweeps of %d keys\n", n)
	r.Note("a decision that is timed by itself has a reading of the clock more, some 25–50 ns")
	const still = "not swept"
	for range o.rounds {
		for _, c := range []struct {
			name  string
			every time.Duration
		}{{still, time.Hour}, {"swept without a rest", time.Nanosecond}} {
			p50, p999, err := latencies(k, c.every, 3*o.slice)
			if err != nil {
				return err
			}
			r.Figure(fmt.Sprintf("p50 of a decision, %d keys", n), "ns", still).Add(c.name, p50)
			r.Figure(fmt.Sprintf("p99.9 of a decision, %d keys", n), "ns", still).Add(c.name, p999)
		}
	}
	return nil
}

// latencies times each decision by itself. The engine lives no longer, so that
// its janitor is not there in another's turn.
func latencies(k *keys, cleanup, d time.Duration) (p50, p999 float64, err error) {
	e, err := engine.New(engine.Config{
		Default:             paths[0].policy(),
		MaxTrackedEndpoints: len(k.endpoints),
		StaleAfter:          24 * time.Hour,
		CleanupInterval:     cleanup,
		KeyByPort:           true,
		Load:                engine.NoLoad,
	})
	if err != nil {
		return 0, 0, err
	}
	for _, ep := range k.endpoints {
		e.Evaluate(ep)
	}
	runtime.GC()
	var h stat.Histogram
	start := time.Now()
	for i, last := 0, start; last.Sub(start) < d; i++ {
		e.Evaluate(k.endpoints[i%len(k.endpoints)])
		now := time.Now()
		h.Add(now.Sub(last))
		last = now
	}
	return float64(h.Quantile(0.5)), float64(h.Quantile(0.999)), e.Close()
}
