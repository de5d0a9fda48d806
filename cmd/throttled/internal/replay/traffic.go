package replay

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/pcap"
	"github.com/seed-ee4278a0/throttled/netx"
)

// A judge hears what came for the listeners, in the order of the capture and at
// times that never go back.
type judge interface {
	// begin comes before the first packet, and tick before each, with the time
	// of what follows.
	begin(start time.Time, ls *listeners) error
	tick(at time.Time)
	datagram(l *listener, s *segment)
	// answer hears of a datagram to none of the listeners, perhaps from one.
	answer(s *segment)
	// lets hears of a connection of a proxy, whose client is not known yet; open
	// of one of a client, data of so many bytes more from its client.
	// Where they return false the connection is over.
	lets(l *listener, c *connection) bool
	open(l *listener, c *connection) bool
	data(l *listener, c *connection, n int) bool
}

// traffic is what a capture says, one packet at a time.
type traffic struct {
	judge     judge
	capture   Capture
	listeners *listeners
	streams   streams
	now       int64 // nanoseconds since 1970, never goes back
	segment   segment
	elsewhere map[address]int64 // packets to addresses that no listener has
}

// An address is a place that somebody may listen at.
type address struct {
	protocol netx.Protocol
	at       netip.AddrPort
}

// elsewhereMost is how many addresses without a listener are told apart.
const elsewhereMost = 4096

// packet takes the next one.
func (t *traffic) packet(p pcap.Packet) error {
	if err := t.advance(p.At); err != nil {
		return err
	}
	s := &t.segment
	kind := s.parse(p)
	if kind != isSegment {
		t.capture.leave(outsideOf[kind])
		return nil
	}
	l, where := t.listeners.find(s)
	if l == nil {
		t.capture.leave(where)
		if where == otherAddress {
			t.passedBy(address{s.protocol, s.dst})
		}
		if s.protocol == netx.UDP {
			t.judge.answer(s)
		}
		return nil
	}
	if s.first {
		t.capture.Fragmented++
	}
	l.report.Captured++
	if l.Protocol == netx.TCP {
		t.streams.segment(t.judge, l, s, t.now)
	} else {
		l.unwrap(s)
		t.judge.datagram(l, s)
	}
	return nil
}

// advance moves the clock to the stamp of a packet. A stamp that is earlier than
// one before it, and none at all, leave it where it is.
func (t *traffic) advance(stamp int64) error {
	c := &t.capture
	c.Packets++
	first := c.Packets == 1
	switch {
	case stamp == pcap.NoTime:
		c.Untimed++
	case c.Packets-c.Untimed == 1:
		c.From = time.Unix(0, stamp).UTC()
		t.now = stamp
	case stamp < t.now:
		c.Backwards++
		c.BackwardsMost = max(c.BackwardsMost, time.Duration(t.now-stamp))
	default:
		t.now = stamp
	}
	if c.Packets > c.Untimed {
		c.To = time.Unix(0, t.now).UTC()
	}
	at := time.Unix(0, t.now)
	if first {
		if err := t.judge.begin(at, t.listeners); err != nil {
			return err
		}
	}
	t.judge.tick(at)
	t.streams.sweep(t.now)
	return nil
}

func (t *traffic) passedBy(a address) {
	if _, known := t.elsewhere[a]; known || len(t.elsewhere) < elsewhereMost {
		t.elsewhere[a]++
	}
}

// busiest are the addresses without a listener that got the most packets.
func (t *traffic) busiest(n int) []Address {
	var all []Address
	for a, packets := range t.elsewhere {
		all = append(all, Address{a.protocol.String(), a.at.String(), packets})
	}
	slices.SortFunc(all, func(a, b Address) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.Address, b.Address), cmp.Compare(a.Protocol, b.Protocol))
	})
	return all[:min(n, len(all))]
}
