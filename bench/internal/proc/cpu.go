// Package proc starts the programs under test on a core of their own, reads
// what CPU time they have used, and looks who is bound to a port. It is for
// Linux.
package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// CPU is the time that the threads of a process have been running so far, from
// /proc/PID/task/*/schedstat. What a thread had used that has ended is missing.
func CPU(pid int) (time.Duration, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		return 0, fmt.Errorf("proc: no threads of process %d: %w", pid, errors.Join(err, fs.ErrNotExist))
	}
	var total time.Duration
	for _, file := range files {
		data, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // has ended meanwhile
		}
		d, err := parseSchedstat(string(data))
		if err != nil {
			return 0, fmt.Errorf("proc: %s: %w", file, err)
		}
		total += d
	}
	return total, nil
}

// parseSchedstat returns the first of the three numbers, the nanoseconds spent
// on a CPU; the others are those spent waiting for one, and the time slices.
func parseSchedstat(line string) (time.Duration, error) {
	fields := strings.Fields(line)
	if len(fields) != 3 {
		return 0, fmt.Errorf("%d fields instead of 3 in %q", len(fields), line)
	}
	ns, err := strconv.ParseInt(fields[0], 10, 64)
	return time.Duration(ns), err
}
