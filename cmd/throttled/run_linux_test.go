package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// anyPort are flags for a gateway that takes no fixed port. Without a file the
// engine adapts to the load, which a busy test machine must not be held to, so
// the tests stay below the burst of 64.
var anyPort = []string{"--udp", "127.0.0.1:0=echo", "--tcp", "127.0.0.1:0=echo", "--admin", "127.0.0.1:0"}

func startAnyPort(t *testing.T, args ...string) *gateway {
	t.Helper()
	return start(t, append(args, anyPort...)...)
}

// The names that users of the report rely on.
const (
	reportNames = "UtcNow CapacityTokens RefillPerSecond TokenScale Shards HardLockoutSeconds StaleEntrySeconds " +
		"CleanupIntervalSecs MaxTrackedEndpoints TrackedEndpoints PeakTrackedEndpoints HardBlockedCount SoftWarningCount " +
		"TotalCleaned RefillRatio Evaluated Allowed SoftThrottled HardLocked Lockouts Overflowed Invalid Evicted Policies Top Listeners"
	topNames      = "Endpoint Policy Tokens SoftViolations LockedForMs Denied"
	listenerNames = "Name Protocol Listen Packets Bytes Forwarded Dropped WouldDrop SessionsActive SessionsRejected " +
		"ConnectionsActive UpstreamErrors"
)

func hasNames(t *testing.T, names string, object any) {
	t.Helper()
	got := []string{}
	for name := range object.(map[string]any) {
		got = append(got, name)
	}
	assert.ElementsMatch(t, strings.Fields(names), got)
}

func TestRunServesAndReports(t *testing.T) {
	t.Parallel()
	g := startAnyPort(t, "--report-every", "0")
	udp, tcp := dial(t, "udp", g.addr["udp:127.0.0.1:0"]), dial(t, "tcp", g.addr["tcp:127.0.0.1:0"])
	echoes(t, udp, "over UDP")
	echoes(t, tcp, "over TCP")
	for range 80 { // more than the burst
		_, err := udp.Write([]byte("flood"))
		require.NoError(t, err)
	}
	var report map[string]any
	require.Eventually(t, func() bool {
		_, report = get(t, g.admin, "/v1/report")
		return report["Evaluated"] == 82.0 && len(report["Top"].([]any)) == 1
	}, patience, 10*time.Millisecond)
	hasNames(t, reportNames, report)
	hasNames(t, topNames, report["Top"].([]any)[0])
	require.Len(t, report["Listeners"], 2)
	for i, network := range []string{"udp", "tcp"} {
		l := report["Listeners"].([]any)[i].(map[string]any)
		hasNames(t, listenerNames, l)
		assert.Equal(t, network, l["Protocol"])
		assert.Equal(t, g.addr[network+":127.0.0.1:0"], l["Listen"])
	}

	assert.Empty(t, g.lines(), "0 = never")
	g.signal(syscall.SIGUSR1)
	line := g.waitLines(1)
	hasNames(t, reportNames, line)
	assert.Equal(t, report["Listeners"].([]any)[0], line["Listeners"].([]any)[0], "the admin server and standard output tell the same")

	g.signal(syscall.SIGINT)
	g.ended(patience)
	last := g.waitLines(2)
	udpListener := last["Listeners"].([]any)[0].(map[string]any)
	dropped := 0.0
	for _, n := range udpListener["Dropped"].(map[string]any) {
		dropped += n.(float64)
	}
	assert.Equal(t, 81.0, udpListener["Packets"])
	assert.Equal(t, udpListener["Packets"], udpListener["Forwarded"].(float64)+dropped, "at rest all is accounted for")
	assert.Positive(t, dropped)
}

func TestRunReportsEachInterval(t *testing.T) {
	t.Parallel()
	g := startAnyPort(t, "--report-every", "30ms")
	g.waitLines(3)
	for _, line := range g.lines() {
		hasNames(t, reportNames, line)
	}
	g.signal(syscall.SIGINT)
	g.ended(patience)
}

func TestRunOfAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lines, token := filepath.Join(dir, "report.jsonl"), filepath.Join(dir, "token")
	require.NoError(t, os.WriteFile(lines, []byte("what was there before\n"), 0o600))
	require.NoError(t, os.WriteFile(token, []byte("s3cret\n"), 0o600))
	file := filepath.Join(dir, "throttled.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
admin: {listen: 127.0.0.1:0, token_file: `+token+`}
report: {every: 20ms, path: `+lines+`}
engine: {adaptive: {enabled: false}}
policies: [{name: three, capacity: 3, refill: 1/h, lockout: off}]
listeners: [{name: game, protocol: udp, listen: 127.0.0.1:0, upstream: echo, policy: three, tcp: {reject: rst}}]
`), 0o600))
	g := start(t, "-c", file, "--tcp", "127.0.0.1:0=echo")
	assert.Contains(t, g.waitLog("configuration")["warning"], "listeners[0].tcp: has no effect on a udp listener")
	game := dial(t, "udp", g.addr["game"])
	for range 3 {
		echoes(t, game, "x")
	}
	echoes(t, dial(t, "tcp", g.addr["tcp:127.0.0.1:0"]), "a listener of a flag beside that of the file")

	status, body := get(t, g.admin, "/v1/report")
	assert.Equal(t, 401, status)
	assert.Contains(t, body, "error")
	denied := run(t, nil, "report", "--admin", g.admin)
	assert.Equal(t, 1, denied.code)
	assert.Contains(t, denied.stderr, "a valid bearer token is needed")
	told := run(t, []string{"THROTTLED_TOKEN_FILE=" + token}, "report", "--admin", g.admin)
	assert.Equal(t, 0, told.code, told.stderr)
	var report map[string]any
	require.NoError(t, json.Unmarshal([]byte(told.stdout), &report))
	assert.Len(t, report["Policies"], 2)

	text := run(t, []string{"THROTTLED_ADMIN=" + g.admin}, "report", "--text", "--token-file", token)
	assert.Equal(t, 0, text.code, text.stderr)
	assert.Regexp(t, `^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] TokenBucketLimiter Status:\n`, text.stdout)
	assert.Regexp(t, `\ngame +udp +`+g.addr["game"]+` +3 +3 +0 +0 +1 +0\n`, text.stdout)

	g.signal(syscall.SIGINT)
	g.ended(patience)
	assert.Empty(t, g.lines(), "report lines go to the file alone")
	written, err := os.ReadFile(lines)
	require.NoError(t, err)
	rows := strings.Split(strings.TrimSpace(string(written)), "\n")
	assert.Equal(t, "what was there before", rows[0])
	require.Greater(t, len(rows), 1)
	for _, row := range rows[1:] {
		require.NoError(t, json.Unmarshal([]byte(row), &report))
	}
}

// An address that somebody has is named, and nothing else is left behind.
func TestRunOnATakenAddress(t *testing.T) {
	t.Parallel()
	first := startAnyPort(t)
	foreign, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer foreign.Close()
	for _, c := range []struct{ flag, addr string }{
		{"--udp", first.addr["udp:127.0.0.1:0"]},
		{"--tcp", first.addr["tcp:127.0.0.1:0"]},
		{"--tcp", foreign.Addr().String()},
	} {
		second := run(t, nil, "run", "--admin", "off", c.flag, c.addr+"=echo")
		assert.Equal(t, 1, second.code, second.stderr)
		assert.Contains(t, second.stderr, "throttled: ", c)
		assert.Contains(t, second.stderr, c.addr)
		assert.Empty(t, second.stdout, "no report of a gateway that never was")
	}
	second := run(t, nil, "run", "--admin", first.admin, "--udp", "127.0.0.1:0=echo")
	assert.Equal(t, 1, second.code)
	assert.Contains(t, second.stderr, first.admin)
	assert.Contains(t, second.stderr, "address already in use")
	echoes(t, dial(t, "udp", first.addr["udp:127.0.0.1:0"]), "the first one is not disturbed")
	first.running()
}

// C86
func TestRunAgainAtOnceAfterAKill(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "admin.sock")
	first := start(t, "--udp", "127.0.0.1:0=echo", "--tcp", "127.0.0.1:0=echo", "--admin", "unix:"+socket)
	udp, tcp := first.addr["udp:127.0.0.1:0"], first.addr["tcp:127.0.0.1:0"]
	echoes(t, dial(t, "udp", udp), "x")
	for range 10 {
		echoes(t, dial(t, "tcp", tcp), "still open when it dies")
	}
	first.signal(syscall.SIGKILL)
	<-first.exit

	second := start(t, "--udp", udp+"=echo", "--tcp", tcp+"=echo", "--admin", "unix:"+socket)
	echoes(t, dial(t, "udp", udp), "again")
	echoes(t, dial(t, "tcp", tcp), "again")

	// The same after an end in order, which leaves sockets in TIME_WAIT.
	second.signal(syscall.SIGINT)
	second.ended(patience)
	third := start(t, "--udp", udp+"=echo", "--tcp", tcp+"=echo", "--admin", "unix:"+socket)
	echoes(t, dial(t, "tcp", tcp), "again")
	third.running()
}

func TestRunShowsMetrics(t *testing.T) {
	t.Parallel()
	g := startAnyPort(t, "--report-every", "0")
	echoes(t, dial(t, "udp", g.addr["udp:127.0.0.1:0"]), "over UDP")
	echoes(t, dial(t, "tcp", g.addr["tcp:127.0.0.1:0"]), "over TCP")
	for _, want := range []string{
		`throttled_packets_total{direction="in",listener="udp:127.0.0.1:0"} 1`,
		`throttled_packets_total{direction="out",listener="udp:127.0.0.1:0"} 1`,
		`throttled_bytes_total{direction="out",listener="tcp:127.0.0.1:0"} 8`,
		`throttled_sessions_active{listener="udp:127.0.0.1:0"} 1`,
		`throttled_connections_active{listener="tcp:127.0.0.1:0"} 1`,
		"throttled_config_reload_success 1",
	} {
		require.Eventually(t, func() bool {
			return strings.Contains("\n"+fetch(t, g.admin, "/metrics"), "\n"+want+"\n")
		}, patience, 10*time.Millisecond, want)
	}
}
