package httplimit

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/policy/limiter"
)

// What a hook does with its ResponseWriter, and what comes of it.
func TestWhatAHookWrites(t *testing.T) {
	for _, tc := range []struct {
		name string
		hook func(t *testing.T, w http.ResponseWriter)
		code int
		body string
	}{
		{"nothing", func(*testing.T, http.ResponseWriter) {}, 429, ""},
		{"a body", func(t *testing.T, w http.ResponseWriter) {
			n, err := w.Write([]byte("slow down"))
			assert.Equal(t, 9, n)
			assert.NoError(t, err)
		}, 429, "slow down"},
		{"text", func(t *testing.T, w http.ResponseWriter) {
			_, isString := w.(io.StringWriter)
			assert.True(t, isString)
			_, err := io.WriteString(w, "slow down")
			assert.NoError(t, err)
		}, 429, "slow down"},
		{"from a reader", func(t *testing.T, w http.ResponseWriter) {
			n, err := w.(io.ReaderFrom).ReadFrom(strings.NewReader("slow down"))
			assert.Equal(t, int64(9), n)
			assert.NoError(t, err)
		}, 429, "slow down"},
		{"flush", func(_ *testing.T, w http.ResponseWriter) { w.(http.Flusher).Flush() }, 429, ""},
		{"flush by controller", func(t *testing.T, w http.ResponseWriter) {
			assert.NoError(t, http.NewResponseController(w).Flush())
		}, 429, ""},
		{"a status", func(_ *testing.T, w http.ResponseWriter) { w.WriteHeader(418) }, 418, ""},
		{"a status and a body", func(_ *testing.T, w http.ResponseWriter) {
			w.WriteHeader(418)
			_, _ = w.Write([]byte("short and stout"))
		}, 418, "short and stout"},
		{"200", func(_ *testing.T, w http.ResponseWriter) { w.WriteHeader(200) }, 200, ""},
		{"http.Error", func(_ *testing.T, w http.ResponseWriter) { http.Error(w, "no", http.StatusServiceUnavailable) }, 503, "no\n"},
		{"an early hint, and no status", func(_ *testing.T, w http.ResponseWriter) {
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
		}, 429, ""},
		{"a status and then a panic", func(_ *testing.T, w http.ResponseWriter) {
			w.WriteHeader(418)
			panic(http.ErrAbortHandler)
		}, 0, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLimits(t, Options{Global: spent(t), OnRejected: func(w http.ResponseWriter, _ *http.Request, _ limiter.Lease) {
				tc.hook(t, w)
			}})
			server := httptest.NewServer(l.Wrap(new(page)))
			defer server.Close()
			client := http.Client{Timeout: 10 * time.Second}
			response, err := client.Get(server.URL)
			if tc.code == 0 { // aborted
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			assert.Equal(t, tc.code, response.StatusCode)
			assert.Equal(t, tc.body, string(body))
			assert.Equal(t, []string{"10"}, response.Header["Retry-After"])
		})
	}
}

// A hook may take the connection: to close it, or to hold it.
func TestHookHijacks(t *testing.T) {
	l := newLimits(t, Options{Global: spent(t), OnRejected: func(w http.ResponseWriter, _ *http.Request, _ limiter.Lease) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if assert.NoError(t, err) {
			_, _ = io.WriteString(conn, "mine now\n")
			_ = conn.Close()
		}
	}})
	var complaints bytes.Buffer // of a status written to a connection that is not the server's
	wrapped, done := l.Wrap(new(page)), make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(done)
		wrapped.ServeHTTP(w, r)
	}))
	server.Config.ErrorLog = log.New(&complaints, "", 0)
	server.Start()
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	line, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "mine now\n", line)
	<-done
	assert.Empty(t, complaints.String())
}

// A bare ResponseWriter can do nothing else.
type bare struct {
	header http.Header
	status int
}

func (b *bare) Header() http.Header         { return b.header }
func (b *bare) Write(p []byte) (int, error) { return len(p), nil }
func (b *bare) WriteHeader(status int)      { b.status = status }

func TestHookOfABareWriter(t *testing.T) {
	l := newLimits(t, Options{Global: spent(t), OnRejected: func(w http.ResponseWriter, _ *http.Request, _ limiter.Lease) {
		_, _, err := w.(http.Hijacker).Hijack()
		assert.True(t, errors.Is(err, http.ErrNotSupported))
		w.(http.Flusher).Flush()
		assert.ErrorIs(t, http.NewResponseController(w).Flush(), http.ErrNotSupported)
		assert.ErrorIs(t, http.NewResponseController(w).SetReadDeadline(time.Time{}), http.ErrNotSupported)
	}})
	w := &bare{header: http.Header{}}
	l.Wrap(new(page)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	assert.Equal(t, http.StatusTooManyRequests, w.status)
}
