package httplimit

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/seed-ee4278a0/throttled/policy/limiter"
)

// A denial is an attempt that did not acquire.
type denial struct {
	lease limiter.Lease
	end   result
	err   error
}

// refuse answers a request that may not pass. Nothing is held any more.
func (l *Limits) refuse(rt *route, w http.ResponseWriter, r *http.Request, d denial) {
	l.debug(rt, r, d)
	switch {
	case d.end == requestCanceled:
		outOfTime(w, r)
	case d.err != nil:
		l.log.error(r, "httplimit: a limiter failed", "policy", rt.name, "limiter", resultLabels[d.end], "error", d.err)
		status := http.StatusInternalServerError
		if errors.Is(d.err, net.ErrClosed) {
			status = http.StatusServiceUnavailable // somebody is shutting down
		}
		http.Error(w, http.StatusText(status), status)
	default:
		if wait, ok := d.lease.RetryAfter(); ok {
			l.retry.set(w.Header(), wait)
		}
		hook := rt.hooks[d.end]
		if hook == nil {
			w.WriteHeader(l.options.StatusCode)
			return
		}
		s := l.writers.wrap(w, l.options.StatusCode)
		defer l.writers.finish(s)
		hook(s, r, d.lease)
	}
}

// outOfTime answers a request whose context has ended. Where that was a
// deadline, of some other middleware, the client is still there and must not
// take for a success what nobody served. Else it has gone.
func outOfTime(w http.ResponseWriter, r *http.Request) {
	if errors.Is(r.Context().Err(), context.DeadlineExceeded) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func (l *Limits) debug(rt *route, r *http.Request, d denial) {
	logger, ctx := l.options.Logger, r.Context()
	if logger == nil || !logger.Enabled(ctx, slog.LevelDebug) {
		return
	}
	logger.DebugContext(ctx, "httplimit: request refused",
		"policy", rt.name, "result", resultLabels[d.end], "reason", d.lease.Reason(), "error", d.err)
}

// retryValues keeps values of Retry-After, since most denials of a while have
// the same or a few; BenchmarkDenied shows that they cost nothing.
type retryValues [256]atomic.Pointer[retryValue]

type retryValue struct {
	seconds int64
	header  []string
}

// set sets Retry-After, in whole seconds rounded up. Headers share the slice,
// which is safe as long as nobody writes into it: Set and Add do not.
func (v *retryValues) set(h http.Header, wait time.Duration) {
	seconds := int64(wait / time.Second)
	if wait%time.Second > 0 {
		seconds++
	}
	slot := &v[uint64(seconds)%uint64(len(v))]
	value := slot.Load()
	if value == nil || value.seconds != seconds {
		value = &retryValue{seconds, []string{strconv.FormatInt(seconds, 10)}}
		slot.Store(value)
	}
	h["Retry-After"] = value.header
}
