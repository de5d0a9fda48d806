//go:build !unix

package serve

import (
	"os"
	"syscall"
)

// watched are the signals that the process obeys.
var watched = []os.Signal{os.Interrupt, syscall.SIGTERM}

func meaning(s os.Signal) request {
	if s == syscall.SIGTERM {
		return toDrain
	}
	return toStop
}

func ignoreBrokenPipe() {}
