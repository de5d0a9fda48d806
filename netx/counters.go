package netx

import (
	"net/netip"
	"sync/atomic"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
)

// dropReason says why something that a client sent was not forwarded. The
// names are those of the report and the metrics.
type dropReason uint8

const (
	dropSoftThrottle dropReason = iota
	dropHardLockout
	dropDenied
	dropSessionsFull
	dropOversize
	dropSelf
	dropBogon
	dropProxyHeader
	dropUpstreamError
	dropConnectionsFull
	dropQueueFull
	dropDraining
	dropKernel  // counted there: see kerneldrop.Filter
	dropReasons // how many there are
)

func (r dropReason) String() string {
	return [dropReasons]string{
		"soft_throttle", "hard_lockout", "denied", "sessions_full", "oversize", "self",
		"bogon", "proxy_header", "upstream_error", "connections_full", "queue_full",
		"draining", "kernel",
	}[r]
}

// denial is the drop reason of a decision that was not to allow. Only one that
// has no end can be that of the list of the denied, so that it is seldom asked.
func denial(e *engine.Engine, from netip.AddrPort, d policy.Decision) dropReason {
	switch {
	case d.Reason != policy.HardLockout:
		return dropSoftThrottle
	case d.RetryAfter == policy.Never && e.Denies(from.Addr()):
		return dropDenied
	}
	return dropHardLockout
}

// Denial is the drop reason of a decision of the engine that was not to allow, for
// who replays what the gateway would do: soft_throttle; denied where the engine's
// list of the denied keeps the source out; hard_lockout for a lockout or a ban.
func Denial(e *engine.Engine, from netip.AddrPort, d policy.Decision) string {
	return denial(e, from, d).String()
}

// DropReasons returns the reasons of drops, the keys of ListenerReport.Dropped
// and WouldDrop.
func DropReasons() []string {
	names := make([]string, dropReasons)
	for r := range names {
		names[r] = dropReason(r).String()
	}
	return names
}

// counters are what a listener counts. At rest packets = forwarded + the sum
// of dropped: count a packet once on arrival and once where it ends.
type counters struct {
	packets          atomic.Int64
	bytes            atomic.Int64 // payload from clients, denied included
	forwarded        atomic.Int64
	replies          atomic.Int64 // datagrams sent to clients
	replyBytes       atomic.Int64 // payload sent to clients
	dropped          [dropReasons]atomic.Int64
	wouldDrop        [dropReasons]atomic.Int64 // what a dry run let through
	sessionsActive   atomic.Int64
	sessionsRejected atomic.Int64
	connections      atomic.Int64
	upstreamErrors   atomic.Int64

	repliesSuppressed atomic.Int64
	socketDropped     atomic.Int64 // by the kernel, those of the filter included
}

func (c *counters) drop(r dropReason) { c.dropped[r].Add(1) }

// reply counts datagrams that were sent to clients.
func (c *counters) reply(datagrams, bytes int) {
	c.replies.Add(int64(datagrams))
	c.replyBytes.Add(int64(bytes))
}

// A tally is what a batch of datagrams adds to the counters, so that they are
// touched once for all of it.
type tally struct {
	packets, bytes, forwarded int64
	dropped, wouldDrop        [dropReasons]int64
}

func (c *counters) add(t *tally) {
	c.packets.Add(t.packets)
	c.bytes.Add(t.bytes)
	c.forwarded.Add(t.forwarded)
	for i := range t.dropped {
		if n := t.dropped[i]; n != 0 {
			c.dropped[i].Add(n)
		}
		if n := t.wouldDrop[i]; n != 0 {
			c.wouldDrop[i].Add(n)
		}
	}
}

// addTo adds what has been counted to a report.
func (c *counters) addTo(r *ListenerReport) {
	r.Packets += c.packets.Load()
	r.Bytes += c.bytes.Load()
	r.Forwarded += c.forwarded.Load()
	r.Replies += c.replies.Load()
	r.ReplyBytes += c.replyBytes.Load()
	r.RepliesSuppressed += c.repliesSuppressed.Load()
	r.ReceiveBufferDropped += c.socketDropped.Load()
	for i := range c.dropped {
		reason := dropReason(i).String()
		if n := c.dropped[i].Load(); n != 0 {
			r.Dropped[reason] += n
		}
		if n := c.wouldDrop[i].Load(); n != 0 {
			r.WouldDrop[reason] += n
		}
	}
	r.SessionsActive += c.sessionsActive.Load()
	r.SessionsRejected += c.sessionsRejected.Load()
	r.ConnectionsActive += c.connections.Load()
	r.UpstreamErrors += c.upstreamErrors.Load()
}

// newReport is the report of a listener that has counted nothing.
func newReport(cfg ListenerConfig) ListenerReport {
	return ListenerReport{
		Name:      cfg.Name,
		Protocol:  cfg.Protocol.String(),
		Listen:    cfg.Listen.String(),
		Dropped:   map[string]int64{},
		WouldDrop: map[string]int64{},
	}
}
