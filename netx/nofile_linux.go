package netx

import (
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// descriptors raises the soft limit to the hard one and says what the limit is
// then and how much of it is in use.
func descriptors() (limit, used int, ok bool) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 0, 0, false
	}
	if r.Cur < r.Max {
		raised := unix.Rlimit{Cur: r.Max, Max: r.Max}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &raised); err == nil {
			r = raised
		}
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0, 0, false
	}
	return int(min(r.Cur, math.MaxInt32)), len(entries), true
}
