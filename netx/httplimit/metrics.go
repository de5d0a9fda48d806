package httplimit

import (
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the collectors of some Limits; nil is none.
type metrics struct {
	registerer    prometheus.Registerer
	active        *prometheus.GaugeVec
	queued        *prometheus.GaugeVec
	duration      *prometheus.HistogramVec
	queueDuration *prometheus.HistogramVec
	requests      *prometheus.CounterVec
	unnamed       *series // of all that have no policy with a name
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	if r == nil {
		return nil, nil
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.DefBuckets}, labels)
	}
	m := &metrics{
		registerer: r,
		active: gauge("throttled_http_active_requests",
			"Requests that hold the permits they were granted.", "policy"),
		queued: gauge("throttled_http_queued_requests",
			"Requests that wait for a permit.", "policy"),
		duration: histogram("throttled_http_request_duration_seconds",
			"How long requests held their permits.", "policy"),
		queueDuration: histogram("throttled_http_queue_duration_seconds",
			"How long requests waited for a permit, of those that had to.", "policy", "result"),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "throttled_http_requests_total",
			Help: "Requests by what became of their attempt to get permits.",
		}, []string{"policy", "result"}),
	}
	if err := register(r, m.collectors()...); err != nil {
		return nil, err
	}
	m.unnamed = m.newSeries("")
	return m, nil
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.active, m.queued, m.duration, m.queueDuration, m.requests}
}

// register registers all of the collectors or none.
func register(r prometheus.Registerer, collectors ...prometheus.Collector) error {
	for i, c := range collectors {
		if err := r.Register(c); err != nil {
			unregister(r, collectors[:i]...)
			return fmt.Errorf("httplimit: Registerer: %w", err)
		}
	}
	return nil
}

func unregister(r prometheus.Registerer, collectors ...prometheus.Collector) {
	for _, c := range collectors {
		r.Unregister(c)
	}
}

func (m *metrics) unregister() {
	if m != nil {
		unregister(m.registerer, m.collectors()...)
	}
}

// of is the series of a policy.
func (m *metrics) of(name string) *series {
	switch {
	case m == nil:
		return nil
	case name == "":
		return m.unnamed
	}
	return m.newSeries(name)
}

// series are the metrics of a policy, looked up once, on their first event.
type series struct {
	active, queued func() prometheus.Gauge
	duration       func() prometheus.Observer
	queueDuration  [resultCount]func() prometheus.Observer
	requests       [resultCount]func() prometheus.Counter
}

func (m *metrics) newSeries(policy string) *series {
	s := &series{
		active:   sync.OnceValue(func() prometheus.Gauge { return m.active.WithLabelValues(policy) }),
		queued:   sync.OnceValue(func() prometheus.Gauge { return m.queued.WithLabelValues(policy) }),
		duration: sync.OnceValue(func() prometheus.Observer { return m.duration.WithLabelValues(policy) }),
	}
	for i, label := range resultLabels {
		s.queueDuration[i] = sync.OnceValue(func() prometheus.Observer { return m.queueDuration.WithLabelValues(policy, label) })
		s.requests[i] = sync.OnceValue(func() prometheus.Counter { return m.requests.WithLabelValues(policy, label) })
	}
	return s
}

// count counts a request whose result is known.
func (s *series) count(end result) {
	if s != nil {
		s.requests[end]().Inc()
	}
}

func (s *series) waited(end result, d time.Duration) {
	if end < resultCount {
		s.queueDuration[end]().Observe(d.Seconds())
	}
}

// begin and end are the time in which a request holds its permits.
func (s *series) begin() time.Time {
	s.active().Inc()
	return time.Now()
}

func (s *series) end(start time.Time) {
	s.active().Dec()
	s.duration().Observe(time.Since(start).Seconds())
}
