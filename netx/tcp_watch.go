package netx

import (
	"math"
	"time"
)

const (
	// lookEvery is how often a relay looks whether its client has gone. The
	// stream that reads from the client hears of a reset at once, but not while
	// it waits for tokens or for an upstream that does not read.
	lookEvery = 5 * time.Second
	// never is the time left where there is no limit.
	never time.Duration = math.MaxInt64
)

func (r *relay) age() time.Duration { return time.Since(r.began) }
func (r *relay) touch()             { r.moved.Store(int64(r.age())) }

// startWatch arms the timer.
func (r *relay) startWatch() {
	r.timer = time.AfterFunc(time.Hour, r.watch)
	first, idle := r.s.cfg.TCP.FirstByteTimeout, r.s.cfg.TCP.IdleTimeout
	switch {
	case first > 0:
		r.timer.Reset(min(first-r.age(), r.s.lookEvery))
	case idle > 0:
		r.timer.Reset(min(idle, r.s.lookEvery))
	default:
		r.timer.Reset(r.s.lookEvery)
	}
}

// watch ends the relay when one of its timeouts has passed or its client has
// gone, or sets the timer to when that might be. Only one runs at a time: it
// sets the timer last.
func (r *relay) watch() {
	left := min(r.firstByteLeft(), r.idleLeft(), r.clientLeft())
	if left <= 0 {
		r.kill()
		return
	}
	r.timer.Reset(left)
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
