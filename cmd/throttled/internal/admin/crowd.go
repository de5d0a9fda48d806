package admin

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// maxConnections is how many connections a server holds. They come out of the
// few descriptors that the gateway keeps free beside its sessions.
const maxConnections = 16

// A crowd is the connections of a server. Where one more comes than there may
// be, that which has asked for nothing for longest makes room: whoever opens
// connections and says nothing neither shuts others out nor takes descriptors
// from the gateway. The zero value is ready.
type crowd struct {
	mu      sync.Mutex // guards what follows, and the members
	members map[net.Conn]*member
	turn    int // counts arrivals and answers
}

type member struct {
	busy bool // a request is being answered
	last int  // turn of the arrival or the last answer
}

// serve makes the server tell the crowd of its connections.
func (w *crowd) serve(s *http.Server) {
	s.ConnState = w.changed
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, c)
	}
	s.Handler = w.during(s.Handler)
}

// connKey is the key of a request's connection in its context.
type connKey struct{}

func (w *crowd) changed(c net.Conn, state http.ConnState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch state {
	case http.StateNew:
		w.admit(c)
	case http.StateClosed, http.StateHijacked:
		delete(w.members, c)
	}
}

// admit wants mu.
func (w *crowd) admit(c net.Conn) {
	if w.members == nil {
		w.members = make(map[net.Conn]*member)
	}
	w.turn++
	w.members[c] = &member{last: w.turn}
	if len(w.members) <= maxConnections {
		return
	}
	first := c
	for c, m := range w.members {
		if !m.busy && m.last < w.members[first].last {
			first = c
		}
	}
	delete(w.members, first)
	first.Close() // where all are busy it is the newcomer
}

// during keeps the place of a connection while its request is answered.
func (w *crowd) during(next http.Handler) http.Handler {
	set := func(r *http.Request, busy bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		c, _ := r.Context().Value(connKey{}).(net.Conn)
		if m := w.members[c]; m != nil {
			w.turn++
			m.busy, m.last = busy, w.turn
		}
	}
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		set(r, true)
		defer set(r, false)
		next.ServeHTTP(rw, r)
	})
}
