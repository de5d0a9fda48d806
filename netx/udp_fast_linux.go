package netx

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// rounds is how often a listening socket is drained before others have
	// their turn.
	rounds = 4
	// replyTurn is how many replies of a session are taken before the other
	// sessions have their turn.
	replyTurn = 16
	// replyEvents is how many sockets one wake can tell of.
	replyEvents = 128
)

// pathCount is how many loops a listener has.
func (s *udpServer) pathCount() int {
	if s.plain {
		return 1
	}
	return loopCount()
}

func (s *udpServer) newPath(l *udpLoop) (udpPath, error) {
	if s.plain {
		return newPlainPath(l)
	}
	return newFastPath(l)
}

// A fastPath moves many datagrams with each system call, both ways in one
// goroutine. It waits for the sockets of all sessions and the listening one by
// an epoll descriptor, and for that by the poller of package runtime: while a
// goroutine sleeps in a system call of its own, the scheduler has another thread
// look for work, and at a few thousand packets a second that is most of the CPU
// time.
//
// gnet has no part in it. It reads one datagram for each wake, in such a system
// call; it does not say which address that was sent to; and it closes the socket
// of a session at an empty datagram and at an ICMP error.
type fastPath struct {
	loop   *udpLoop
	epoll  int
	ready  *os.File // the epoll descriptor
	raw    syscall.RawConn
	ended  atomic.Bool  // for a goroutine that is never out of work
	drops  *socketDrops // nil until it is bound
	done   sync.WaitGroup
	events [replyEvents]unix.EpollEvent // of the goroutine alone

	// Guarded by the loop's mu.
	listen   int        // the listening socket, -1 if none
	sessions []*session // by the descriptor of their socket
	zones    zoneNames
	in       *inbox
	out      outbox
	batch    [batchSize]datagram
}

func newFastPath(l *udpLoop) (*fastPath, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(epoll, true); err != nil { // which lets the poller have it
		_ = unix.Close(epoll)
		return nil, os.NewSyscallError("fcntl", err)
	}
	ready := os.NewFile(uintptr(epoll), "epoll")
	raw, err := ready.SyscallConn()
	// Without deadlines there would be no end.
	if err := errors.Join(err, ready.SetReadDeadline(time.Time{})); err != nil {
		return nil, errors.Join(err, ready.Close())
	}
	return &fastPath{
		loop:   l,
		epoll:  epoll,
		ready:  ready,
		raw:    raw,
		listen: -1,
		zones:  zoneNames{},
		in:     newInbox(),
	}, nil
}

func (p *fastPath) bind(from udpPath) (err error) {
	old, takesOver := from.(*fastPath)
	if takesOver {
		p.listen, err = unix.FcntlInt(uintptr(old.listen), unix.F_DUPFD_CLOEXEC, 0)
		err = os.NewSyscallError("fcntl", err)
	} else {
		p.listen, err = listenUDP(p.loop.cfg.Listen)
	}
	if err != nil {
		return err
	}
	if takesOver {
		p.drops = old.drops
	} else {
		p.drops = newSocketDrops(p.listen, &p.loop.count.socketDropped)
	}
	return p.await(p.listen)
}

func (p *fastPath) serve() {
	p.loop.useFilter(p.listen)
	p.drops.pass(p.listen, &p.loop.count.socketDropped)
	p.done.Go(p.run)
}

func (p *fastPath) stop() {
	p.ended.Store(true)
	_ = p.ready.SetReadDeadline(time.Unix(1, 0))
	p.done.Wait()
}

func (p *fastPath) close() {
	if p.drops != nil {
		p.drops.leave(p.listen)
	}
	if p.listen >= 0 {
		_ = unix.Close(p.listen)
	}
	_ = p.ready.Close()
}

func (p *fastPath) countDrops() { p.drops.read() }

// drain relays what waits at the listening socket, and says whether there may
// be more.
func (p *fastPath) drain() (more bool) {
	for range rounds {
		n, err := p.in.receive(p.listen, 0, batchSize)
		if err != nil && err != unix.EAGAIN {
			p.loop.upstreamError(os.NewSyscallError("recvmmsg", err))
		}
		for i := range n {
			p.batch[i] = p.received(i)
		}
		p.loop.relay(p.batch[:n])
		if n < batchSize {
			return err != nil && err != unix.EAGAIN
		}
	}
	return true
}

func (p *fastPath) received(i int) datagram {
	d := datagram{src: p.zones.addrPort(&p.in.names[i])}
	if p.loop.cfg.Listen.Addr().IsUnspecified() {
		d.local = p.in.infos[i].local(int(p.in.hdrs[i].Controllen), p.zones)
	}
	d.payload, d.size = p.in.payload(i)
	return d
}

// run relays until stop lets the wait end. It never tells Read that there was
// something to read: the wait then goes on in the same call, and what becomes
// ready meanwhile ends it.
func (p *fastPath) run() {
	_ = p.raw.Read(func(uintptr) bool {
		p.relayReady()
		return false
	})
}

// relayReady relays what there is. Where a turn has taken all of it, no look at
// the sockets comes behind: at a few thousand packets a second most of these
// would find nothing.
func (p *fastPath) relayReady() {
	for {
		n := p.poll()
		if n == 0 || !p.turn(p.events[:n]) && n < replyEvents || p.ended.Load() {
			return
		}
		runtime.Gosched() // this may be the only core
	}
}

// poll says how many sockets are ready, without waiting. With these arguments
// it cannot fail.
func (p *fastPath) poll() int {
	n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.epoll),
		uintptr(unsafe.Pointer(&p.events)), replyEvents, 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// turn relays replies, all of them with one system call where that is possible,
// and then what clients have sent. It says whether there may be more.
func (p *fastPath) turn(events []unix.EpollEvent) (more bool) {
	p.loop.mu.Lock()
	defer p.loop.mu.Unlock()
	now := p.loop.now()
	clients := false
	for _, ev := range events {
		if int(ev.Fd) == p.listen {
			clients = true
		} else if s := p.sessionOn(int(ev.Fd)); s != nil {
			more = p.take(s, now) || more
		}
	}
	p.flush()
	return clients && p.drain() || more
}

// take puts what a session's upstream has sent into the outbox, in which it is
// at the place that it has in the inbox, and says whether there may be more.
func (p *fastPath) take(s *session, now int64) (more bool) {
	c := s.conn.(*fastConn)
	from := p.out.n
	to := min(from+replyTurn, batchSize)
	n, err := p.in.receive(c.fd, from, to)
	switch {
	case err == unix.EAGAIN:
	case err != nil: // mostly ECONNREFUSED; reading it has cleared it
		p.loop.upstreamError(err)
	}
	for i := from; i < from+n; i++ {
		if payload, _ := p.in.payload(i); p.loop.mayReply(s, len(payload), now) {
			p.out.add(nil, payload, &c.peer)
		}
	}
	if p.out.n == batchSize || p.out.n < from+n { // the places are used up, or no longer the same
		p.flush()
	}
	return from+n == to || err != nil && err != unix.EAGAIN
}

func (p *fastPath) flush() {
	if p.out.n > 0 {
		p.loop.count.reply(p.out.flush(p.listen, p.loop.upstreamError))
	}
}

// await makes the goroutine wait for a descriptor too.
func (p *fastPath) await(fd int) error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &ev))
}

func (p *fastPath) sessionOn(fd int) *session {
	if fd >= len(p.sessions) {
		return nil
	}
	return p.sessions[fd]
}

func (p *fastPath) watch(s *session) error {
	c := s.conn.(*fastConn)
	c.peer.set(s.flow)
	for len(p.sessions) <= c.fd {
		p.sessions = append(p.sessions, nil)
	}
	p.sessions[c.fd] = s
	if err := p.await(c.fd); err != nil {
		p.sessions[c.fd] = nil
		return err
	}
	return nil
}

func (p *fastPath) unwatch(s *session) {
	c := s.conn.(*fastConn)
	_ = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, c.fd, nil)
	p.sessions[c.fd] = nil
}
