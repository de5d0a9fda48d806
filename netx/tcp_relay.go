package netx

import (
	"errors"
	"net"
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

// A relay is one admitted connection and its upstream: a stream each way and the
// listener's watch over both. A stream ends with the end of its source and
// passes that on, so that each direction closes by itself; an error on one
// side becomes a reset of the other, for a stream that broke off must not look
// complete.
type relay struct {
	s *tcpServer
	caller
	upstream *net.TCPConn
	began    time.Time

	heard  atomic.Bool  // the client has sent something, if only its end
	moved  atomic.Int64 // when a byte last moved, since began
	paused atomic.Bool  // waiting for tokens
	broken atomic.Bool  // a write failed: whatever follows, the end is a reset

	// Of the watch.
	lookAt    time.Time
	lasts     bool          // it has been looked at
	acked     uint64        // what the peers had acknowledged at the last look
	goneSince time.Duration // age at which the client was found gone; 0 = it is there

	closing sync.Once
	done    chan struct{} // closed by closeBoth
	counted sync.Once     // as forwarded or dropped
}

func newRelay(s *tcpServer, c caller) *relay {
	return &relay{s: s, caller: c, began: time.Now(), done: make(chan struct{})}
}

// forwarded counts the connection as that, unless it has been counted already.
func (r *relay) forwarded() { r.counted.Do(func() { r.s.forwarded.Add(1) }) }

// run relays until both directions have ended.
func (r *relay) run(upstream *net.TCPConn) {
	r.upstream = upstream
	up, err := newStream(r, r.client, r.upstream)
	down, err2 := newStream(r, r.upstream, r.client)
	if err = errors.Join(err, err2); err != nil {
		r.kill()
		return
	}
	up.fromClient, up.unproven = true, r.unproven
	up.held, r.early = r.early, nil
	r.touch()
	r.lookIn(r.firstLook())
	if !r.s.watch.add(r) {
		r.kill()
		return
	}
	defer r.s.watch.remove(r)

	var wg sync.WaitGroup
	wg.Go(up.run)
	down.run()
	wg.Wait()
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
