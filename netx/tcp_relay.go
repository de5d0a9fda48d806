package netx

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// settleMost is how long a connection whose other side broke may take to
	// deliver what it was given, before it is reset.
	settleMost = time.Second
	settlePoll = 10 * time.Millisecond
)

// A relay is one admitted connection and its upstream: a stream each way and a
// timer that watches over both. A stream ends with the end of its source and
// passes that on, so that each direction closes by itself; an error on one
// side becomes a reset of the other, for a stream that broke off must not look
// complete.
type relay struct {
	s        *tcpServer
	from     netip.AddrPort
	client   *net.TCPConn
	upstream *net.TCPConn
	began    time.Time

	heard  atomic.Bool  // the client has sent something, if only its end
	moved  atomic.Int64 // when a byte last moved, since began
	paused atomic.Bool  // waiting for tokens
	broken atomic.Bool  // a write failed: whatever follows, the end is a reset

	timer *time.Timer
	acked uint64 // what the peers had acknowledged at the last look; of watch

	closing sync.Once
	done    chan struct{} // closed by closeBoth
}

func newRelay(s *tcpServer, client *net.TCPConn, from netip.AddrPort) *relay {
	return &relay{s: s, from: from, client: client, began: time.Now(), done: make(chan struct{})}
}

// run relays until both directions have ended.
func (r *relay) run(upstream *net.TCPConn) {
	r.upstream = upstream
	up, err := newStream(r, r.client, r.upstream)
	down, err2 := newStream(r, r.upstream, r.client)
	if err = errors.Join(err, err2); err != nil {
		r.kill()
		return
	}
	up.fromClient = true
	defer context.AfterFunc(r.s.ctx, r.kill)()
	r.touch()
	r.startWatch()

	var wg sync.WaitGroup
	wg.Go(up.run)
	down.run()
	wg.Wait()
	r.timer.Stop()
	r.end()
}

// end closes both sides after both streams have ended.
func (r *relay) end() {
	if r.broken.Load() {
		r.settle(r.client)
		r.settle(r.upstream)
		r.kill()
		return
	}
	r.closeBoth()
}

// kill resets both sides at once; the streams notice.
func (r *relay) kill() {
	_ = r.client.SetLinger(0)
	_ = r.upstream.SetLinger(0)
	r.closeBoth()
}

func (r *relay) closeBoth() {
	r.closing.Do(func() {
		close(r.done)
		r.client.Close()
		r.upstream.Close()
	})
}

// settle waits a little until the peer of c has what was written to c, which
// a reset would throw away.
func (r *relay) settle(c *net.TCPConn) {
	for range settleMost / settlePoll {
		if pending, _ := sendState(c); !pending || !r.sleep(settlePoll) {
			return
		}
	}
}

// sleep says whether the relay is still alive afterwards.
func (r *relay) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-r.done:
		return false
	case <-t.C:
		return true
	}
}

func (r *relay) age() time.Duration { return time.Since(r.began) }
func (r *relay) touch()             { r.moved.Store(int64(r.age())) }

// startWatch arms the timer, which is stopped already where nothing has a
// limit of time.
func (r *relay) startWatch() {
	first := r.s.cfg.TCP.FirstByteTimeout
	idle := r.s.cfg.TCP.IdleTimeout
	r.timer = time.AfterFunc(time.Hour, r.watch)
	switch {
	case first > 0:
		r.timer.Reset(first - r.age())
	case idle > 0:
		r.timer.Reset(idle)
	default:
		r.timer.Stop()
	}
}

// watch ends the relay when one of its timeouts has passed, or sets the timer
// to when one might. Only one runs at a time: it sets the timer last.
func (r *relay) watch() {
	first := r.s.cfg.TCP.FirstByteTimeout
	idle := r.s.cfg.TCP.IdleTimeout
	if first > 0 && !r.heard.Load() {
		if left := first - r.age(); left > 0 {
			r.timer.Reset(left)
			return
		}
		if !hasUnread(r.client) { // else its stream is about to hear of it
			r.kill()
			return
		}
	}
	if idle == 0 {
		return
	}
	left := idle - (r.age() - time.Duration(r.moved.Load()))
	if left <= 0 {
		if !r.stillMoving() {
			r.kill()
			return
		}
		r.touch()
		left = idle
	}
	r.timer.Reset(left)
}

// stillMoving says whether a relay that looks idle is not: it waits for
// tokens, or what it has written is on its way to a slow reader.
func (r *relay) stillMoving() bool {
	if r.paused.Load() {
		return true
	}
	pendingC, ackedC := sendState(r.client)
	pendingU, ackedU := sendState(r.upstream)
	before := r.acked
	r.acked = ackedC + ackedU
	return (pendingC || pendingU) && r.acked != before
}
