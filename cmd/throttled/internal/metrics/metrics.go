// Package metrics shows what a gateway counts to Prometheus. It counts nothing
// itself: each scrape reads the counters that the report is made of. No label
// holds an address of a client, so the number of series depends on the listeners
// alone and not on who sends.
package metrics

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/netx"
)

// maxScrapes is how many scrapes are answered at a time; more get a 503.
const maxScrapes = 4

// A Source is read at each scrape, perhaps by several at a time.
type Source struct {
	Listeners func() []netx.ListenerReport
	Engine    func() engine.Summary
	Restarts  func() int64 // of listeners that ended by themselves
	Reloaded  func() bool  // the configuration that was read last is in force
}

// NewHandler answers scrapes: with the gateway's metrics and those of the Go
// runtime and the process.
func NewHandler(s Source, log *slog.Logger) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(gateway{s}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		MaxRequestsInFlight: maxScrapes,
	})
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("throttled_"+name, help, labels, nil)
}

// The metrics of a gateway.
var (
	packets = describe("packets_total",
		"Datagrams or connections from clients (in), datagrams to clients (out).", "listener", "direction")
	bytes = describe("bytes_total",
		"Payload from clients, denied included (in), and to clients (out).", "listener", "direction")
	dropped = describe("dropped_total",
		"Datagrams or connections that were not forwarded.", "listener", "reason")
	wouldDrop = describe("would_drop_total",
		"Datagrams or connections that a dry run let through.", "listener", "reason")
	suppressed = describe("replies_suppressed_total",
		"Datagrams to clients that were not sent, for udp.max_reply_ratio.", "listener")
	bufferDropped = describe("receive_buffer_dropped_total",
		"Datagrams that the kernel dropped unread, for want of room in the receive buffer or for a wrong checksum.", "listener")
	sessions = describe("sessions_active",
		"UDP sessions that are open.", "listener")
	connections = describe("connections_active",
		"TCP connections that are served.", "listener")

	endpoints = describe("endpoints",
		"Endpoints that are remembered, under each policy that they met.")
	endpointsPeak = describe("endpoints_peak",
		"The most endpoints that were remembered at one time.")
	lockedEndpoints = describe("locked_endpoints",
		"Endpoints that are locked out.")
	lockouts = describe("lockouts_total",
		"Lockouts that have begun.")
	evicted = describe("evicted_total",
		"Endpoints that gave their place in a full table to a newcomer.")
	refillRatio = describe("refill_ratio",
		"Part of the refill rate that the CPU load allows, 0 to 1.")
	reloadSuccess = describe("config_reload_success",
		"1 where the configuration that was read last is in force, else 0.")
	restarts = describe("engine_restarts_total",
		"Listeners that ended by themselves and were started again.")
)

// gateway is the collector of a Source.
type gateway struct{ source Source }

// Describe implements prometheus.Collector.
func (g gateway) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		packets, bytes, dropped, wouldDrop, suppressed, bufferDropped, sessions, connections, endpoints,
		endpointsPeak, lockedEndpoints, lockouts, evicted, refillRatio, reloadSuccess, restarts,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g gateway) Collect(ch chan<- prometheus.Metric) {
	for _, l := range g.source.Listeners() {
		collectListener(ch, l)
	}
	e := g.source.Engine()
	gauge(ch, endpoints, float64(e.TrackedEndpoints))
	gauge(ch, endpointsPeak, float64(e.PeakTrackedEndpoints))
	gauge(ch, lockedEndpoints, float64(e.HardBlockedCount))
	count(ch, lockouts, e.Lockouts)
	count(ch, evicted, e.Evicted)
	gauge(ch, refillRatio, e.RefillRatio)
	reloaded := 0.0
	if g.source.Reloaded() {
		reloaded = 1
	}
	gauge(ch, reloadSuccess, reloaded)
	count(ch, restarts, g.source.Restarts())
}

// collectListener shows every reason, also one that nothing was dropped for yet:
// a series that begins with its first increase hides that from rate().
func collectListener(ch chan<- prometheus.Metric, l netx.ListenerReport) {
	count(ch, packets, l.Packets, l.Name, "in")
	count(ch, packets, l.Replies, l.Name, "out")
	count(ch, bytes, l.Bytes, l.Name, "in")
	count(ch, bytes, l.ReplyBytes, l.Name, "out")
	for _, reason := range netx.DropReasons() {
		count(ch, dropped, l.Dropped[reason], l.Name, reason)
		count(ch, wouldDrop, l.WouldDrop[reason], l.Name, reason)
	}
	if l.Protocol == netx.TCP.String() {
		gauge(ch, connections, float64(l.ConnectionsActive), l.Name)
	} else {
		count(ch, suppressed, l.RepliesSuppressed, l.Name)
		count(ch, bufferDropped, l.ReceiveBufferDropped, l.Name)
		gauge(ch, sessions, float64(l.SessionsActive), l.Name)
	}
}

func count(ch chan<- prometheus.Metric, d *prometheus.Desc, n int64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, x float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, x, labels...)
}
