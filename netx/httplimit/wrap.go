package httplimit

import "net/http"

// Wrap is the middleware: a handler that serves next within the limits that
// apply to the request, see the package's documentation. Around each other the
// same Limits apply once, unless there is a handler between that they cannot see
// through. Wrap panics where next is nil.
func (l *Limits) Wrap(next http.Handler) http.Handler {
	if next == nil {
		panic("httplimit: Wrap of no handler")
	}
	return &wrapped{limits: l, next: next}
}

type wrapped struct {
	limits *Limits
	next   http.Handler
}

func (m *wrapped) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l := m.limits
	t := l.resolve(m.next, r)
	if t.route.limiter == nil || l.passing.has(r, t.route, l.exempt) {
		l.pass(t, w, r)
		return
	}
	lease, end, err := l.ask(t.route, r)
	if end != acquired {
		l.refuse(t.route, w, r, denial{lease, end, err})
		return
	}
	defer lease.Release()
	if t.route.series != nil {
		start := t.route.series.begin()
		defer t.route.series.end(start)
	}
	l.pass(t, w, r)
}

// pass lets the request through, the ResponseWriter as it came.
func (l *Limits) pass(t target, w http.ResponseWriter, r *http.Request) {
	if t.inside {
		defer l.passing.leave(r)
		l.passing.enter(r, t.route)
	}
	t.handler.ServeHTTP(w, r)
}
