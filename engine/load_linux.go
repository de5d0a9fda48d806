package engine

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// newCPUReader returns the reader of the cgroup where it has a CPU quota, else
// that of the machine.
func newCPUReader() cpuReader {
	return readerOf("/sys/fs/cgroup", ownCgroup(), runtime.NumCPU())
}

// readerOf looks for a quota below the number of CPUs: a larger one limits
// nothing, the machine does.
func readerOf(root, cgroup string, cpus int) cpuReader {
	if dir, cores := cpuQuota(root, cgroup); cores > 0 && cores < float64(cpus) {
		return cgroupReader(path.Join(dir, "cpu.stat"), cores)
	}
	return machineTimes
}

// ownCgroup is the path of the process in the hierarchy of cgroup v2.
func ownCgroup() string {
	b, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(b)) {
		if p, ok := strings.CutPrefix(line, "0::"); ok {
			return path.Clean("/" + strings.TrimSpace(p))
		}
	}
	return "/"
}

// cpuQuota returns the tightest quota from a cgroup up to the root of the
// hierarchy, in cores, and whose it is; 0 where there is none.
func cpuQuota(root, cgroup string) (dir string, cores float64) {
	for p := cgroup; ; p = path.Dir(p) {
		b, _ := os.ReadFile(path.Join(root, p, "cpu.max"))
		var quota, period float64
		if n, _ := fmt.Sscan(string(b), &quota, &period); n == 2 && period > 0 {
			if c := quota / period; cores == 0 || c < cores {
				dir, cores = path.Join(root, p), c
			}
		}
		if p == "/" {
			return dir, cores
		}
	}
}

func cgroupReader(file string, cores float64) cpuReader {
	start := time.Now()
	return func() (cpuTimes, error) {
		b, err := os.ReadFile(file)
		if err != nil {
			return cpuTimes{}, err
		}
		for line := range strings.Lines(string(b)) {
			if v, ok := strings.CutPrefix(line, "usage_usec "); ok {
				usec, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
				return cpuTimes{busy: usec / 1e6, total: time.Since(start).Seconds() * cores}, err
			}
		}
		return cpuTimes{}, fmt.Errorf("%s: no usage_usec", file)
	}
}

// machineTimes adds up the cpu line of /proc/stat: user nice system idle iowait
// irq softirq steal (proc(5)). Guest time is part of user and nice.
func machineTimes() (cpuTimes, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return cpuTimes{}, err
	}
	line, _, _ := bytes.Cut(b, []byte("\n"))
	fields := strings.Fields(string(line))
	if len(fields) < 9 || fields[0] != "cpu" {
		return cpuTimes{}, errors.New("/proc/stat: no cpu line")
	}
	var t cpuTimes
	for i, field := range fields[1:9] {
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return cpuTimes{}, fmt.Errorf("/proc/stat: %w", err)
		}
		t.total += ticks
		if i != 3 && i != 4 {
			t.busy += ticks
		}
	}
	return t, nil
}
