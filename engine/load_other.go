//go:build !linux

package engine

import (
	"errors"
	"runtime"
)

func newCPUReader() cpuReader {
	return func() (cpuTimes, error) {
		return cpuTimes{}, errors.New("not supported on " + runtime.GOOS)
	}
}
