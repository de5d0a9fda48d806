package httplimit

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
)

// A statusWriter is the ResponseWriter of a hook. It writes the status where the
// hook does not. What the one inside can do besides, it can: flush, be hijacked,
// read from a file; http.NewResponseController reaches the rest.
type statusWriter struct {
	http.ResponseWriter
	status int
	done   bool // a status was written, or the connection is no longer ours
}

// statusWriters keeps them for later hooks.
type statusWriters struct{ pool sync.Pool }

func (ws *statusWriters) wrap(w http.ResponseWriter, status int) *statusWriter {
	s, _ := ws.pool.Get().(*statusWriter)
	if s == nil {
		s = new(statusWriter)
	}
	*s = statusWriter{ResponseWriter: w, status: status}
	return s
}

// finish ends the answer, also that of a hook that panics.
func (ws *statusWriters) finish(s *statusWriter) {
	s.begin()
	*s = statusWriter{}
	ws.pool.Put(s)
}

// begin writes the status unless there is one.
func (s *statusWriter) begin() {
	if !s.done {
		s.WriteHeader(s.status)
	}
}

// WriteHeader writes the status. Informational ones are not the answer yet.
func (s *statusWriter) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		s.done = true
	}
	s.ResponseWriter.WriteHeader(status)
}

func (s *statusWriter) Write(b []byte) (int, error) {
	s.begin()
	return s.ResponseWriter.Write(b)
}

// WriteString saves those who write text a copy.
func (s *statusWriter) WriteString(text string) (int, error) {
	s.begin()
	return io.WriteString(s.ResponseWriter, text)
}

// ReadFrom lets the kernel copy a file, where it can.
func (s *statusWriter) ReadFrom(r io.Reader) (int64, error) {
	s.begin()
	return io.Copy(s.ResponseWriter, r)
}

// Flush does nothing where the ResponseWriter inside cannot.
func (s *statusWriter) Flush() { _ = s.FlushError() }

// FlushError is what http.ResponseController calls.
func (s *statusWriter) FlushError() error {
	s.begin()
	return http.NewResponseController(s.ResponseWriter).Flush()
}

// Hijack returns an error where the ResponseWriter inside cannot.
func (s *statusWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(s.ResponseWriter).Hijack()
	s.done = s.done || err == nil
	return conn, rw, err
}

// Unwrap is for http.ResponseController.
func (s *statusWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }
