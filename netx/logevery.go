package netx

import (
	"sync"
	"time"
)

// logEvery is how often a kind of event may write a line.
const logEvery = time.Second

// A logGate lets one event of a kind through each second and counts the
// others, so that an attack cannot fill the log. The zero value is open.
//
//	if n, ok := s.fullGate.pass(); ok {
//		log.Warn("session table full", "suppressed", n)
//	}
type logGate struct {
	mu         sync.Mutex // guards what follows
	last       time.Time
	suppressed int64
}

// pass says whether this event may be logged and how many were held back
// since the last one that was.
func (g *logGate) pass() (suppressed int64, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if !g.last.IsZero() && now.Sub(g.last) < logEvery {
		g.suppressed++
		return 0, false
	}
	suppressed, g.suppressed, g.last = g.suppressed, 0, now
	return suppressed, true
}
