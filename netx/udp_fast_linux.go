package netx

import (
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
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
	// epollRetry keeps an error that nothing known leads to from spinning.
	epollRetry = 5 * time.Millisecond
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

// A fastPath moves many datagrams with each system call. A goroutine waits on
// the sockets of all sessions, and on the listening socket where that is on a
// wildcard. A listener on an address is read in the loop of a gnet engine; but
// gnet does not say which address a datagram was sent to.
//
// The sockets to the upstream are not enrolled in gnet: its default build
// closes an enrolled one at a zero-length datagram and at an ICMP error, both
// of which are nothing unusual to a session.
type fastPath struct {
	gnet.BuiltinEventEngine
	loop    *udpLoop
	super   *supervisor // nil on a wildcard
	epoll   int
	wake    int // eventfd
	quit    atomic.Bool
	started bool
	done    sync.WaitGroup
	events  [replyEvents]unix.EpollEvent // of the goroutine alone

	// Guarded by the loop's mu.
	listen   int        // the listening socket, or a duplicate of it; -1 if none
	sessions []*session // by the descriptor of their socket
	zones    zoneNames
	in       *inbox
	out      outbox
	batch    [batchSize]datagram
}

func newFastPath(l *udpLoop) (*fastPath, error) {
	p := &fastPath{loop: l, listen: -1, zones: zoneNames{}, in: newInbox()}
	if !l.cfg.Listen.Addr().IsUnspecified() {
		p.super = newSupervisor("udp://"+l.cfg.Listen.String(), p, l.log,
			gnet.WithNumEventLoop(1),
			gnet.WithReadBufferCap(readBuffer),
			gnet.WithSocketRecvBuffer(socketBuffer),
			gnet.WithSocketSendBuffer(socketBuffer))
	}
	var err error
	if p.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if p.wake, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		_ = unix.Close(p.epoll)
		return nil, os.NewSyscallError("eventfd", err)
	}
	if err = p.await(p.wake); err != nil {
		_ = unix.Close(p.epoll)
		_ = unix.Close(p.wake)
		return nil, err
	}
	return p, nil
}

func (p *fastPath) start() error {
	p.started = true
	p.done.Go(p.run)
	if p.super != nil {
		return p.super.start()
	}
	fd, err := listenWildcard(p.loop.cfg.Listen)
	if err != nil {
		return err
	}
	p.serveOn(fd)
	if !p.loop.awaitOthers() {
		return nil // the one that failed says why
	}
	return p.await(fd)
}

func (p *fastPath) stop() {
	if p.super != nil {
		p.super.stop()
	}
	if p.started {
		p.quit.Store(true)
		_, _ = unix.Write(p.wake, []byte{1, 0, 0, 0, 0, 0, 0, 1})
		p.done.Wait()
	}
}

func (p *fastPath) close() {
	if p.listen >= 0 {
		_ = unix.Close(p.listen)
	}
	_ = unix.Close(p.epoll)
	_ = unix.Close(p.wake)
}

func (p *fastPath) restarts() int64 {
	if p.super == nil {
		return 0
	}
	return p.super.restarts()
}

// OnBoot runs when gnet's socket is bound and before it is read, also after a
// restart. Replies leave through a duplicate, which outlives the engine.
func (p *fastPath) OnBoot(eng gnet.Engine) gnet.Action {
	fd, err := eng.Dup()
	if err != nil {
		p.loop.log.Error("no socket for replies", "listener", p.loop.cfg.Name, "error", err)
		return gnet.Shutdown
	}
	p.serveOn(fd)
	if !p.loop.awaitOthers() {
		return gnet.Shutdown
	}
	return gnet.None
}

// serveOn takes a bound listening socket over. The one before is closed: as
// long as it is open, the kernel may give it datagrams that nobody reads.
func (p *fastPath) serveOn(fd int) {
	// More than the kernel's ordinary limit, where we may; else it stays.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, socketBuffer)
	p.loop.useFilter(fd)
	p.loop.mu.Lock()
	defer p.loop.mu.Unlock()
	if p.listen >= 0 {
		_ = unix.Close(p.listen)
	}
	p.listen = fd
}

// OnTraffic gets one datagram, and takes those that wait behind it.
func (p *fastPath) OnTraffic(c gnet.Conn) gnet.Action {
	payload, _ := c.Next(-1) // all of it: what is left would be glued to the next
	src, ok := c.RemoteAddr().(*net.UDPAddr)
	if !ok {
		return gnet.None
	}
	p.loop.mu.Lock()
	defer p.loop.mu.Unlock()
	p.batch[0] = datagram{src: unmapped(src.AddrPort()), payload: payload, size: len(payload)}
	p.drain(c.Fd(), 1)
	return gnet.None
}

// drain relays what waits at a listening socket, behind the n datagrams that
// are in the batch already.
func (p *fastPath) drain(fd, n int) {
	for range rounds {
		got, err := p.in.receive(fd, n, batchSize)
		if err != nil && err != unix.EAGAIN {
			p.loop.upstreamError(os.NewSyscallError("recvmmsg", err))
		}
		for i := n; i < n+got; i++ {
			p.batch[i] = p.received(i)
		}
		p.loop.relay(p.batch[:n+got])
		if n+got < batchSize {
			return
		}
		n = 0
	}
}

func (p *fastPath) received(i int) datagram {
	d := datagram{src: p.zones.addrPort(&p.in.names[i])}
	if p.super == nil {
		d.local = p.in.infos[i].local(int(p.in.hdrs[i].Controllen), p.zones)
	}
	d.payload, d.size = p.in.payload(i)
	return d
}

func (p *fastPath) run() {
	for {
		n, err := unix.EpollWait(p.epoll, p.events[:], -1)
		switch {
		case p.quit.Load():
			return
		case err == nil:
			p.turn(p.events[:n])
		case err != unix.EINTR:
			p.loop.mu.Lock()
			p.loop.upstreamError(os.NewSyscallError("epoll_wait", err))
			p.loop.mu.Unlock()
			time.Sleep(epollRetry)
		}
	}
}

// turn relays replies, all of them with one system call where that is possible,
// and then what clients have sent.
func (p *fastPath) turn(events []unix.EpollEvent) {
	p.loop.mu.Lock()
	defer p.loop.mu.Unlock()
	now := p.loop.now()
	clients := false
	for _, ev := range events {
		if int(ev.Fd) == p.listen {
			clients = true
		} else if s := p.sessionOn(int(ev.Fd)); s != nil {
			p.take(s, now)
		}
	}
	p.flush()
	if clients {
		p.drain(p.listen, 0)
	}
}

// take puts what a session's upstream has sent into the outbox, in which it is
// at the place that it has in the inbox.
func (p *fastPath) take(s *session, now int64) {
	c := s.conn.(*fastConn)
	from := p.out.n
	n, err := p.in.receive(c.fd, from, min(from+replyTurn, batchSize))
	switch {
	case err == unix.EAGAIN:
	case err != nil: // mostly ECONNREFUSED; reading it has cleared it
		p.loop.upstreamError(err)
	}
	if n > 0 {
		s.seen = now
	}
	for i := from; i < from+n; i++ {
		payload, _ := p.in.payload(i)
		p.out.add(payload, &c.client)
	}
	if p.out.n == batchSize {
		p.flush()
	}
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
	c.client.set(s.flow)
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
