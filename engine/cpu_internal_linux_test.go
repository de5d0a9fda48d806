package engine

import (
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func write(t *testing.T, file, text string) {
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
}

// The tightest quota on the way to the root counts.
func TestCPUQuota(t *testing.T) {
	root := t.TempDir()
	_, cores := cpuQuota(root, "/a/b")
	require.Zero(t, cores)
	write(t, root+"/a/b/cpu.max", "max 100000\n")
	_, cores = cpuQuota(root, "/a/b")
	require.Zero(t, cores)
	write(t, root+"/a/cpu.max", "150000 100000\n")
	dir, cores := cpuQuota(root, "/a/b")
	require.Equal(t, 1.5, cores)
	require.Equal(t, root+"/a", dir)
	write(t, root+"/a/b/cpu.max", "400000 100000\n")
	dir, cores = cpuQuota(root, "/a/b")
	require.Equal(t, 1.5, cores)
	require.Equal(t, root+"/a", dir)
	write(t, root+"/a/b/cpu.max", "garbage")
	_, cores = cpuQuota(root, "/a/b")
	require.Equal(t, 1.5, cores)
}

// A quota of more than the machine has does not hide that the machine is busy.
func TestCPUReader(t *testing.T) {
	root := t.TempDir()
	write(t, root+"/a/cpu.stat", "usage_usec 1000\n")
	for _, c := range []struct {
		quota  string
		cgroup bool
	}{
		{"max 100000", false}, {"150000 100000", true}, {"199999 100000", true},
		{"200000 100000", false}, {"800000 100000", false},
	} {
		write(t, root+"/a/cpu.max", c.quota)
		times, err := readerOf(root, "/a", 2)()
		require.NoError(t, err)
		require.Equal(t, c.cgroup, times.busy == 1e-3, c.quota)
	}
}

func TestCgroupReader(t *testing.T) {
	file := t.TempDir() + "/cpu.stat"
	read := cgroupReader(file, 1.5)
	_, err := read()
	require.Error(t, err)
	write(t, file, "usage_usec 2500000\nuser_usec 1\n")
	times, err := read()
	require.NoError(t, err)
	require.Equal(t, 2.5, times.busy)
	write(t, file, "user_usec 1\n")
	_, err = read()
	require.ErrorContains(t, err, "usage_usec")
}

func TestMachineTimes(t *testing.T) {
	times, err := machineTimes()
	require.NoError(t, err)
	require.Greater(t, times.total, times.busy)
	require.Positive(t, times.busy)
}

// Work on all cores makes the real ratio fall within three seconds, and it
// comes back when the machine rests. Where others keep it busy all the time, it
// must not: a meter of the test's own says which of the two it is.
func TestCPULoadOfTheMachine(t *testing.T) {
	e, err := New(Config{})
	require.NoError(t, err)
	defer e.Close()
	ratio := func() float64 { return e.Report().RefillRatio }
	require.Equal(t, 1.0, ratio())

	stop := burn()
	began := time.Now()
	require.Eventually(t, func() bool { return ratio() < 0.5 }, 10*time.Second, 10*time.Millisecond)
	t.Logf("fell after %v", time.Since(began))
	require.Less(t, time.Since(began), 4*time.Second) // 3 s, and one for the test's own turn
	stop()

	meter := newCPUReader()
	last, err := meter()
	require.NoError(t, err)
	rested := 0
	for range 24 { // half seconds
		time.Sleep(500 * time.Millisecond)
		if ratio() > 0.9 {
			return
		}
		now, err := meter()
		require.NoError(t, err)
		if (now.busy-last.busy)/(now.total-last.total) < DefaultLoadLow-0.05 {
			rested++
		} else {
			rested = 0
		}
		last = now
		require.Less(t, rested, 8, "4 s of rest, and the ratio is %v", ratio())
	}
	t.Log("the machine never rested")
}

// burn keeps all cores busy until stop is called.
func burn() (stop func()) {
	var (
		done atomic.Bool
		wg   sync.WaitGroup
	)
	for range 2 * runtime.NumCPU() {
		wg.Go(func() {
			for !done.Load() {
			}
		})
	}
	return func() {
		done.Store(true)
		wg.Wait()
	}
}
