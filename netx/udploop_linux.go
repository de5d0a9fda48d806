package netx

import (
	"errors"
	"net"
	"net/netip"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
)

const (
	// readBuffer takes the longest datagram there is: gnet cuts what is longer
	// than its buffer without a sign.
	readBuffer = 64 << 10
	// socketBuffer absorbs bursts; the kernel lowers it to what it allows.
	socketBuffer = 4 << 20
)

// A udpLoop is one gnet engine with one event loop and one socket, and the
// sessions of the clients that the kernel sends there. gnet's loop carries
// datagrams from clients to the upstream, replies carries them back.
//
// The sockets to the upstream are not enrolled in gnet: its default build
// closes an enrolled one at a zero-length datagram and at an ICMP error, both
// of which are nothing unusual to a session.
type udpLoop struct {
	gnet.BuiltinEventEngine
	*udpServer
	super   *supervisor
	table   sessionTable
	replies *replies
	count   counters

	// Of the loop alone, reused for each datagram.
	requests  [1]engine.Request
	decisions [1]policy.Decision
}

func newUDPLoop(s *udpServer) (*udpLoop, error) {
	l := &udpLoop{udpServer: s}
	l.super = newSupervisor("udp://"+s.cfg.Listen.String(), l, s.log,
		gnet.WithNumEventLoop(1),
		gnet.WithReadBufferCap(readBuffer),
		gnet.WithSocketRecvBuffer(socketBuffer),
		gnet.WithSocketSendBuffer(socketBuffer))
	var err error
	if l.replies, err = newReplies(l); err != nil {
		return nil, err
	}
	l.table.init(l)
	return l, nil
}

func (l *udpLoop) start() error {
	l.replies.start()
	return l.super.start()
}

// stop ends both directions and closes every socket.
func (l *udpLoop) stop() {
	l.super.stop()
	l.replies.stop()
	l.table.close()
	l.replies.close()
}

// OnBoot runs when the socket is bound and before it is read, also after a
// restart. Replies leave through a duplicate, so that they need not run on
// gnet's loop.
func (l *udpLoop) OnBoot(eng gnet.Engine) gnet.Action {
	fd, err := eng.Dup()
	if err != nil {
		l.log.Error("no socket for replies", "listener", l.cfg.Name, "error", err)
		return gnet.Shutdown
	}
	// More than the kernel's ordinary limit, where we may; else it stays.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, socketBuffer)
	l.replies.useSocket(fd)
	if !l.awaitOthers() {
		return gnet.Shutdown
	}
	return gnet.None
}

// OnTraffic gets one datagram. A drain of those that wait behind it on the
// same socket has its place here: datagram is then called for a batch.
func (l *udpLoop) OnTraffic(c gnet.Conn) gnet.Action {
	payload, _ := c.Next(-1) // all of it: what is left would be glued to the next
	if src, ok := c.RemoteAddr().(*net.UDPAddr); ok {
		l.datagram(unmapped(src.AddrPort()), payload)
	}
	return gnet.None
}

// datagram counts what came from src, decides, and forwards or drops it.
func (l *udpLoop) datagram(src netip.AddrPort, p []byte) {
	l.count.packets.Add(1)
	l.count.bytes.Add(int64(len(p)))
	switch {
	case bogon(src):
		l.count.drop(dropBogon)
		return
	case l.self[UDP].has(src):
		l.count.drop(dropSelf)
		return
	}
	l.requests[0] = engine.Request{Endpoint: src, Policy: l.cfg.Policy, Bytes: len(p)}
	l.engine.EvaluateBatch(l.requests[:], l.decisions[:])
	if d := l.decisions[0]; !d.Allowed {
		l.count.drop(denied(d))
		return
	}
	if len(p) > l.cfg.UDP.MaxDatagram {
		l.count.drop(dropOversize)
		return
	}
	l.forward(src, p)
}

// bogon is a source that no answer can be sent to.
func bogon(src netip.AddrPort) bool {
	a := src.Addr()
	return src.Port() == 0 || a.IsUnspecified() || a.IsMulticast() || a == broadcast
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// forward sends p through the session of src. The table is locked until it is
// sent, so that the session's socket cannot be closed meanwhile.
func (l *udpLoop) forward(src netip.AddrPort, p []byte) {
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	now := l.now()
	s := l.table.byClient[src]
	if s == nil {
		var reason dropReason
		if s, reason = l.newSession(src, now); s == nil {
			l.count.drop(reason)
			return
		}
	}
	s.seen.Store(now)
	err := l.send(s.fd, p)
	if errors.Is(err, unix.ECONNREFUSED) {
		// The kernel kept this from an earlier datagram, which an ICMP
		// message answered; this one has not been sent yet.
		l.upstreamError(err)
		err = l.send(s.fd, p)
	}
	if err != nil {
		l.upstreamError(err)
		l.count.drop(dropUpstreamError)
		return
	}
	l.count.forwarded.Add(1)
}

// newSession makes one where there may be one more, or says why not.
func (l *udpLoop) newSession(src netip.AddrPort, now int64) (*session, dropReason) {
	if l.draining.Load() {
		return nil, dropDraining
	}
	if l.sessions.Add(1) > int64(l.cfg.UDP.MaxSessions) {
		l.sessions.Add(-1)
		l.count.sessionsRejected.Add(1)
		if n, ok := l.fullGate.pass(); ok {
			l.log.Warn("session table full", "listener", l.cfg.Name,
				"max_sessions", l.cfg.UDP.MaxSessions, "suppressed", n)
		}
		return nil, dropSessionsFull
	}
	s, err := l.table.open(src, now)
	if err != nil {
		l.sessions.Add(-1)
		l.upstreamError(err)
		return nil, dropUpstreamError
	}
	l.count.sessionsActive.Add(1)
	return s, 0
}

// upstreamError counts what went wrong on the way to or from the upstream, or
// back to a client.
func (l *udpLoop) upstreamError(err error) {
	l.count.upstreamErrors.Add(1)
	if n, ok := l.errorGate.pass(); ok {
		l.log.Warn("udp relay", "listener", l.cfg.Name, "upstream", l.cfg.Upstream,
			"error", err, "suppressed", n)
	}
}
