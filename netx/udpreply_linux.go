package netx

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	replyEvents = 128
	// wakeSlot in an epoll event stands for the eventfd, not for a session.
	wakeSlot = -1
	// Idle sessions are looked for four times in the idle time.
	sweepMost  = time.Second
	sweepLeast = 5 * time.Millisecond
)

// replies carries the datagrams of a loop's sessions back to their clients: a
// goroutine that waits on all their sockets, and sweeps the session table in
// between. Only it reads the sockets and ends sessions.
type replies struct {
	loop  *udpLoop
	epoll int
	wake  int // eventfd

	next    atomic.Int64 // a socket to send through from now on, -1 if none
	quit    atomic.Bool
	started bool
	done    sync.WaitGroup

	// Of the goroutine alone.
	socket int
	events [replyEvents]unix.EpollEvent
	buf    [readBuffer]byte
}

func newReplies(l *udpLoop) (*replies, error) {
	r := &replies{loop: l, socket: -1}
	r.next.Store(-1)
	var err error
	if r.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if r.wake, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		_ = unix.Close(r.epoll)
		return nil, os.NewSyscallError("eventfd", err)
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: wakeSlot}
	if err = unix.EpollCtl(r.epoll, unix.EPOLL_CTL_ADD, r.wake, &ev); err != nil {
		_ = unix.Close(r.epoll)
		_ = unix.Close(r.wake)
		return nil, os.NewSyscallError("epoll_ctl", err)
	}
	return r, nil
}

func (r *replies) start() {
	r.started = true
	r.done.Go(r.run)
}

// stop ends the goroutine; close frees what is left once the table is closed.
func (r *replies) stop() {
	if r.started {
		r.quit.Store(true)
		r.rouse()
		r.done.Wait()
	}
}

func (r *replies) close() {
	r.takeSocket()
	if r.socket >= 0 {
		_ = unix.Close(r.socket)
	}
	_ = unix.Close(r.epoll)
	_ = unix.Close(r.wake)
}

// useSocket hands a listening socket over that replies leave through. The one
// before is closed soon: as long as it is open, the kernel may give it
// datagrams that nobody reads.
func (r *replies) useSocket(fd int) {
	if unused := r.next.Swap(int64(fd)); unused >= 0 {
		_ = unix.Close(int(unused))
	}
	r.rouse()
}

// takeSocket takes what useSocket left. It is of the goroutine alone.
func (r *replies) takeSocket() {
	fd := r.next.Swap(-1)
	if fd < 0 {
		return
	}
	if r.socket >= 0 {
		_ = unix.Close(r.socket)
	}
	r.socket = int(fd)
}

// rouse makes the goroutine look around. It fails only where the eventfd is
// full, which does as well.
func (r *replies) rouse() {
	_, _ = unix.Write(r.wake, []byte{1, 0, 0, 0, 0, 0, 0, 1})
}

func (r *replies) watch(s *session) error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: s.slot}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(r.epoll, unix.EPOLL_CTL_ADD, s.fd, &ev))
}

func (r *replies) unwatch(s *session) {
	_ = unix.EpollCtl(r.epoll, unix.EPOLL_CTL_DEL, s.fd, nil)
}

func (r *replies) run() {
	every := int64(min(max(r.loop.cfg.UDP.SessionIdle/4, sweepLeast), sweepMost))
	sweepAt := r.loop.now() + every
	for !r.quit.Load() {
		n := r.wait(sweepAt - r.loop.now())
		now := r.loop.now()
		for _, ev := range r.events[:n] {
			if ev.Fd == wakeSlot {
				var count [8]byte
				_, _ = unix.Read(r.wake, count[:])
				r.takeSocket()
			} else if s := r.loop.table.at(ev.Fd); s != nil {
				r.relay(s, now)
			}
		}
		if now >= sweepAt {
			r.loop.table.sweep(now)
			sweepAt = now + every
		}
	}
}

// wait gives the number of events, after at most ns.
func (r *replies) wait(ns int64) int {
	ms := max(0, (ns+int64(time.Millisecond)-1)/int64(time.Millisecond))
	n, err := unix.EpollWait(r.epoll, r.events[:], int(ms))
	if err == nil {
		return n
	}
	if !errors.Is(err, unix.EINTR) {
		r.loop.upstreamError(os.NewSyscallError("epoll_wait", err))
		time.Sleep(sweepLeast) // nothing known leads here; if it does, it must not spin
	}
	return 0
}

// relay passes one datagram on. One for each event lets every session have its
// turn; what waits behind it is an event again. The batch has its place here.
func (r *replies) relay(s *session, now int64) {
	n, err := unix.Read(s.fd, r.buf[:])
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return
	case err != nil: // mostly ECONNREFUSED; reading it has cleared it
		r.loop.upstreamError(err)
		return
	}
	s.seen.Store(now)
	if err := unix.Sendto(r.socket, r.buf[:n], unix.MSG_DONTWAIT, s.reply); err != nil {
		r.loop.upstreamError(err)
	}
}
