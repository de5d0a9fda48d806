package replay

import (
	"fmt"
	"time"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/pcap"
)

// A Result is what a replay has found. Its JSON has the names of the fields.
type Result struct {
	Capture   Capture
	Listeners []Listener
	Endpoints Endpoints
	// Denied are the endpoints that would have been turned away, those who would
	// have been locked out first, then those with the most denials.
	Denied []Endpoint
	// Nearest are those who would not have been, the ones with the fewest tokens
	// left first.
	Nearest   []Endpoint
	Suggested []Suggestion `json:",omitempty"`
	Warnings  []string
}

// A Capture is what was read. Packets is what the listeners have Captured and
// all of NotForListener.
type Capture struct {
	File           string
	From, To       time.Time // of the first and the latest stamp; zero where there is none
	Packets        int64
	NotForListener map[string]int64 // by why not
	Fragmented     int64            // datagrams for listeners of which the first fragment stands for all
	Backwards      int64            // packets stamped earlier than one before them
	BackwardsMost  time.Duration    // by so much, in nanoseconds
	Untimed        int64            // packets without a stamp
}

// An outside is why a packet is for no listener.
type outside string

const (
	otherAddress outside = "other_address"
	outgoing     outside = "outgoing" // sent by the host that it was captured on
)

// outsideOf names what has no ports, by its kind.
var outsideOf = map[kind]outside{
	isFragment: "fragment", // not the first one of its datagram
	isOther:    "other_protocol",
	isNotIP:    "not_ip",
	isBroken:   "broken_header", // or cut off within it
	isUnknown:  "link_type",
}

func (c *Capture) leave(why outside) { c.NotForListener[string(why)]++ }

// A Listener is what would have happened at one. Packets is Forwarded and all of
// Dropped; for TCP it counts connections.
type Listener struct {
	Name      string
	Protocol  string
	Listen    string
	Captured  int64 // packets in the capture
	Packets   int64 // datagrams or connections
	Bytes     int64 // payload; for TCP that of connections that are let in
	Forwarded int64
	Dropped   map[string]int64 // by the gateway's reasons
	WouldDrop map[string]int64 // likewise, what a dry run lets through; part of what is forwarded, or dropped for another reason

	OpcodesCut    int64 // datagrams of which the opcode was not kept, and which were decided on under the listener's policy
	HeadersCut    int64 // PROXY headers that were not kept whole: who sent what is behind them is not known
	Retransmitted int64 // SYNs that were sent again
	OpenBefore    int64 // connections that were open when the capture began
	Paused        int64 // connections with bytes over the limit, where on_limit is pause
	Closed        int64 // the same where it is close
	LateBytes     int64 // bytes that would have had to wait for their tokens
}

// Endpoints are counts of (endpoint, policy) pairs.
type Endpoints struct {
	Seen      int64
	Denied    int64
	LockedOut int64 // of those denied
}

// An Endpoint is what would have happened to one under a policy.
type Endpoint struct {
	Endpoint      string
	Policy        string
	Packets       int64
	Bytes         int64
	Denied        int64
	FirstDenied   time.Time // zero: never
	Lockouts      int64
	FirstLockout  time.Time // zero: never
	LockedFor     float64   // seconds in all, also beyond the end of the capture
	LowestTokens  float64   // percent of the capacity, of the bucket that came nearest to empty
	LowestAt      time.Time
	PeakPerSecond float64 // packets, in the busiest ten seconds
}

// An Address got packets and has no listener.
type Address struct {
	Protocol string
	Address  string
	Packets  int64
}

// warn adds what a reader should know before he believes the rest.
func (r *Result) warn(t *traffic, failed error) {
	warn := func(format string, args ...any) { r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...)) }
	c := &r.Capture
	if failed != nil {
		warn("%v; this is about the %d before", failed, c.Packets)
	}
	captured := int64(0)
	for _, l := range t.listeners.all {
		captured += l.report.Captured
		if l.Listen.Port() == 0 {
			warn("listener %s has port 0, which no packet of a capture is for", l.Name)
		}
		if n := l.report.OpcodesCut; n > 0 {
			warn("listener %s: of %d datagrams the opcode was not captured; they were decided on under the listener's policy", l.Name, n)
		}
		if n := l.report.HeadersCut; n > 0 {
			warn("listener %s: %d PROXY headers were not captured whole, and count as proxy_header: let tcpdump keep more (-s)", l.Name, n)
		}
	}
	if captured == 0 {
		warn("no packet is for a listener: let one listen on the address of the server in the capture, or on a wildcard, and on its port")
		for _, a := range t.busiest(3) {
			warn("%d packets went to %s %s", a.Packets, a.Protocol, a.Address)
		}
	}
	if n := c.NotForListener[string(outsideOf[isUnknown])]; n > 0 {
		warn("%d packets have a link type that is none of %s", n, pcap.KnownLinkTypes)
	}
	if c.Backwards > 0 {
		warn("%d packets are stamped earlier than one before them, by up to %v, and were decided on at its time", c.Backwards, c.BackwardsMost)
	}
	if c.Untimed > 0 {
		warn("%d packets have no stamp and were decided on at the time of the one before them", c.Untimed)
	}
}
