package admin

import (
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
)

func newEngine(t *testing.T, c engine.Config) *engine.Engine {
	t.Helper()
	c.Load = engine.NoLoad
	e, err := engine.New(c)
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	return e
}

// serve starts a server for the time of a test.
func serve(t *testing.T, c Config) *Server {
	t.Helper()
	if c.Report == nil {
		c.Report = func() any { return map[string]int{"Evaluated": 7} }
	}
	if c.Config == nil {
		c.Config = func() any { return map[string]int{"config": 1} }
	}
	if c.Engine == nil {
		c.Engine = newEngine(t, engine.Config{})
	}
	if c.Save == nil {
		c.Save = func() error { return nil }
	}
	if c.Token == nil {
		c.Token = func() string { return "" }
	}
	if c.Token == nil {
		c.Token = token("")
	}
	if c.Ready == nil {
		c.Ready = func() bool { return true }
	}
	c.Logger = slog.New(slog.DiscardHandler)
	s, err := Listen(c)
	require.NoError(t, err)
	s.Serve()
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

func token(s string) func() string { return func() string { return s } }

// hello stands for what others have to say.
var hello = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	answer(w, http.StatusOK, map[string]string{"hello": r.URL.Path})
})

type reply struct {
	status int
	header http.Header
	body   map[string]any
}

// ask sends a request and wants JSON back.
func ask(t *testing.T, s *Server, method, path string, change func(*http.Request)) reply {
	t.Helper()
	r, err := http.NewRequest(method, "http://"+s.Addr()+path, nil)
	require.NoError(t, err)
	if change != nil {
		change(r)
	}
	answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	assert.Equal(t, "application/json", answer.Header.Get("Content-Type"))
	got := reply{status: answer.StatusCode, header: answer.Header}
	require.NoError(t, json.Unmarshal(body, &got.body), "%s", body)
	return got
}

func TestRoutes(t *testing.T) {
	var ready atomic.Bool
	ready.Store(true)
	s := serve(t, Config{Listen: "127.0.0.1:0", Ready: ready.Load, Handlers: map[string]http.Handler{"GET /metrics": hello}})

	for _, c := range []struct {
		method, path string
		status       int
		body         map[string]any
		allow        string
	}{
		{"GET", "/livez", 200, map[string]any{"status": "ok"}, ""},
		{"GET", "/readyz", 200, map[string]any{"status": "ok"}, ""},
		{"GET", "/v1/report", 200, map[string]any{"Evaluated": 7.0}, ""},
		{"GET", "/v1/config", 200, map[string]any{"config": 1.0}, ""},
		{"GET", "/x", 404, map[string]any{"error": "not found"}, ""},
		{"POST", "/", 405, map[string]any{"error": "method not allowed"}, "GET, HEAD"},
		{"GET", "/v1/report/x", 404, map[string]any{"error": "not found"}, ""},
		{"GET", "/metrics", 200, map[string]any{"hello": "/metrics"}, ""},
		{"POST", "/metrics", 405, map[string]any{"error": "method not allowed"}, "GET, HEAD"},
		{"POST", "/v1/report", 405, map[string]any{"error": "method not allowed"}, "GET, HEAD"},
		{"POST", "/v1/config", 405, map[string]any{"error": "method not allowed"}, "GET, HEAD"},
		{"DELETE", "/v1/endpoints", 405, map[string]any{"error": "method not allowed"}, "GET, HEAD"},
		{"PUT", "/v1/bans", 405, map[string]any{"error": "method not allowed"}, "DELETE, GET, HEAD, POST"},
		{"GET", "/v1/bans/192.0.2.1", 405, map[string]any{"error": "method not allowed"}, "DELETE"},
		{"DELETE", "/livez", 405, map[string]any{"error": "method not allowed"}, "GET, HEAD"},
	} {
		got := ask(t, s, c.method, c.path, nil)
		assert.Equal(t, c.status, got.status, "%s %s", c.method, c.path)
		assert.Equal(t, c.body, got.body, "%s %s", c.method, c.path)
		assert.Equal(t, c.allow, got.header.Get("Allow"), "%s %s", c.method, c.path)
	}

	ready.Store(false)
	got := ask(t, s, "GET", "/readyz", nil)
	assert.Equal(t, 503, got.status)
	assert.Equal(t, map[string]any{"error": "draining"}, got.body)
	assert.Equal(t, 200, ask(t, s, "GET", "/livez", nil).status, "it lives while it drains")
}

func TestReportThatIsNoJSON(t *testing.T) {
	s := serve(t, Config{Listen: "127.0.0.1:0", Report: func() any { return func() {} }})
	got := ask(t, s, "GET", "/v1/report", nil)
	assert.Equal(t, 500, got.status)
	assert.Contains(t, got.body, "error")
}

// C119
func TestToken(t *testing.T) {
	s := serve(t, Config{Listen: "127.0.0.1:0", Token: token("s3cret"), Handlers: map[string]http.Handler{"GET /metrics": hello}})
	bearer := func(header string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", header) }
	}
	for _, path := range []string{"/v1/report", "/metrics", "/", "/v1/bans", "/v1/endpoints", "/v1/endpoints/192.0.2.1", "/v1/config", "/v1/x"} {
		for _, header := range []string{"", "s3cret", "Bearer", "Bearer ", "Bearer s3cre", "Bearer s3cret2", "Basic s3cret"} {
			got := ask(t, s, "GET", path, bearer(header))
			assert.Equal(t, 401, got.status, "%s %q", path, header)
			assert.Equal(t, "Bearer", got.header.Get("WWW-Authenticate"))
			assert.Equal(t, map[string]any{"error": "a valid bearer token is needed"}, got.body)
		}
	}
	assert.Equal(t, 200, ask(t, s, "GET", "/livez", nil).status)
	assert.Equal(t, 200, ask(t, s, "GET", "/readyz", nil).status)
	assert.Equal(t, 200, ask(t, s, "GET", "/v1/report", bearer("Bearer s3cret")).status)
	assert.Equal(t, 200, ask(t, s, "GET", "/v1/report", bearer("bearer  s3cret")).status)
	assert.Equal(t, 401, ask(t, s, "POST", "/v1/bans", nil).status)
	assert.Equal(t, 401, ask(t, s, "DELETE", "/v1/bans/192.0.2.1", nil).status)
	assert.Equal(t, 200, ask(t, s, "GET", "/v1/bans", bearer("Bearer s3cret")).status)
	assert.Equal(t, 404, ask(t, s, "GET", "/v1/x", bearer("Bearer s3cret")).status)
}

// A browser gets the page, which asks for the token, and no more than that.
func TestPage(t *testing.T) {
	get := func(s *Server, token string) *http.Response {
		r, err := http.NewRequest("GET", "http://"+s.Addr()+"/", nil)
		require.NoError(t, err)
		r.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
		require.NoError(t, err)
		t.Cleanup(func() { answer.Body.Close() })
		assert.Equal(t, "text/html; charset=utf-8", answer.Header.Get("Content-Type"))
		return answer
	}
	assert.Equal(t, 200, get(serve(t, Config{Listen: "127.0.0.1:0"}), "").StatusCode)
	guarded := serve(t, Config{Listen: "127.0.0.1:0", Token: token("s3cret")})
	assert.Equal(t, 401, get(guarded, "").StatusCode)
	assert.Equal(t, 401, get(guarded, "wrong").StatusCode)
	assert.Equal(t, 200, get(guarded, "s3cret").StatusCode)
}

// A page of another site may send what needs no leave of ours; it changes nothing.
func TestOtherSites(t *testing.T) {
	s := serve(t, Config{Listen: "127.0.0.1:0", Drain: func() time.Duration { return time.Minute }})
	from := func(site, origin string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", site)
			r.Header.Set("Origin", origin)
		}
	}
	assert.Equal(t, 403, ask(t, s, "POST", "/v1/drain", from("cross-site", "https://evil.example")).status)
	assert.Equal(t, 403, ask(t, s, "POST", "/v1/drain", from("same-site", "http://127.0.0.1:1")).status)
	assert.Equal(t, 403, ask(t, s, "POST", "/v1/drain", func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:1") }).status, "an older browser")
	assert.Equal(t, 202, ask(t, s, "POST", "/v1/drain", from("same-origin", "http://"+s.Addr())).status)
	assert.Equal(t, 202, ask(t, s, "POST", "/v1/drain", nil).status, "the command line")
}

// A page whose name leads to 127.0.0.1 sends its own name as Host.
func TestHostOfAnotherMachine(t *testing.T) {
	host := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	open := serve(t, Config{Listen: "127.0.0.1:0"})
	for _, name := range []string{"evil.example", "evil.example:9190", "192.0.2.1", "localhost.evil.example", "127.0.0.1.evil.example"} {
		got := ask(t, open, "GET", "/v1/report", host(name))
		assert.Equal(t, 403, got.status, name)
		assert.Contains(t, got.body, "error")
	}
	for _, name := range []string{"localhost", "LocalHost:1", "127.0.0.1", "127.1.2.3:9", "[::1]", "[::1]:9", "[::ffff:127.0.0.1]:9"} {
		assert.Equal(t, 200, ask(t, open, "GET", "/v1/report", host(name)).status, name)
	}
	c, err := net.Dial("tcp", open.Addr())
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Write([]byte("GET /livez HTTP/1.0\r\n\r\n"))
	require.NoError(t, err)
	answer, err := io.ReadAll(c)
	require.NoError(t, err)
	assert.Contains(t, string(answer), "HTTP/1.0 200 OK", "a health check without a Host")
	guarded := serve(t, Config{Listen: "127.0.0.1:0", Token: token("x")})
	assert.Equal(t, 200, ask(t, guarded, "GET", "/v1/report", func(r *http.Request) {
		r.Host = "gateway.example"
		r.Header.Set("Authorization", "Bearer x")
	}).status)
}

func TestAddressInUse(t *testing.T) {
	s := serve(t, Config{Listen: "127.0.0.1:0"})
	_, err := Listen(Config{Listen: s.Addr(), Logger: slog.New(slog.DiscardHandler)})
	require.ErrorContains(t, err, "admin: listen tcp "+s.Addr())
	assert.ErrorContains(t, err, "address already in use")
}

func TestCloseWithoutServeFreesTheAddress(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	s, err := Listen(Config{Listen: "127.0.0.1:0", Logger: log})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	again, err := Listen(Config{Listen: s.Addr(), Logger: log})
	require.NoError(t, err)
	require.NoError(t, again.Close())
}

// A client that never ends its request does not hold up the end.
func TestCloseWithAStuckClient(t *testing.T) {
	s, err := Listen(Config{Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	s.Serve()
	c, err := net.Dial("tcp", s.Addr())
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Write([]byte("GET /livez HTTP/1.1\r\nHost: localhost\r\nX-"))
	require.NoError(t, err)
	start := time.Now()
	require.NoError(t, s.Close())
	assert.Less(t, time.Since(start), 4*time.Second)
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	s := serve(t, Config{Listen: "unix:" + path})
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	body, err := Client{Address: "unix:" + path}.Get("/v1/report")
	require.NoError(t, err)
	assert.JSONEq(t, `{"Evaluated": 7}`, string(body))

	_, err = Listen(Config{Listen: "unix:" + path})
	require.ErrorContains(t, err, "address already in use")
	_, err = Client{Address: "unix:" + path}.Get("/v1/report")
	require.NoError(t, err, "the attempt has harmed the first one")
	require.NoError(t, s.Close())
	assert.NoFileExists(t, path)
}

func TestUnixSocketThatWasReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	first := serve(t, Config{Listen: "unix:" + path})
	require.NoError(t, os.Remove(path))
	serve(t, Config{Listen: "unix:" + path})
	require.NoError(t, first.Close())
	_, err := Client{Address: "unix:" + path}.Get("/v1/report")
	require.NoError(t, err, "the first one has taken the socket of the second with it")
}

func TestUnixSocketThatWasLeftBehind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	require.FileExists(t, path)
	serve(t, Config{Listen: "unix:" + path})

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte("precious"), 0o600))
	_, err = Listen(Config{Listen: "unix:" + file})
	require.ErrorContains(t, err, "a file that is no socket is in the way")
	assert.FileExists(t, file)
}

func TestClient(t *testing.T) {
	s := serve(t, Config{Listen: "127.0.0.1:0", Token: token("s3cret")})
	body, err := Client{Address: s.Addr(), Token: "s3cret"}.Get("/v1/report")
	require.NoError(t, err)
	assert.JSONEq(t, `{"Evaluated": 7}`, string(body))

	_, err = Client{Address: s.Addr()}.Get("/v1/report")
	assert.EqualError(t, err, "admin: "+s.Addr()+" answers 401 Unauthorized: a valid bearer token is needed; --token-file names the file that has it")
	_, err = Client{Address: "127.0.0.1:1"}.Get("/v1/report")
	assert.ErrorContains(t, err, "admin: no gateway answers at 127.0.0.1:1 (--admin names another address): dial tcp")

	other, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer other.Close()
	go http.Serve(other, http.NotFoundHandler())
	_, err = Client{Address: other.Addr().String()}.Get("/v1/report")
	assert.ErrorContains(t, err, "404 Not Found: not an answer of throttled")
}

func TestParseAddress(t *testing.T) {
	for _, s := range []string{"localhost:9190", "[::1]:1", "gateway.example:9190", "unix:/run/x"} {
		got, err := ParseAddress(s)
		require.NoError(t, err)
		assert.Equal(t, s, got)
	}
	for _, s := range []string{"", "off", "unix:", "localhost", "localhost:", "::1:9"} {
		_, err := ParseAddress(s)
		assert.ErrorContains(t, err, "allowed: host:port or unix:PATH", s)
	}
}
