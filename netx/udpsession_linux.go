package netx

import (
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// quarantine is how long the socket of an ended session stays open, unread.
	// Its port cannot be given to another session meanwhile, so that a late
	// reply does not reach the wrong client.
	quarantine = 3 * time.Second
	// sweepStep is how many sessions are looked at under one hold of the lock.
	sweepStep = 64
)

// A session carries the datagrams of one client to the upstream through a
// socket, and so a port, of its own.
type session struct {
	client netip.AddrPort
	reply  unix.Sockaddr // client again; of the goroutine that reads replies
	fd     int
	slot   int32
	seen   atomic.Int64 // when something last passed, either way
}

// ended is a socket in quarantine.
type ended struct {
	fd int
	at int64
}

// A sessionTable holds the sessions of one loop. The loop opens and uses them,
// the goroutine that reads replies ends them.
type sessionTable struct {
	loop     *udpLoop
	upstream unix.Sockaddr // a system call writes to it: each table needs its own

	mu       sync.Mutex // guards what follows, and that no socket in it is closed
	byClient map[netip.AddrPort]*session
	free     []int32 // slots without a session
	ended    []ended // oldest first

	// slots is replaced by a longer one under mu and read without it: by slot
	// number a reply finds its session.
	slots atomic.Pointer[[]atomic.Pointer[session]]
}

func (t *sessionTable) init(l *udpLoop) {
	t.loop = l
	t.upstream = sockaddr(l.upstream)
	t.byClient = make(map[netip.AddrPort]*session)
	t.slots.Store(new([]atomic.Pointer[session]))
}

// open makes a session and watches its socket. It wants mu.
func (t *sessionTable) open(client netip.AddrPort, now int64) (*session, error) {
	fd, err := t.dial()
	if err != nil {
		return nil, err
	}
	s := &session{client: client, reply: sockaddr(client), fd: fd, slot: t.takeSlot()}
	s.seen.Store(now)
	(*t.slots.Load())[s.slot].Store(s)
	if err := t.loop.replies.watch(s); err != nil {
		_ = unix.Close(fd)
		t.freeSlot(s.slot)
		return nil, err
	}
	t.byClient[client] = s
	return s, nil
}

// dial makes the socket of a session. It wants mu.
func (t *sessionTable) dial() (fd int, err error) { return notToItself(t.connect) }

// notToItself connects once more where a socket has got the port of the upstream
// for its own, as can happen while no server on this machine holds that: it
// would answer itself, and the server could not come back.
func notToItself(connect func() (fd int, err error)) (fd int, err error) {
	fd, err = connect()
	if err != nil || !toItself(fd) {
		return fd, err
	}
	defer unix.Close(fd) // only now, so that the next one has another port
	return connect()
}

func toItself(fd int) bool {
	own, err := unix.Getsockname(fd)
	peer, err2 := unix.Getpeername(fd)
	return err == nil && err2 == nil && addrPortOf(own) == addrPortOf(peer)
}

func (t *sessionTable) connect() (fd int, err error) {
	family := unix.AF_INET6
	if t.loop.upstream.Addr().Is4() {
		family = unix.AF_INET
	}
	fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err := unix.Connect(fd, t.upstream); err != nil {
		_ = unix.Close(fd)
		return -1, os.NewSyscallError("connect", err)
	}
	return fd, nil
}

// takeSlot gives a slot that no session has. It wants mu.
func (t *sessionTable) takeSlot() int32 {
	if len(t.free) == 0 {
		old := *t.slots.Load()
		longer := make([]atomic.Pointer[session], max(64, 2*len(old)))
		for i := range old {
			longer[i].Store(old[i].Load())
		}
		for i := len(longer) - 1; i >= len(old); i-- {
			t.free = append(t.free, int32(i))
		}
		t.slots.Store(&longer)
	}
	slot := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	return slot
}

// freeSlot wants mu.
func (t *sessionTable) freeSlot(slot int32) {
	(*t.slots.Load())[slot].Store(nil)
	t.free = append(t.free, slot)
}

// at is the session in a slot, nil if it has ended.
func (t *sessionTable) at(slot int32) *session {
	slots := *t.slots.Load()
	if int(slot) >= len(slots) {
		return nil
	}
	return slots[slot].Load()
}

// sweep ends the sessions that have been idle since before deadline, and the
// quarantine of the sockets that have been in it long enough.
func (t *sessionTable) sweep(now int64) {
	deadline := now - int64(t.loop.cfg.UDP.SessionIdle)
	for from := 0; from < len(*t.slots.Load()); from += sweepStep {
		t.sweepFrom(from, deadline, now)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.ended) > 0 && t.ended[0].at <= now-int64(quarantine) {
		t.closeOldest()
	}
}

func (t *sessionTable) sweepFrom(from int, deadline, now int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	slots := *t.slots.Load()
	for i := from; i < min(from+sweepStep, len(slots)); i++ {
		if s := slots[i].Load(); s != nil && s.seen.Load() <= deadline {
			t.end(s, now)
		}
	}
}

// end takes a session out and puts its socket into quarantine. It wants mu.
func (t *sessionTable) end(s *session, now int64) {
	t.loop.replies.unwatch(s)
	delete(t.byClient, s.client)
	t.freeSlot(s.slot)
	if len(t.ended) >= t.quarantineCap() {
		t.closeOldest()
	}
	t.ended = append(t.ended, ended{s.fd, now})
	t.loop.count.sessionsActive.Add(-1)
	t.loop.sessions.Add(-1)
}

// quarantineCap is the loop's part of what all loops together may hold.
func (t *sessionTable) quarantineCap() int {
	return max(1, t.loop.cfg.UDP.MaxSessions/quarantineShare/len(t.loop.loops))
}

// closeOldest wants mu.
func (t *sessionTable) closeOldest() {
	_ = unix.Close(t.ended[0].fd)
	t.ended = t.ended[1:]
}

// close ends everything; nobody else uses the table any more.
func (t *sessionTable) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.byClient {
		t.end(s, 0)
	}
	for len(t.ended) > 0 {
		t.closeOldest()
	}
}
