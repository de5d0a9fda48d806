package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const rules = `
admin: {listen: 127.0.0.1:0}
report: {every: 0s}
engine: {adaptive: {enabled: false}}
deny: [127.0.0.6]
policies:
  - {name: default, capacity: 5, refill: 1/h, violations: {max: 2}, lockout: {base: 1h}}
  - {name: status, capacity: 2, refill: 1/h, violations: {max: 2}, lockout: {base: 1h}, dry_run: true}
listeners:
  - {name: u, protocol: udp, listen: 127.0.0.1:0, upstream: echo, opcodes: {policies: {0x54: status}},
     udp: {max_reply_ratio: 0.5, lockout_requires: established}}
  - {name: trial, protocol: udp, listen: 127.0.0.1:0, upstream: echo, dry_run: true}
`

// has waits until a metric of the gateway has a value.
func (g *gateway) has(line string) {
	g.t.Helper()
	require.Eventually(g.t, func() bool {
		return strings.Contains(fetch(g.t, g.admin, "/metrics"), line+"\n")
	}, patience, 5*time.Millisecond, line)
}

// C96, C112, C113: a policy for status requests that is a dry run beside one in
// force, and a listener that is one; whoever asks learns which is which.
func TestRulesOfTheFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "throttled.yaml")
	require.NoError(t, os.WriteFile(file, []byte(rules), 0o600))
	g := start(t, "-c", file)
	client := from(t, "127.0.0.2", g.addr["u"])
	_, err := client.Write([]byte("first")) // whose answer is too long
	require.NoError(t, err)
	g.has(`throttled_replies_suppressed_total{listener="u"} 1`)
	echoes(t, client, "x")
	for range 6 {
		echoes(t, client, "Tell me")
	}
	echoes(t, client, "not of those requests")
	g.isDropped(from(t, "127.0.0.6", g.addr["u"]))
	g.has(`throttled_dropped_total{listener="u",reason="denied"} 1`)
	g.has(`throttled_would_drop_total{listener="u",reason="soft_throttle"} 1`)
	g.has(`throttled_would_drop_total{listener="u",reason="hard_lockout"} 3`)
	assert.Regexp(t, `(?m)^127\.0\.0\.2 +lockout +(1h0m0s|59m\d+s) +status +dry run: it passes$`, g.ask("bans"))
	explained := g.ask("explain", "127.0.0.2")
	assert.Regexp(t, `(?m)^default +2/5 .* passes \(bucket\)$`, explained)
	assert.Regexp(t, `(?m)^status +0/2 .* passes in a dry run, else hard_lockout for (1h0m0s|59m\d+s) \(lockout\)$`, explained)

	denied := from(t, "127.0.0.6", g.addr["trial"])
	for range 3 {
		echoes(t, denied, "let through")
	}
	g.has(`throttled_would_drop_total{listener="trial",reason="denied"} 3`)
	text := g.ask("report", "--text")
	assert.Regexp(t, `(?m)^  status \(dry run\) `, text)
	assert.Regexp(t, `(?m)^  127\.0\.0\.2 +status \(dry run\) `, text)
	assert.Regexp(t, `(?m)^trial +udp +127\.0\.0\.1:\d+ +3 +3 +0 +3 `, text)
	_, report := get(t, g.admin, "/v1/report")
	assert.Equal(t, true, report["Top"].([]any)[0].(map[string]any)["DryRun"])
	_, tree := get(t, g.admin, "/v1/config")
	assert.Equal(t, map[string]any{"offset": 0.0, "size": 1.0, "policies": map[string]any{"0x54": "status"}},
		tree["listeners"].([]any)[0].(map[string]any)["opcodes"])

	// In earnest from now on, with the lockout that there is.
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(rules, "1h}, dry_run: true", "1h}", 1)), 0o600))
	g.ask("reload")
	_, err = from(t, "127.0.0.2", g.addr["u"]).Write([]byte("Tell me"))
	require.NoError(t, err)
	g.has(`throttled_dropped_total{listener="u",reason="hard_lockout"} 1`)
	assert.Regexp(t, `(?m)^127\.0\.0\.2 +lockout +(1h0m0s|59m\d+s) +status *$`, g.ask("bans"))
}

// A dry run that goes from a listener to its policy and back drops nothing on the
// way, whoever sends meanwhile.
func TestDryRunMovesToThePolicy(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "throttled.yaml")
	write := func(listener bool) {
		require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
admin: {listen: 127.0.0.1:0}
report: {every: 0s}
deny: [127.0.0.6]
policies:
  - {name: default, dry_run: %v}
  - {name: other, dry_run: %[1]v}
listeners:
  - {name: u, protocol: udp, listen: 127.0.0.1:0, upstream: echo, dry_run: %v}
  - {name: o, protocol: udp, listen: 127.0.0.1:0, upstream: echo, policy: other, dry_run: %[2]v}
`, !listener, listener), 0o600))
	}
	write(true)
	g := start(t, "-c", file)
	var senders sync.WaitGroup
	stop := make(chan struct{})
	for _, name := range []string{"u", "o"} {
		c := from(t, "127.0.0.6", g.addr[name])
		senders.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = c.Write([]byte("denied"))
				}
			}
		})
	}
	for i := range 20 {
		write(i%2 == 1)
		g.ask("reload")
	}
	close(stop)
	senders.Wait()
	for _, name := range []string{"u", "o"} {
		assert.NotContains(t, g.listener(name)["Dropped"], "denied")
		assert.Greater(t, g.listener(name)["WouldDrop"].(map[string]any)["denied"], 100.0)
	}
}
