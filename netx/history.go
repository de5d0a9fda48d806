package netx

import (
	"slices"
	"sync"

	"github.com/seed-ee4278a0/throttled/engine"
)

// A history is what has been counted under a name and a protocol, by the server
// that serves now and by those before it, so that a Reload does not set counters
// back.
type history struct {
	mu     sync.Mutex // guards what follows
	server server
	ending []server       // have retired
	past   ListenerReport // of those that have ended
	lost   int64          // the most ReceiveBufferDropped that a report has had
}

func newHistory() *history {
	return &history{past: newReport(ListenerConfig{})}
}

// begin goes on with another server. Connections of those before it go by its
// policy: their own may be gone, and with it the limit of their bytes.
func (h *history) begin(s server, p engine.PolicyID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.server != nil {
		h.ending = append(h.ending, h.server)
	}
	h.server = s
	for _, old := range h.ending {
		old.charge(p)
	}
}

// end keeps what a server has counted that has retired and was closed.
func (h *history) end(s server) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.Index(h.ending, s); i >= 0 {
		h.past.add(s.report())
		h.ending = slices.Delete(h.ending, i, i+1)
	}
}

func (h *history) report() ListenerReport {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := newReport(ListenerConfig{})
	before.add(h.past)
	for _, s := range h.ending {
		before.add(s.report())
	}
	r := h.server.report() // after those that may have counted what its filter has dropped
	r.add(before)
	// What a filter drops meanwhile makes it less for a moment.
	h.lost = max(h.lost, r.ReceiveBufferDropped)
	r.ReceiveBufferDropped = h.lost
	return r
}

// add adds what another server of the same listener has counted.
func (r *ListenerReport) add(o ListenerReport) {
	r.Packets += o.Packets
	r.Bytes += o.Bytes
	r.Forwarded += o.Forwarded
	for reason, n := range o.Dropped {
		r.Dropped[reason] += n
	}
	for reason, n := range o.WouldDrop {
		r.WouldDrop[reason] += n
	}
	r.SessionsActive += o.SessionsActive
	r.SessionsRejected += o.SessionsRejected
	r.ConnectionsActive += o.ConnectionsActive
	r.UpstreamErrors += o.UpstreamErrors
	r.Replies += o.Replies
	r.ReplyBytes += o.ReplyBytes
	r.RepliesSuppressed += o.RepliesSuppressed
	r.ReceiveBufferDropped += o.ReceiveBufferDropped
}
