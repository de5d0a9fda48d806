package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
)

// Require marks a handler with the policy of that name. The mark says what
// applies; it is [Limits.Wrap] that applies it. A request that reaches the
// marked handler otherwise is answered 500 with a text that says so. It returns
// an error where there is no such policy, where h is nil, and after Close.
func (l *Limits) Require(name string, h http.Handler) (http.Handler, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if rt := l.policies[name]; rt != nil || l.closed {
		return l.mark(rt, h)
	}
	return nil, fmt.Errorf("httplimit: there is no policy %q", name)
}

// RequirePolicy marks a handler with a policy that has no name, like
// [Limits.Require]. What it counts is that of its limiter: policies with
// limiters of their own have nothing to do with one another, whatever keys
// those use, and share what they share where the limiter is the same. It
// returns an error where the policy has no limiter, where h is nil, and after
// Close.
func (l *Limits) RequirePolicy(p Policy, h http.Handler) (http.Handler, error) {
	if p.Limiter == nil {
		return nil, errors.New("httplimit: an unnamed policy has no limiter")
	}
	rt, err := l.newRoute("", p)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mark(rt, h)
}

func (l *Limits) mark(rt *route, h http.Handler) (http.Handler, error) {
	switch {
	case l.closed:
		return nil, errClosed
	case h == nil:
		return nil, errors.New("httplimit: a mark on no handler")
	}
	return &marked{limits: l, route: rt, next: h}, nil
}

// Disable marks a handler as one that nothing limits, the global limiter
// neither. It wins over every other mark and every [Limits.Wrap] that it sees
// inside, and over those around that see it, of whichever Limits. Without
// [Limits.Wrap] the handler just serves. Disable panics where h is nil.
func Disable(h http.Handler) http.Handler {
	if h == nil {
		panic("httplimit: Disable of no handler")
	}
	return &disabled{next: h}
}

// A marked is the mark of a policy.
type marked struct {
	limits *Limits
	route  *route
	next   http.Handler
}

const notWrapped = "httplimit: a handler marked with a policy was reached without its limits: " +
	"serve it through Limits.Wrap, and let the mark be the outermost of what is registered with the ServeMux"

func (m *marked) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l := m.limits
	rt := l.resolve(m, r).route
	if rt == l.exempt || l.passing.has(r, rt, l.exempt) {
		m.next.ServeHTTP(w, r)
		return
	}
	l.log.error(r, notWrapped, "policy", m.route.name, "path", r.URL.Path)
	http.Error(w, notWrapped, http.StatusInternalServerError)
}

// A disabled is the mark of [Disable].
type disabled struct{ next http.Handler }

// ServeHTTP tells those inside, who cannot see what stands around them.
func (d *disabled) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for h, l := beyond(d.next, r); h != nil; h, l = beyond(h, r) {
		if l != nil {
			defer l.passing.leave(r)
			l.passing.enter(r, l.exempt)
		}
	}
	d.next.ServeHTTP(w, r)
}

// beyond is the handler that a mark, a middleware of ours or a mux is about to
// call, nil for all others, and the Limits whose mark or middleware h is.
func beyond(h http.Handler, r *http.Request) (next http.Handler, of *Limits) {
	switch m := h.(type) {
	case *marked:
		return m.next, m.limits
	case *wrapped:
		return m.next, m.limits
	case *disabled:
		return m.next, nil
	case *http.ServeMux:
		next, _ = m.Handler(r)
	}
	return next, nil
}

// A target is what a request is for.
type target struct {
	route   *route
	handler http.Handler // what to call: the first handler, without our marks around it
	inside  bool         // there is more of ours beyond, which will ask whether the request may pass
}

// resolve follows a request from a handler on, as far as it can see, and says
// what applies.
func (l *Limits) resolve(h http.Handler, r *http.Request) target {
	t := target{route: l.global, handler: h}
	exempt, front := false, true
	for {
		next, of := beyond(h, r)
		if next == nil {
			break
		}
		asks := of == l
		switch m := h.(type) {
		case *marked:
			if asks {
				t.route = m.route
			}
		case *disabled:
			exempt = true
		}
		if front = front && asks; front { // what it does is done, it may be left out
			t.handler = next
		}
		t.inside = t.inside || asks && !front
		h = next
	}
	if exempt {
		t.route = l.exempt
	}
	return t
}

// passing are the requests that have got what they need and are on their way to
// a mark that will ask. The request itself stays as it is, so that others see
// in it the Pattern that the mux sets.
type passing struct{ requests sync.Map } // *http.Request -> *route

func (p *passing) enter(r *http.Request, rt *route) { p.requests.Store(r, rt) }

func (p *passing) leave(r *http.Request) { p.requests.Delete(r) }

// has reports whether the request has passed one of these routes.
func (p *passing) has(r *http.Request, either, or *route) bool {
	rt, ok := p.requests.Load(r)
	return ok && (rt == either || rt == or)
}
