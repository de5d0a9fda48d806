package httplimit

import (
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// logEvery is how often the error log writes a line.
const logEvery = time.Second

// An errorLog writes one line a second at most and counts the others, so that a
// limiter that fails for every request cannot fill the log. Without a logger it
// writes none.
type errorLog struct {
	logger *slog.Logger

	mu         sync.Mutex // guards what follows
	last       time.Time
	suppressed int64
}

func (e *errorLog) error(r *http.Request, message string, args ...any) {
	if e.logger == nil {
		return
	}
	if suppressed, ok := e.pass(); ok {
		e.logger.ErrorContext(r.Context(), message, append(args, "suppressed", suppressed)...)
	}
}

func (e *errorLog) pass() (suppressed int64, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if !e.last.IsZero() && now.Sub(e.last) < logEvery {
		e.suppressed++
		return 0, false
	}
	suppressed, e.suppressed, e.last = e.suppressed, 0, now
	return suppressed, true
}
