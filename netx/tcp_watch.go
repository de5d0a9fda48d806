package netx

import (
	"math"
	"net"
	"sync"
	"time"
)

const (
	// lookEvery is how often a relay looks whether its client has gone. The
	// stream that reads from the client hears of a reset at once, but not while
	// it waits for tokens or for an upstream that does not read.
	lookEvery = 5 * time.Second
	// tickShare is how exact the times are that end a relay: to within so much
	// of the shortest.
	tickShare = 8
	// never is the time left where there is no limit.
	never time.Duration = math.MaxInt64
)

// A watch looks after the relays of a listener. One ticker for all of them costs
// a short connection less than a timer of its own.
type watch struct {
	mu     sync.Mutex          // guards what follows
	relays map[*relay]struct{} // nil after close
}

// add returns false after close.
func (w *watch) add(r *relay) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.relays == nil {
		return false
	}
	w.relays[r] = struct{}{}
	return true
}

func (w *watch) remove(r *relay) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.relays, r)
}

// due appends the relays whose time to look has come.
func (w *watch) due(to []*relay) []*relay {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for r := range w.relays {
		if !now.Before(r.lookAt) {
			to = append(to, r)
		}
	}
	return to
}

// close gives the relays that there were.
func (w *watch) close() map[*relay]struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.relays
	w.relays = nil
	return all
}

// watchRelays looks after the relays until the listener is closed, and then
// ends them.
func (s *tcpServer) watchRelays() {
	tick := time.NewTicker(s.lookTick())
	defer tick.Stop()
	var due []*relay
	for {
		select {
		case <-s.ctx.Done():
			for r := range s.watch.close() {
				r.kill()
			}
			return
		case <-tick.C:
		}
		due = s.watch.due(due[:0])
		for _, r := range due {
			r.look()
		}
		clear(due)
	}
}

func (s *tcpServer) lookTick() time.Duration {
	shortest := s.lookEvery
	for _, d := range []time.Duration{s.cfg.TCP.FirstByteTimeout, s.cfg.TCP.IdleTimeout} {
		if d > 0 {
			shortest = min(shortest, d)
		}
	}
	return max(shortest/tickShare, time.Millisecond)
}

func (r *relay) age() time.Duration { return time.Since(r.began) }
func (r *relay) touch()             { r.moved.Store(int64(r.age())) }

// look ends the relay when one of its timeouts has passed or its client has
// gone, or notes when that might be.
func (r *relay) look() {
	if !r.lasts {
		r.lasts = true
		// Whoever has stayed so long may stay for ever, though his peer is dead.
		_ = r.client.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true})
		_ = r.upstream.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true})
	}
	left := min(r.firstByteLeft(), r.idleLeft(), r.clientLeft())
	if left <= 0 {
		r.kill()
		return
	}
	r.lookIn(left)
}

// lookIn is for the relay that is not yet watched, and for the watch.
func (r *relay) lookIn(d time.Duration) { r.lookAt = time.Now().Add(d) }

// firstLook is how long the relay may go unwatched.
func (r *relay) firstLook() time.Duration {
	first, idle := r.s.cfg.TCP.FirstByteTimeout, r.s.cfg.TCP.IdleTimeout
	switch {
	case first > 0:
		return min(first-r.age(), r.s.lookEvery)
	case idle > 0:
		return min(idle, r.s.lookEvery)
	}
	return r.s.lookEvery
}

// firstByteLeft is how long the client may still send nothing.
func (r *relay) firstByteLeft() time.Duration {
	first := r.s.cfg.TCP.FirstByteTimeout
	if first == 0 || r.heard.Load() {
		return never
	}
	left := first - r.age()
	if left <= 0 && hasUnread(r.client) { // its stream is about to hear of it
		return never
	}
	return left
}

// idleLeft is how long nothing may still move. The time runs from the first
// byte where there is a limit for that.
func (r *relay) idleLeft() time.Duration {
	idle := r.s.cfg.TCP.IdleTimeout
	if idle == 0 || r.s.cfg.TCP.FirstByteTimeout > 0 && !r.heard.Load() {
		return never
	}
	left := idle - (r.age() - time.Duration(r.moved.Load()))
	if left <= 0 && r.stillMoving() {
		r.touch()
		return idle
	}
	return left
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

// clientLeft is how long until the next look at the client. One that has gone
// gets so long to have what it sent before passed on.
func (r *relay) clientLeft() time.Duration {
	if r.goneSince == 0 && hasGone(r.client, r.broken.Load()) {
		r.goneSince = r.age()
	}
	if r.goneSince == 0 {
		return r.s.lookEvery
	}
	return r.goneSince + r.s.lookEvery - r.age()
}
