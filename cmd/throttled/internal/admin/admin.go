// Package admin serves the state of a running gateway over HTTP: whether it
// lives, whether it takes sessions, its report and its configuration, who is
// throttled and why. It takes bans and lifts them, and has the gateway reloaded
// and drained. It listens on the loopback interface or a unix socket; anything
// else needs a token, which the configuration sees to.
package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/page"
	"github.com/seed-ee4278a0/throttled/engine"
)

// A Config says what a Server serves.
type Config struct {
	Listen string        // ip:port or unix:PATH
	Token  func() string // asked for everywhere but /livez and /readyz; "" = none
	Report func() any    // what /v1/report shows, as JSON
	Config func() any    // what /v1/config shows, as JSON
	Ready  func() bool
	Reload func() (warnings []string, err error)
	Drain  func() time.Duration // begins, and returns how long it may take
	Engine *engine.Engine
	Save   func() error // called after a change of a ban; returns when a restart keeps it
	// Handlers answer what the Server does not know itself, by the patterns of
	// a http.ServeMux.
	Handlers map[string]http.Handler
	Logger   *slog.Logger // for bans, and failures while answering
}

// A Server answers on one address, from Serve until Close. Its methods are for
// one goroutine.
type Server struct {
	http     http.Server
	crowd    crowd
	listener net.Listener
	serving  chan struct{} // closed when Serve's goroutine has ended; nil before Serve
}

// Listen binds the address. Nobody is answered before Serve.
func Listen(c Config) (*Server, error) {
	l, err := listen(c.Listen)
	if err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	s := &Server{
		http: http.Server{
			Handler:           newHandler(c, l.Addr().Network() == "unix"),
			ReadHeaderTimeout: 5 * time.Second,
			ReadTimeout:       10 * time.Second,
			WriteTimeout:      10 * time.Second,
			IdleTimeout:       time.Minute,
			MaxHeaderBytes:    16 << 10,
			ErrorLog:          slog.NewLogLogger(c.Logger.Handler(), slog.LevelDebug),
		},
		listener: l,
	}
	s.crowd.serve(&s.http)
	return s, nil
}

// Addr is the bound address.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Serve answers in the background.
func (s *Server) Serve() {
	s.serving = make(chan struct{})
	go func() {
		defer close(s.serving)
		s.http.Serve(s.listener) // always ends with an error, that of Close
	}()
}

// Close lets requests under way finish for a second, and returns when the
// server has ended. It frees the address also where Serve was never called.
func (s *Server) Close() error {
	if s.serving == nil {
		return s.listener.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.http.Close()
	}
	<-s.serving
	return err
}

// A handler answers requests that may be asked.
type handler struct{ Config }

// newHandler routes requests, after it has seen whether they may ask at all.
func newHandler(c Config, local bool) http.Handler {
	h, mux := &handler{c}, http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if !c.Ready() {
			fail(w, http.StatusServiceUnavailable, "draining")
			return
		}
		answer(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /v1/report", func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusOK, c.Report())
	})
	mux.HandleFunc("GET /v1/config", func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusOK, c.Config())
	})
	mux.HandleFunc("GET /v1/endpoints", h.endpoints)
	mux.HandleFunc("GET /v1/endpoints/{ip...}", h.endpoint)
	mux.HandleFunc("GET /v1/bans", h.bans)
	mux.HandleFunc("POST /v1/bans", h.ban)
	mux.HandleFunc("DELETE /v1/bans/{prefix...}", h.unban) // its slash may be escaped or not
	mux.HandleFunc("DELETE /v1/bans", h.unban)             // without one, which would be a redirect
	mux.HandleFunc("POST /v1/reload", h.reload)
	mux.HandleFunc("POST /v1/drain", h.drain)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { page.Serve(w, http.StatusOK) })
	for pattern, h := range c.Handlers {
		mux.Handle(pattern, h)
	}
	crossOrigin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		open := r.URL.Path == "/livez" || r.URL.Path == "/readyz"
		token := c.Token()
		switch {
		case token == "" && !local && !localHost(r.Host):
			// A page in the operator's browser may have its own name lead
			// here; without a token only the Host tells it apart.
			fail(w, http.StatusForbidden, "the Host header names another machine; set a token to allow that")
		case token != "" && !open && !authorized(r, token):
			w.Header().Set("WWW-Authenticate", "Bearer")
			if forPeople(r) {
				page.Serve(w, http.StatusUnauthorized) // it asks for the token
				return
			}
			fail(w, http.StatusUnauthorized, "a valid bearer token is needed")
		case crossOrigin.Check(r) != nil:
			fail(w, http.StatusForbidden, "a page of another site must not change anything here")
		default:
			route(mux, w, r)
		}
	})
}

// route serves r, and puts into JSON what the mux says of a path or a method
// that it does not know.
func route(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) {
	h, pattern := mux.Handler(r)
	if pattern != "" {
		mux.ServeHTTP(w, r)
		return
	}
	verdict := &statusOnly{header: http.Header{}}
	h.ServeHTTP(verdict, r)
	if allow := verdict.header.Get("Allow"); allow != "" {
		w.Header().Set("Allow", allow)
	}
	fail(w, verdict.status, strings.ToLower(http.StatusText(verdict.status)))
}

// statusOnly keeps the status and the header of an answer and drops its text.
type statusOnly struct {
	header http.Header
	status int
}

func (s *statusOnly) Header() http.Header         { return s.header }
func (s *statusOnly) Write(b []byte) (int, error) { return len(b), nil }
func (s *statusOnly) WriteHeader(status int)      { s.status = status }

// forPeople says whether a browser asks for the page.
func forPeople(r *http.Request) bool {
	return r.Method == http.MethodGet && r.URL.Path == "/" && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// authorized compares digests, so that the time taken tells neither the token's
// length nor its beginning.
func authorized(r *http.Request, token string) bool {
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	want, got := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(strings.TrimSpace(given)))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(want[:], got[:]) == 1
}

// localHost says whether a Host header names this machine. No browser leaves it
// out; simple health checks do.
func localHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if host == "" || strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && a.Unmap().IsLoopback()
}

func answer(w http.ResponseWriter, status int, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		status, data = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be written as JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	w.Write(append(data, '\n')) // the client may be gone
}

func fail(w http.ResponseWriter, status int, why string) {
	answer(w, status, map[string]string{"error": why})
}
