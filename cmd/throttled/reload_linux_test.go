package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// post sends an empty request to the admin server.
func (g *gateway) post(path string) (status int, body map[string]any) {
	g.t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	answer, err := client.Post("http://"+g.admin+path, "", nil)
	require.NoError(g.t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(g.t, err)
	require.NoError(g.t, json.Unmarshal(text, &body), "%s", text)
	return answer.StatusCode, body
}

// listener is what the report says of one, nil where there is none.
func (g *gateway) listener(name string) map[string]any {
	g.t.Helper()
	_, report := get(g.t, g.admin, "/v1/report")
	for _, l := range report["Listeners"].([]any) {
		if l := l.(map[string]any); l["Name"] == name {
			return l
		}
	}
	return nil
}

// configuration is the configuration that runs.
func (g *gateway) configuration() string {
	g.t.Helper()
	return fetch(g.t, g.admin, "/v1/config")
}

func (g *gateway) reloadSuccess() string {
	g.t.Helper()
	return regexp.MustCompile(`(?m)^throttled_config_reload_success (\d)$`).FindStringSubmatch(fetch(g.t, g.admin, "/metrics"))[1]
}

// rewrite writes the file of a gateway with the listener u and what else there is.
func (c configFile) rewrite(t *testing.T, policies, listeners, more string) {
	t.Helper()
	require.NoError(t, os.WriteFile(c.path, []byte(`
admin: {listen: 127.0.0.1:0}
report: {every: 0s}
engine: {adaptive: {enabled: false}}
policies: [`+policies+`]
listeners: [{name: u, protocol: udp, listen: 127.0.0.1:0, upstream: echo}`+listeners+`]
`+strings.ReplaceAll(more, "DIR", c.dir)), 0o600))
}

const five = "{name: default, capacity: 5, refill: 1/h, violations: {max: 2}, lockout: {base: 1h}}"

// Everything that can change does, by all three ways, and who is locked out stays
// so: C98, C43.
func TestReload(t *testing.T) {
	t.Parallel()
	c := newConfig(t, "")
	g := start(t, "-c", c.path)
	honest, bad := from(t, "127.0.0.2", g.addr["u"]), from(t, "127.0.0.3", g.addr["u"])
	for range 4 {
		echoes(t, honest, "x")
	}
	for range 5 {
		echoes(t, bad, "x")
	}
	g.isDropped(bad)
	g.isDropped(bad)

	assert.Equal(t, "the configuration is reloaded\n", g.ask("reload"), "the same file")
	echoes(t, honest, "the fifth")
	g.isDropped(honest) // and no sixth
	assert.Regexp(t, `127\.0\.0\.3 +lockout +(1h0m0s|59m)`, g.ask("bans"))

	c.rewrite(t, "{name: default, capacity: 50, refill: 40/s, lockout: {base: 1m}}, {name: other, capacity: 9}",
		", {name: new, protocol: tcp, listen: 127.0.0.1:0, upstream: echo, policy: other}",
		"exempt: [127.0.0.4]\ndeny: [127.0.0.5]\ndrain: {grace: 7s}\n")
	status, answer := g.post("/v1/reload")
	assert.Equal(t, 200, status)
	assert.Equal(t, map[string]any{"warnings": []any{}}, answer)
	assert.Equal(t, "1", g.reloadSuccess())
	require.Eventually(t, func() bool { // the new rate holds at once, for time from here on
		_, err := honest.Write([]byte("x"))
		require.NoError(t, err)
		require.NoError(t, honest.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
		_, err = honest.Read(make([]byte, 1))
		return err == nil
	}, patience, time.Millisecond)
	assert.Regexp(t, `127\.0\.0\.3 +lockout +(1h0m0s|59m)`, g.ask("bans"), "a lockout ends when it would have ended")
	exempt, denied := from(t, "127.0.0.4", g.addr["u"]), from(t, "127.0.0.5", g.addr["u"])
	for range 100 {
		echoes(t, exempt, "x")
	}
	g.isDropped(denied)
	echoes(t, dial(t, "tcp", g.listener("new")["Listen"].(string)), "x")
	assert.Equal(t, "new", g.waitLog("listener added")["listener"])
	for _, part := range []string{`"capacity":50`, `"name":"other"`, `"exempt":["127.0.0.4/32"]`, `"grace":"7s"`, `"name":"new"`} {
		assert.Contains(t, g.configuration(), part)
	}

	c.rewrite(t, five, "", "")
	g.signal(syscall.SIGHUP)
	g.waitLog("listener removed")
	g.waitLogs("configuration reloaded", 3)
	assert.Nil(t, g.listener("new"))
	assert.NotContains(t, g.configuration(), "other")
	echoes(t, denied, "let in again")
	g.signal(syscall.SIGINT)
	g.ended(patience)
}

// C101: whatever is wrong with a file, nothing changes, and everybody hears why.
func TestReloadOfABrokenFile(t *testing.T) {
	t.Parallel()
	c := newConfig(t, "")
	g := start(t, "-c", c.path)
	u := dial(t, "udp", g.addr["u"])
	echoes(t, u, "x")
	before := g.configuration()
	c.rewrite(t, "{name: default, capacity: 0}", ", {name: t, protocol: tcp, listen: 127.0.0.1:0, upstream: x}", "")
	mistakes := []string{
		c.path + `:5:38: policies[0].capacity: 0 has no meaning here; allowed: 1 or more`,
		c.path + `:6:132: listeners[1].upstream: "x" is not an upstream; allowed: host:port, or echo`,
	}
	got := run(t, nil, "reload", "--admin", g.admin)
	assert.Equal(t, result{1, "", strings.Join(mistakes, "\n") + "\nthrottled: the configuration is not reloaded, what ran goes on\n"}, got)
	assert.Equal(t, "0", g.reloadSuccess())
	for i, line := range g.waitLogs("configuration", 2) {
		assert.Equal(t, mistakes[i], line["error"])
	}
	require.NoError(t, os.Remove(c.path))
	status, answer := g.post("/v1/reload")
	assert.Equal(t, 422, status)
	assert.Equal(t, map[string]any{"error": "config: open " + c.path + ": no such file or directory"}, answer)
	g.signal(syscall.SIGHUP)
	g.waitLogs("the configuration is not reloaded, what ran goes on", 3)

	assert.Equal(t, before, g.configuration())
	echoes(t, u, "it goes on")
	assert.Equal(t, 1.0, g.listener("u")["SessionsActive"])
	c.rewrite(t, five, "", "")
	g.ask("reload")
	assert.Equal(t, "1", g.reloadSuccess())
}

// An address that another process holds: nothing of the new file is in force.
func TestReloadWithAnAddressThatIsTaken(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	c := newConfig(t, "deny: [127.0.0.5]")
	g := start(t, "-c", c.path)
	before := g.configuration()
	c.rewrite(t, "{name: default, capacity: 60}, {name: more}", ", {name: free, protocol: udp, listen: 127.0.0.1:0, upstream: echo, policy: more}, "+
		"{name: t, protocol: tcp, listen: "+taken.Addr().String()+", upstream: echo}", "exempt: [127.0.0.5]")
	want := "listener t: tcp " + taken.Addr().String() + " is held by another process"
	status, answer := g.post("/v1/reload")
	assert.Equal(t, 422, status)
	assert.Contains(t, answer["error"], want)
	got := run(t, nil, "reload", "--admin", g.admin)
	assert.Equal(t, 1, got.code)
	assert.Contains(t, got.stderr, want)
	assert.Equal(t, before, g.configuration())
	assert.Len(t, g.addr, 1)
	assert.NotContains(t, g.ask("explain", "127.0.0.5"), "more")
	g.isDropped(from(t, "127.0.0.5", g.addr["u"]))
	require.NoError(t, taken.Close())
	g.ask("reload")
	echoes(t, dial(t, "tcp", g.listener("t")["Listen"].(string)), "x")
}

// What waits for a restart is named, and /v1/config shows what runs.
func TestReloadNamesWhatNeedsARestart(t *testing.T) {
	t.Parallel()
	c := newConfig(t, "")
	g := start(t, "-c", c.path)
	_, before := get(t, g.admin, "/v1/config")
	require.NoError(t, os.WriteFile(c.dir+"/token", []byte("s3cret"), 0o600))
	require.NoError(t, os.WriteFile(c.path, []byte(strings.ReplaceAll(`
admin: {listen: 127.0.0.1:1, token_file: DIR/token}
state: {path: DIR/state}
report: {every: 0s, path: DIR/report}
kernel_drop: socket
engine:
  {shards: 512, max_endpoints: 99, on_full: deny, stale_after: 1s, cleanup_interval: 1s,
   ipv4_prefix: 24, ipv6_prefix: 48, key_by_port: true, adaptive: {enabled: true}}
policies: [{name: default, capacity: 77}]
listeners: [{name: u, protocol: udp, listen: 127.0.0.1:0, upstream: echo, tcp: {}}]
`, "DIR", c.dir)), 0o600))
	got := run(t, nil, "reload", "--admin", g.admin)
	assert.Equal(t, 0, got.code, got.stderr)
	want := c.path + ":10:80: warning: listeners[0].tcp: has no effect on a udp listener\n"
	for _, key := range []string{"admin.listen", "state.path", "report.path", "engine.shards", "engine.max_endpoints", "engine.on_full",
		"engine.stale_after", "engine.cleanup_interval", "engine.ipv4_prefix", "engine.ipv6_prefix", "engine.key_by_port",
		"engine.adaptive", "kernel_drop", "admin.token_file"} {
		want += "throttled: warning: " + key + ": takes effect at a restart\n"
	}
	assert.Equal(t, want, got.stderr)
	assert.Len(t, g.waitLogs("configuration", 15), 15)
	_, after := get(t, g.admin, "/v1/config")
	assert.Equal(t, 77.0, after["policies"].([]any)[0].(map[string]any)["capacity"])
	delete(before, "policies")
	delete(after, "policies")
	assert.Equal(t, before, after)
}

// Listeners and values from the command line stay over the file, and a token is
// read again.
func TestReloadAndFlags(t *testing.T) {
	t.Parallel()
	c := newConfig(t, "")
	token := c.dir + "/token"
	require.NoError(t, os.WriteFile(token, []byte("first"), 0o600))
	g := start(t, "-c", c.path, "--token-file", token, "--grace", "9s", "--tcp", "127.0.0.1:0=echo")
	tcp := dial(t, "tcp", g.addr["tcp:127.0.0.1:0"])
	echoes(t, tcp, "x")
	old := c.dir + "/old"
	require.NoError(t, os.WriteFile(old, []byte("first"), 0o600))
	require.NoError(t, os.WriteFile(token, []byte("second"), 0o600))
	c.rewrite(t, five, "", "drain: {grace: 1h}\n")
	assert.Equal(t, 1, run(t, nil, "reload", "--admin", g.admin).code)
	assert.Equal(t, "the configuration is reloaded\n", g.ask("reload", "--token-file", old))
	assert.Equal(t, 1, run(t, nil, "reload", "--admin", g.admin, "--token-file", old).code, "a token that has gone")
	assert.Equal(t, "the configuration is reloaded\n", g.ask("reload", "--token-file", token))
	echoes(t, tcp, "the same connection")
	assert.Equal(t, "the gateway drains, for at most 9s\n", g.ask("drain", "--token-file", token))
	require.NoError(t, tcp.Close())
	g.ended(patience)
}

func TestReloadWithoutAFile(t *testing.T) {
	t.Parallel()
	g := startAnyPort(t)
	const why = "the gateway runs without a configuration file: there is nothing to read again"
	status, answer := g.post("/v1/reload")
	assert.Equal(t, 409, status)
	assert.Equal(t, map[string]any{"error": why}, answer)
	got := run(t, nil, "reload", "--admin", g.admin)
	assert.Equal(t, 1, got.code)
	assert.Contains(t, got.stderr, why)
	assert.Equal(t, "1", g.reloadSuccess(), "what was read last is in force")
}

// The report comes as often as the new file says.
func TestReloadOfTheReportInterval(t *testing.T) {
	t.Parallel()
	c := newConfig(t, "")
	g := start(t, "-c", c.path)
	text, err := os.ReadFile(c.path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(c.path, []byte(strings.Replace(string(text), "every: 0s", "every: 5ms", 1)), 0o600))
	assert.Empty(t, g.lines())
	g.ask("reload")
	g.waitLines(5)
	require.NoError(t, os.WriteFile(c.path, text, 0o600))
	g.ask("reload")
	require.Eventually(t, func() bool { // those that were on their way come first
		n := len(g.lines())
		g.ask("report")
		g.ask("report")
		return len(g.lines()) == n
	}, patience, time.Millisecond, "lines still come")
}

// The service manager hears of a reload, and of its end also where it failed.
func TestServiceManagerOfAReload(t *testing.T) {
	t.Parallel()
	m, c := newManager(t), newConfig(t, "")
	cmd := command("run", "-c", c.path)
	cmd.Env = append(cmd.Env, m.env)
	g := launch(t, cmd, nil)
	m.hears("READY=1")
	for _, content := range []string{"policies: [{name: more}]\n", "nonsense"} {
		require.NoError(t, os.WriteFile(c.path, fmt.Appendf(nil, "admin: {listen: 127.0.0.1:0}\nlisteners: [{name: u, protocol: udp, listen: 127.0.0.1:0, upstream: echo}]\n%s", content), 0o600))
		g.signal(syscall.SIGHUP)
		assert.NotEmpty(t, m.hears("RELOADING=1")["MONOTONIC_USEC"])
		m.hears("READY=1")
	}
}

// Where the descriptor limit is too low for the default caps, those who stay make
// room for those who come.
func TestReloadWithFewDescriptors(t *testing.T) {
	t.Parallel()
	c := newConfig(t, "")
	cmd := command("run", "-c", c.path)
	cmd.Args = append([]string{"sh", "-c", `ulimit -n 600 && exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	g := launch(t, cmd, nil)
	const lowered = "the descriptor limit (ulimit -n) is too low for a default: raise it, or write the cap that is enough"
	alone := g.waitLog(lowered)["value"].(float64)
	u := dial(t, "udp", g.addr["u"])
	echoes(t, u, "x")
	c.rewrite(t, five, ", {name: t, protocol: tcp, listen: 127.0.0.1:0, upstream: echo}", "")
	g.ask("reload")
	caps := g.waitLogs(lowered, 3)[1:]
	assert.Less(t, caps[0]["value"], alone)
	assert.Positive(t, caps[1]["value"])
	echoes(t, u, "it goes on")
	echoes(t, dial(t, "tcp", g.listener("t")["Listen"].(string)), "x")
	c.rewrite(t, five, "", "")
	g.ask("reload")
	assert.Equal(t, alone, g.waitLogs(lowered, 4)[3]["value"], "alone again")
}

// Fifty reloads with listeners that are replaced leave no goroutine and no
// descriptor behind.
func TestReloadLeavesNothing(t *testing.T) {
	t.Parallel()
	c := newConfig(t, "")
	g := start(t, "-c", c.path)
	reload := func(n int) {
		c.rewrite(t, "{name: default, capacity: 1000}", fmt.Sprintf(", {name: a, protocol: udp, listen: 127.0.0.1:0, upstream: echo, udp: {session_idle: %ds}}"+
			", {name: b, protocol: tcp, listen: 127.0.0.1:0, upstream: echo, tcp: {idle_timeout: %ds}}", n, n),
			"drain: {grace: 1s}\n")
		g.ask("reload")
		echoes(t, dial(t, "udp", g.listener("a")["Listen"].(string)), "x")
		echoes(t, dial(t, "tcp", g.listener("b")["Listen"].(string)), "x")
	}
	used := func(what string) (n float64) {
		line := regexp.MustCompile(`(?m)^` + what + ` (\S+)$`).FindStringSubmatch(fetch(t, g.admin, "/metrics"))
		_, err := fmt.Sscan(line[1], &n)
		require.NoError(t, err)
		return n
	}
	reload(1)
	goroutines, descriptors := used("go_goroutines"), used("process_open_fds")
	for n := range 50 {
		reload(n + 2)
	}
	require.Eventually(t, func() bool {
		return used("go_goroutines") <= goroutines+2 && used("process_open_fds") <= descriptors+2
	}, patience, 50*time.Millisecond, "goroutines %v -> %v, descriptors %v -> %v", goroutines, used("go_goroutines"), descriptors, used("process_open_fds"))
}
