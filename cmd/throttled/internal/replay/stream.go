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
	passed bool   // a dry run has let it pass, and counted that
	next   uint32 // the sequence number after the last byte
	seen   int64

	beginning *beginning // nil where no PROXY header is looked for, or no longer
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
		c.end()
		c = &connection{from: s.src, syn: s.seq, hasSYN: true, next: s.seq + 1}
		c.start(j, l, now)
		s.seq++ // of the first byte, where a SYN comes with some
	case c == nil && s.bytes > 0 && s.flags&flagRST == 0:
		l.report.OpenBefore++
		c = &connection{from: s.src, next: s.seq, over: l.hears(s.src.Addr())} // whose, nobody knows
	case c == nil:
		return
	}
	st.open[f] = c
	c.seen = now
	if ahead := int32(s.seq + uint32(s.bytes) - c.next); !c.over && ahead > 0 && ahead <= farthest {
		n := int(ahead)
		if c.beginning != nil {
			n = c.begin(j, s.after(c.next), n, now)
		}
		c.next += uint32(ahead)
		c.over = c.over || n > 0 && !j.data(l, c, n)
	}
	if s.flags&(flagFIN|flagRST) != 0 {
		c.end()
	}
}

// after is what was kept of the bytes from a sequence number on.
func (s *segment) after(next uint32) []byte {
	if skip := int64(int32(next - s.seq)); skip >= 0 && skip <= int64(len(s.payload)) {
		return s.payload[skip:]
	}
	return nil
}

// finish ends those whose PROXY header was late when the capture ended.
func (st *streams) finish(now int64) {
	for _, c := range st.open {
		if c.beginning != nil && c.beginning.late(now) {
			c.end()
		}
	}
}

// sweep forgets who has not been heard of for long.
func (st *streams) sweep(now int64) {
	if now-st.swept < int64(sweepEvery) {
		return
	}
	st.swept = now
	for f, c := range st.open {
		if now-c.seen > int64(streamIdle) {
			c.end()
			delete(st.open, f)
		}
	}
}
