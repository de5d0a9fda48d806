package load

import (
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// An Echo sends every datagram back, in batches.
type Echo struct {
	Addr   netip.AddrPort
	fd     int
	closed atomic.Bool
	done   sync.WaitGroup
	err    error
	batch  messages
}

// StartEcho serves on a port of 127.0.0.1 until Close.
func StartEcho() (*Echo, error) {
	fd, err := udpSocket(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0))
	if err != nil {
		return nil, err
	}
	local, err := unix.Getsockname(fd)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("load: echo: %w", err)
	}
	at := local.(*unix.SockaddrInet4)
	e := &Echo{Addr: netip.AddrPortFrom(netip.AddrFrom4(at.Addr), uint16(at.Port)), fd: fd}
	e.done.Go(func() { e.err = e.serve() })
	return e, nil
}

// Close ends it, and says what went wrong while it served.
func (e *Echo) Close() error {
	if e.closed.Swap(true) {
		return nil
	}
	e.done.Wait()
	unix.Close(e.fd)
	if e.err != nil {
		return fmt.Errorf("load: echo: %w", e.err)
	}
	return nil
}

func (e *Echo) serve() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fds := []unix.PollFd{{Fd: int32(e.fd), Events: unix.POLLIN}}
	for !e.closed.Load() {
		e.batch.receivable()
		n, err := e.batch.receive(e.fd)
		if err != nil {
			return err
		}
		if n == 0 {
			if err := wait(fds, 50*time.Millisecond); err != nil {
				return err
			}
			continue
		}
		e.batch.answer(n)
		if _, err := e.batch.send(e.fd, n); err != nil {
			return err
		}
	}
	return nil
}
