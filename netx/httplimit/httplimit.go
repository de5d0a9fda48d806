package httplimit

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ee4278a0/throttled/policy/limiter"
)

// errClosed is what closed Limits answer.
var errClosed = fmt.Errorf("httplimit: %w", net.ErrClosed)

// A Policy limits the requests of the routes that are marked with it.
type Policy struct {
	// Limiter grants a request its permit; each request asks for one. It
	// stays the caller's, who closes it when the server has ended. One limiter
	// may stand in several policies and Limits, which then share its counts.
	//
	// A limiter of one's own must not keep the context of Acquire after it has
	// returned.
	Limiter limiter.Selective[*http.Request]
	// OnRejected answers a request that Limiter denied, see
	// [Options.OnRejected]. nil means that of the Options.
	OnRejected func(http.ResponseWriter, *http.Request, limiter.Lease)
}

// Options configure [Limits]. The zero value is usable: no global limiter, 429
// for what the policies deny.
type Options struct {
	// Global limits all requests that are not marked with [Disable], after the
	// policy of their route. It stays the caller's, like that of a [Policy].
	// nil means none.
	Global limiter.Selective[*http.Request]
	// OnRejected answers a request that was denied, in place of an empty
	// answer with StatusCode. It gets the lease of the denial. Retry-After is
	// set already, in whole seconds rounded up, where the lease has one;
	// OnRejected may delete it. If it writes no status, StatusCode is written,
	// before its first byte of the body or when it returns or panics. The
	// ResponseWriter must not be kept. nil means the empty answer.
	OnRejected func(http.ResponseWriter, *http.Request, limiter.Lease)
	// StatusCode of a denial, 200..599; 0 means 429 Too Many Requests.
	StatusCode int
	// Registerer gets the metrics. nil means that there are none, and that
	// they cost nothing. Several Limits need a label each, see
	// prometheus.WrapRegistererWith.
	Registerer prometheus.Registerer
	// Logger gets the errors of limiters, at most one line a second, and at
	// level debug each denial. nil discards them.
	Logger *slog.Logger
}

// Limits are a global limiter and policies, and make the middleware that
// applies them. All methods are safe for concurrent use, while requests are
// served too. Use [New].
type Limits struct {
	options Options
	metrics *metrics // nil without a Registerer
	log     errorLog

	global *route // what applies to routes without a policy
	exempt *route // what applies to routes that are disabled: nothing

	mu       sync.Mutex // guards what follows
	policies map[string]*route
	closed   bool

	passing  passing
	attempts attempts
	writers  statusWriters
	retry    retryValues
}

// New returns Limits without policies. It returns an error that names every
// option that is out of its range, or where the metrics cannot be registered.
func New(o Options) (*Limits, error) {
	if o.StatusCode == 0 {
		o.StatusCode = http.StatusTooManyRequests
	}
	if o.StatusCode < 200 || o.StatusCode > 599 {
		return nil, fmt.Errorf("httplimit: StatusCode: %d is outside 200..599", o.StatusCode)
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, err
	}
	l := &Limits{options: o, metrics: m, policies: make(map[string]*route)}
	l.log.logger = o.Logger
	l.exempt = &route{}
	l.global, err = l.newRoute("", Policy{})
	if err != nil {
		m.unregister()
		return nil, err
	}
	return l, nil
}

// AddPolicy gives a policy a name, under which [Limits.Require] finds it and
// the metrics count it. It returns an error where the name is empty, not UTF-8
// or taken, where the policy has no limiter, and after Close.
func (l *Limits) AddPolicy(name string, p Policy) error {
	var problems []error
	if name == "" {
		problems = append(problems, errors.New("httplimit: a policy without a name"))
	}
	if !utf8.ValidString(name) {
		problems = append(problems, fmt.Errorf("httplimit: policy %q: the name is not UTF-8", name))
	}
	if p.Limiter == nil {
		problems = append(problems, fmt.Errorf("httplimit: policy %q has no limiter", name))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.policies[name] != nil {
		problems = append(problems, fmt.Errorf("httplimit: there is a policy %q already", name))
	}
	if l.closed {
		problems = append(problems, errClosed)
	}
	if len(problems) > 0 {
		return errors.Join(problems...)
	}
	rt, err := l.newRoute(name, p)
	if err != nil {
		return err
	}
	l.policies[name] = rt
	return nil
}

// Close unregisters the metrics. The limiters stay open, for their owners to
// close, and handlers that were made before go on limiting without being
// counted; new policies and marks are refused with an error that matches
// net.ErrClosed. Further calls do nothing and return nil.
func (l *Limits) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		l.metrics.unregister()
	}
	return nil
}
