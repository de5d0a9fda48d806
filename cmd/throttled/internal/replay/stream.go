package replay

import (
	"net/netip"
	"time"
)

// streams follow the TCP connections to the listeners, so that one counts once,
// however often its SYN was sent, and a byte of its client once.
type streams struct {
	open  map[flow]*connection
	swept int64
}

type flow struct{ client, server netip.AddrPort }

// A connection is what its client has sent so far.
type connection struct {
	from   netip.AddrPort
	syn    uint32 // where hasSYN
	hasSYN bool
	over   bool   // turned away, closed or ended: what still comes counts for nothing
	paused bool   // has been without tokens
	next   uint32 // the sequence number after the last byte
	seen   int64
}

// A connection of which nothing was seen for streamIdle is forgotten: longer than
// a client goes on sending its SYN. One that goes on later counts as one that was
// open before the capture.
const (
	streamIdle = 3 * time.Minute
	sweepEvery = time.Minute
)

// farthest is how far a segment may be ahead of the last one: TCP has no larger
// window.
const farthest = 1 << 30

func (st *streams) segment(j judge, l *listener, s *segment, now int64) {
	f := flow{s.src, s.dst}
	c := st.open[f]
	switch {
	case s.flags&(flagSYN|flagACK) == flagSYN:
		if c != nil && c.hasSYN && c.syn == s.seq {
			l.report.Retransmitted++
			c.seen = now
			return
		}
		c = &connection{from: s.src, syn: s.seq, hasSYN: true, next: s.seq + 1}
		c.over = !j.open(l, s.src)
		s.seq++ // of the first byte, where a SYN comes with some
	case c == nil && s.bytes > 0 && s.flags&flagRST == 0:
		l.report.OpenBefore++
		c = &connection{from: s.src, next: s.seq}
	case c == nil:
		return
	}
	st.open[f] = c
	c.seen = now
	if ahead := int32(s.seq + uint32(s.bytes) - c.next); !c.over && ahead > 0 && ahead <= farthest {
		c.next += uint32(ahead)
		c.over = !j.data(l, c, int(ahead))
	}
	c.over = c.over || s.flags&(flagFIN|flagRST) != 0
}

// sweep forgets who has not been heard of for long.
func (st *streams) sweep(now int64) {
	if now-st.swept < int64(sweepEvery) {
		return
	}
	st.swept = now
	for f, c := range st.open {
		if now-c.seen > int64(streamIdle) {
			delete(st.open, f)
		}
	}
}
