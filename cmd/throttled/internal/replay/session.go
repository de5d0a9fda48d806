package replay

import "time"

// sessions are those of the listeners that lock out only who is established, as
// far as a capture tells of them: what passed would have made one, and what comes
// back is the answer.
type sessions struct {
	open  map[flow]*session
	swept time.Duration
}

// A session is one that has not been idle for too long.
type session struct {
	idle, seen time.Duration // the most, and when something last passed, since the start
	answered   bool
}

// find returns the session of a flow, nil where there is none.
func (ss *sessions) find(f flow, now time.Duration) *session {
	s := ss.open[f]
	if s == nil || now-s.seen >= s.idle {
		return nil
	}
	return s
}

// pass hears of a datagram that passes.
func (ss *sessions) pass(f flow, now, idle time.Duration) {
	s := ss.find(f, now)
	if s == nil {
		s = &session{idle: idle}
		ss.open[f] = s
	}
	s.seen = now
}

// answer hears of a datagram the other way.
func (ss *sessions) answer(f flow, now time.Duration) {
	if s := ss.find(f, now); s != nil {
		s.answered, s.seen = true, now
	}
}

// sweep forgets those that have ended.
func (ss *sessions) sweep(now time.Duration) {
	if now-ss.swept < sweepEvery {
		return
	}
	ss.swept = now
	for f := range ss.open {
		if ss.find(f, now) == nil {
			delete(ss.open, f)
		}
	}
}
