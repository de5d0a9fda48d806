package engine

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// meter is a cpuReader whose machine works at the given use.
type meter struct {
	use   float64
	err   error
	times cpuTimes
	last  time.Time
}

func (m *meter) read() (cpuTimes, error) {
	now := time.Now()
	if !m.last.IsZero() {
		total := now.Sub(m.last).Seconds() * 2
		m.times.total += total
		m.times.busy += total * m.use
	}
	m.last = now
	return m.times, m.err
}

// after lets the source sample the use for a time.
func after(c *cpuLoad, m *meter, use float64, d time.Duration) float64 {
	m.use = use
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(sampleEvery)
		c.Ratio()
	}
	return c.Ratio()
}

func TestCPULoadMapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(meter)
		c := &cpuLoad{low: 0.60, high: 0.90, floor: 0.25, read: m.read}
		require.Equal(t, 1.0, c.Ratio())
		for _, s := range []struct{ use, want float64 }{
			{0, 1}, {0.60, 1}, {0.75, 0.625}, {0.90, 0.25}, {1, 0.25}, {0.70, 0.75}, {0.3, 1},
		} {
			require.InDelta(t, s.want, after(c, m, s.use, 20*time.Second), 1e-6, "use %v", s.use)
		}
		require.Less(t, after(c, m, 1, 3*time.Second), 0.3, "reacts within three seconds")
		require.Equal(t, 1.0, after(c, m, 0, 3*time.Second))
	})
}

// C114: a square wave of half a second moves the ratio by little, and never
// outside its bounds.
func TestCPULoadIsSmooth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(meter)
		c := &cpuLoad{low: 0.60, high: 0.90, floor: 0.25, read: m.read}
		after(c, m, 0.75, 20*time.Second)
		for range 50 {
			high := after(c, m, 0.95, 500*time.Millisecond)
			low := after(c, m, 0.60, 500*time.Millisecond)
			require.Less(t, low-high, 0.4)
			require.GreaterOrEqual(t, high, 0.25)
			require.LessOrEqual(t, low, 1.0)
		}
	})
}

// Where the use cannot be read, the ratio is 1 and one warning says so.
func TestCPULoadUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		m := new(meter)
		c := &cpuLoad{low: 0.60, high: 0.90, floor: 0.25, read: m.read, logger: slog.New(slog.NewTextHandler(&log, nil))}
		require.Less(t, after(c, m, 1, 10*time.Second), 0.3)
		m.err = errors.New("gone")
		require.Equal(t, 1.0, after(c, m, 1, 10*time.Second))
		require.Equal(t, 1, strings.Count(log.String(), "level=WARN"))
		require.Contains(t, log.String(), "gone")
		m.err = nil
		require.Less(t, after(c, m, 1, 10*time.Second), 0.3, "it is read again when it can be")
	})
}

// A source of the caller's own thresholds warns in the log of the engine.
func TestCPULoadWarnsInTheEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		c := &cpuLoad{low: 0.5, high: 0.6, read: func() (cpuTimes, error) { return cpuTimes{}, errors.New("gone") }}
		c.Ratio() // before anybody could hear of it
		e, err := New(Config{Load: c, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.Equal(t, 1.0, e.Report().RefillRatio)
		require.NoError(t, e.Close())
		require.Equal(t, 1, strings.Count(log.String(), "level=WARN"))
	})
}

func TestRefillClock(t *testing.T) {
	var c refillClock
	c.start(1)
	require.EqualValues(t, 100, c.load().at(100))
	c.set(100, 0.5)
	require.EqualValues(t, 150, c.load().at(200))
	require.EqualValues(t, 100, c.load().at(50), "one that read the time before the change comes late")
	c.set(200, 0.5)
	require.EqualValues(t, 200, c.load().at(300))
	c.set(300, 0)
	require.EqualValues(t, 200, c.load().at(1<<62))
	for _, ratio := range []float64{1, 0.999, 0.75, 1.0 / 3, 0.1, 1e-3} {
		c.start(ratio)
		s := c.load()
		for _, now := range []int64{0, 1, 12345, 1 << 40} {
			for _, wait := range []time.Duration{1, 7, time.Millisecond, time.Hour} {
				real := s.real(now, wait)
				require.GreaterOrEqual(t, s.at(now+int64(real)), s.at(now)+int64(wait))
				require.Less(t, s.at(now+int64(real)-1), s.at(now)+int64(wait))
			}
		}
	}
}
