package load

import (
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// A Flood sends and does not look for answers. It is for one goroutine.
type Flood struct {
	sender *sender
	rate   float64
}

// Flooded is what a flood has sent, and the CPU time that this took: the
// system calls and, on the loopback, the kernel's receive work.
type Flooded struct {
	Sent         uint64
	CPU, Elapsed time.Duration
}

// NewFlood sends at a rate a second, or with rate 0 as fast as it can. Ports of
// the sources are not used: there is one.
func NewFlood(target netip.AddrPort, s Sources, rate float64) (*Flood, error) {
	if err := s.complete(); err != nil {
		return nil, err
	}
	if !(rate >= 0) {
		return nil, fmt.Errorf("load: rate %v is negative", rate)
	}
	r, err := newSender(target, s, Payload)
	if err != nil {
		return nil, err
	}
	_ = unix.SetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 0) // answers to it are dropped
	return &Flood{sender: r, rate: rate}, nil
}

// Close closes the socket.
func (f *Flood) Close() error { return f.sender.close() }

// Run floods for so long, or until stop is closed.
func (f *Flood) Run(d time.Duration, stop <-chan struct{}) (Flooded, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	// A burst is what comes in half a millisecond, so that a fast flood does not
	// pay a system call for each datagram.
	burst := batch
	if f.rate > 0 {
		burst = min(max(int(f.rate/2000), 1), batch)
	}
	p := pace{rate: f.rate}
	before, start := threadCPU(), time.Now()
	for {
		since := time.Since(start)
		select {
		case <-stop:
			d = 0
		default:
		}
		if since >= d {
			return Flooded{Sent: p.sent, CPU: threadCPU() - before, Elapsed: since}, nil
		}
		n := burst
		if f.rate > 0 {
			if n = p.due(since, batch); n < burst {
				pause := time.Duration(float64(burst-n) / f.rate * float64(time.Second))
				if err := wait(nil, min(pause, d-since)); err != nil {
					return Flooded{}, fmt.Errorf("load: poll: %w", err)
				}
				continue
			}
		}
		sent, err := f.sender.send(n, func() uint64 { return p.sent })
		if err != nil {
			return Flooded{}, fmt.Errorf("load: send: %w", err)
		}
		p.sent += uint64(sent)
	}
}

// threadCPU is the time that this thread has been running.
func threadCPU() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
