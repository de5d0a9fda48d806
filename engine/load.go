package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"
)

// A LoadSource says how fast buckets refill: the multiplier of every rate,
// 0..1. Ratio is called by New and then four times a second by the engine's
// goroutine; a value outside 0..1 counts as the nearest end, NaN as 1.
type LoadSource interface{ Ratio() float64 }

// NoLoad is the LoadSource that switches adaptation off: always 1.
var NoLoad LoadSource = noLoad{}

type noLoad struct{}

func (noLoad) Ratio() float64 { return 1 }

// What a Config without a LoadSource has.
const (
	DefaultLoadLow   = 0.60
	DefaultLoadHigh  = 0.90
	DefaultLoadFloor = 0.25
)

// CPULoad is a LoadSource that follows the CPU use of the process's cgroup (v2)
// against its quota or, where there is no quota, that of the machine. Use up to
// low gives ratio 1, from high on floor, and a straight line between: 0 <= low
// < high <= 1 and 0 <= floor <= 1. The use is smoothed over about a second.
// Where it cannot be read the ratio is 1, and the first engine that was given
// the source logs one warning.
func CPULoad(low, high, floor float64) (LoadSource, error) {
	var errs []error
	if !(low >= 0 && low < high && high <= 1) {
		errs = append(errs, fmt.Errorf("engine: CPULoad: low %v and high %v are not 0 <= low < high <= 1", low, high))
	}
	if !(floor >= 0 && floor <= 1) {
		errs = append(errs, fmt.Errorf("engine: CPULoad: floor %v is outside 0..1", floor))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return &cpuLoad{low: low, high: high, floor: floor, read: newCPUReader()}, nil
}

// cpuLoad maps the CPU use that it reads to a ratio.
type cpuLoad struct {
	low, high, floor float64
	read             cpuReader

	mu     sync.Mutex   // guards what follows: two engines may share a source
	logger *slog.Logger // of the first of them
	last   cpuTimes
	lastAt time.Time
	use    float64 // smoothed
	warned bool
}

// cpuTimes are readings of two meters: the time that was worked, and the time
// that could have been.
type cpuTimes struct{ busy, total float64 }

// A cpuReader reads the meters.
type cpuReader func() (cpuTimes, error)

// smoothing is the time constant of the moving average.
const smoothing = time.Second

// shortest is the least time between two readings that says something; the
// meters of the machine tick every 10 ms.
const shortest = 100 * time.Millisecond

// logTo names the logger of the one warning, unless there is one already.
func (c *cpuLoad) logTo(logger *slog.Logger) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.logger == nil {
		c.logger = logger
	}
}

// Ratio implements LoadSource.
func (c *cpuLoad) Ratio() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	elapsed := now.Sub(c.lastAt)
	if elapsed >= shortest {
		c.sample(now, elapsed)
	}
	return c.ratio()
}

func (c *cpuLoad) sample(now time.Time, elapsed time.Duration) {
	times, err := c.read()
	if err != nil {
		c.use = 0
		if !c.warned && c.logger != nil {
			c.logger.Warn("CPU use cannot be read, refill stays at its full rate", "err", err)
			c.warned = true
		}
		return
	}
	if total := times.total - c.last.total; !c.lastAt.IsZero() && total > 0 {
		use := max(0, min(1, (times.busy-c.last.busy)/total))
		c.use += (use - c.use) * (1 - math.Exp(-elapsed.Seconds()/smoothing.Seconds()))
	}
	c.last, c.lastAt = times, now
}

func (c *cpuLoad) ratio() float64 {
	part := (c.use - c.low) / (c.high - c.low)
	return 1 - max(0, min(1, part))*(1-c.floor)
}

func defaultLoad() LoadSource {
	return &cpuLoad{low: DefaultLoadLow, high: DefaultLoadHigh, floor: DefaultLoadFloor, read: newCPUReader()}
}
