//go:build unix

package serve

import (
	"os"
	"os/signal"
	"syscall"
)

// watched are the signals that the process obeys. SIGHUP is among them so that
// it does not end the gateway.
var watched = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1}

func meaning(s os.Signal) request {
	switch s {
	case syscall.SIGTERM:
		return toDrain
	case syscall.SIGHUP:
		return toReload
	case syscall.SIGUSR1:
		return toReport
	}
	return toStop
}

// ignoreBrokenPipe makes a write to a closed standard output or standard error
// fail, where it would end the process.
func ignoreBrokenPipe() { signal.Ignore(syscall.SIGPIPE) }
