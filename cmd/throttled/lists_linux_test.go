package main

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// from connects a UDP client that has another address of this machine.
func from(t *testing.T, source, addr string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(source)}}
	c, err := d.Dial("udp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// A config writes files for gateways with one UDP listener that is called u.
type configFile struct{ dir, path string }

func newConfig(t *testing.T, more string) configFile {
	t.Helper()
	dir := t.TempDir()
	c := configFile{dir, filepath.Join(dir, "throttled.yaml")}
	c.write(t, more)
	return c
}

func (c configFile) write(t *testing.T, more string) {
	t.Helper()
	require.NoError(t, os.WriteFile(c.path, []byte(`
admin: {listen: 127.0.0.1:0}
report: {every: 0s}
engine: {adaptive: {enabled: false}}
policies: [{name: default, capacity: 5, refill: 1/h, violations: {max: 2}, lockout: {base: 1h}}]
listeners: [{name: u, protocol: udp, listen: 127.0.0.1:0, upstream: echo}]
`+strings.ReplaceAll(more, "DIR", c.dir)), 0o600))
}

// ask runs a command that talks to the gateway, which must do it.
func (g *gateway) ask(args ...string) string {
	g.t.Helper()
	got := run(g.t, []string{"THROTTLED_ADMIN=" + g.admin}, args...)
	require.Equal(g.t, 0, got.code, "%v: %s", args, got.stderr)
	return got.stdout
}

// dropped is how many datagrams the listener u has dropped.
func (g *gateway) dropped() (n float64) {
	g.t.Helper()
	_, report := get(g.t, g.admin, "/v1/report")
	for _, count := range report["Listeners"].([]any)[0].(map[string]any)["Dropped"].(map[string]any) {
		n += count.(float64)
	}
	return n
}

// isDropped sends a datagram that must not arrive.
func (g *gateway) isDropped(c net.Conn) {
	g.t.Helper()
	before := g.dropped()
	_, err := c.Write([]byte("x"))
	require.NoError(g.t, err)
	require.Eventually(g.t, func() bool { return g.dropped() == before+1 }, patience, 5*time.Millisecond)
}

// C46, C56: the longest prefix wins, whatever the order in the file.
func TestListsOfTheFile(t *testing.T) {
	t.Parallel()
	c := newConfig(t, "deny: [127.0.0.0/29]\nexempt: [127.0.0.5, 127.0.1.0/24]\n")
	g := start(t, "-c", c.path)
	exempt, denied := from(t, "127.0.0.5", g.addr["u"]), from(t, "127.0.0.6", g.addr["u"])
	for range 20 { // far beyond the budget
		echoes(t, exempt, "x")
	}
	g.isDropped(denied)
	assert.Contains(t, g.ask("explain", "127.0.0.5"), "exempt 127.0.0.5/32 decides on 127.0.0.5\ndeny 127.0.0.0/29 holds it, too, and is overruled\n")
	assert.Contains(t, g.ask("explain", "127.0.0.6"), "deny 127.0.0.0/29 decides on 127.0.0.6\n")
	assert.Regexp(t, `(?m)^127\.0\.0\.0/29 +deny +no end`, g.ask("bans"))
	got := run(t, nil, "unban", "127.0.0.0/29", "--admin", g.admin)
	assert.Equal(t, 1, got.code)
	assert.Contains(t, got.stderr, "127.0.0.0/29 is denied by the configuration")
	g.isDropped(denied)

	// What is being served can be asked for, and is a file that can be served.
	_, tree := get(t, g.admin, "/v1/config")
	assert.Equal(t, []any{"127.0.0.5/32", "127.0.1.0/24"}, tree["exempt"])
	text, err := json.Marshal(tree)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(c.path, text, 0o600))
	assert.Equal(t, 0, run(t, nil, "check", "-c", c.path).code)
}

func TestBanCommands(t *testing.T) {
	t.Parallel()
	g := start(t, "-c", newConfig(t, "").path)
	client, other := from(t, "127.0.0.2", g.addr["u"]), from(t, "127.0.0.3", g.addr["u"])
	echoes(t, client, "x")
	assert.Equal(t, "127.0.0.2/32 is banned for 1h0m0s\n", g.ask("ban", "127.0.0.2", "--for", "1h", "--note", "port scan"))
	assert.Equal(t, "203.0.113.0/24 is banned until it is unbanned\n", g.ask("ban", "203.0.113.0/24"))
	g.isDropped(client)
	echoes(t, other, "is not banned")
	listed := g.ask("bans")
	assert.Regexp(t, `(?m)^127\.0\.0\.2/32 +ban +(1h0m0s|59m\d+s) +port scan$`, listed)
	assert.Regexp(t, `(?m)^203\.0\.113\.0/24 +ban +no end *$`, listed)
	assert.Regexp(t, `^ban 127\.0\.0\.2/32 decides on 127\.0\.0\.2, (1h0m0s|59m\d+s) left \(port scan\)\n`, g.ask("explain", "127.0.0.2"))

	assert.Equal(t, "127.0.0.2/32 is free\n", g.ask("unban", "127.0.0.2"))
	echoes(t, client, "again")
	got := run(t, []string{"THROTTLED_ADMIN=" + g.admin}, "unban", "127.0.0.2")
	assert.Equal(t, 1, got.code)
	assert.Contains(t, got.stderr, "there is no ban of 127.0.0.2/32 and no lockout")

	// A lockout is listed with its policy, explained, and lifted in the same way.
	for range 3 {
		echoes(t, client, "x")
	}
	g.isDropped(client)
	g.isDropped(client)
	listed = g.ask("bans")
	assert.Regexp(t, `(?m)^127\.0\.0\.2 +lockout +(1h0m0s|59m\d+s) +default *$`, listed)
	explained := g.ask("explain", "127.0.0.2")
	assert.True(t, strings.HasPrefix(explained, "127.0.0.2 is on no list: its policies decide\n"), explained)
	assert.Regexp(t, `(?m)^default +0/5 +- +0 +1 +(1h0m0s|59m\d+s) +hard_lockout for (1h0m0s|59m\d+s) \(lockout\)$`, explained)
	var x struct{ Policies []struct{ Rule string } }
	require.NoError(t, json.Unmarshal([]byte(g.ask("explain", "127.0.0.2", "--json")), &x))
	assert.Equal(t, "lockout", x.Policies[0].Rule)
	var b struct {
		LockedOut int `json:"locked_out"`
	}
	require.NoError(t, json.Unmarshal([]byte(g.ask("bans", "--json")), &b))
	assert.Equal(t, 1, b.LockedOut)
	assert.Equal(t, "127.0.0.2/32 is free\n", g.ask("unban", "127.0.0.2"))
	assert.Contains(t, g.ask("explain", "127.0.0.2"), "soft_throttle for ")
	banned := g.logged("banned")
	require.Len(t, banned, 2)
	assert.Equal(t, "1h0m0s", banned[0]["for"])
	assert.Equal(t, "until unban", banned[1]["for"])
	assert.Len(t, g.logged("unbanned"), 2)

	for _, command := range [][]string{{"bans"}, {"ban", "192.0.2.1"}, {"unban", "192.0.2.1"}, {"explain", "192.0.2.1"}} {
		got := run(t, []string{"THROTTLED_ADMIN=127.0.0.1:1"}, command...)
		assert.Equal(t, 1, got.code, command)
		assert.Contains(t, got.stderr, "no gateway answers at 127.0.0.1:1", command)
	}
}

// C42, C104: what was banned is banned after a kill right behind the answer; what
// the file denied goes with the file.
func TestStateAfterAKill(t *testing.T) {
	t.Parallel()
	c := newConfig(t, "state: {path: DIR/state, interval: 1h}\ndeny: [127.0.0.3]\n")
	first := start(t, "-c", c.path)
	first.ask("ban", "127.0.0.2", "--for", "1h", "--note", "scan")
	first.ask("ban", "127.0.0.4")
	first.ask("unban", "127.0.0.4")
	first.signal(syscall.SIGKILL)
	<-first.exit
	info, err := os.Stat(c.dir + "/state")
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())

	c.write(t, "state: {path: DIR/state, interval: 1h}\n")
	second := start(t, "-c", c.path)
	assert.Equal(t, 1.0, second.waitLog("state loaded")["bans"])
	assert.Regexp(t, `^Who.*\n127\.0\.0\.2/32 +ban +(1h0m0s|59m\d+s) +scan\n$`, second.ask("bans"))
	second.isDropped(from(t, "127.0.0.2", second.addr["u"]))
	echoes(t, from(t, "127.0.0.3", second.addr["u"]), "no longer denied")
	echoes(t, from(t, "127.0.0.4", second.addr["u"]), "not banned")
}

// waitFile waits until there is another file than was there before.
func waitFile(t *testing.T, path string, before os.FileInfo) (now os.FileInfo) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		now, err = os.Stat(path)
		return err == nil && (before == nil || !os.SameFile(now, before))
	}, patience, time.Millisecond)
	return now
}

// A lockout is no change of a ban: it is saved at the end, and at the beginning
// of a drain, which a SIGKILL may end.
func TestStateAtTheEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(g *gateway, file string){
		"SIGINT": func(g *gateway, _ string) { g.signal(syscall.SIGINT); g.ended(patience) },
		"SIGKILL in a drain": func(g *gateway, file string) {
			first := waitFile(g.t, file, nil)
			g.signal(syscall.SIGTERM)
			waitFile(g.t, file, first)
			g.signal(syscall.SIGKILL)
			<-g.exit
		},
	} {
		c := newConfig(t, "state: {path: DIR/state, interval: 1h}\n")
		first := start(t, "-c", c.path)
		client := from(t, "127.0.0.2", first.addr["u"])
		for range 5 {
			echoes(t, client, "x")
		}
		first.isDropped(client)
		first.isDropped(client)
		assert.Contains(t, first.ask("bans"), "lockout")
		end(first, c.dir+"/state")

		second := start(t, "-c", c.path)
		second.waitLog("state loaded")
		assert.Regexp(t, `(?m)^127\.0\.0\.2 +lockout +(1h0m0s|59m\d+s) +default *$`, second.ask("bans"), name)
		second.isDropped(from(t, "127.0.0.2", second.addr["u"]))
	}
}

// C104
func TestStateThatIsDamaged(t *testing.T) {
	t.Parallel()
	c := newConfig(t, "state: {path: DIR/state}\n")
	require.NoError(t, os.WriteFile(c.dir+"/state", []byte("throttled-state-1\nnonsense"), 0o600))
	g := start(t, "-c", c.path)
	warning := g.waitLog("the state file cannot be read, starting without")
	assert.Equal(t, "WARN", warning["level"])
	assert.Equal(t, c.dir+"/state.bak", warning["moved_to"])
	kept, err := os.ReadFile(c.dir + "/state.bak")
	require.NoError(t, err)
	assert.Equal(t, "throttled-state-1\nnonsense", string(kept))
	echoes(t, dial(t, "udp", g.addr["u"]), "it serves")
}

// A folder that has gone is said once; the gateway and its bans go on, and
// whoever gives one hears that a restart forgets it.
func TestStateThatCannotBeSaved(t *testing.T) {
	t.Parallel()
	c := newConfig(t, "state: {path: DIR/folder/state, interval: 5ms}\n")
	folder := c.dir + "/folder"
	got := run(t, nil, "run", "-c", c.path)
	assert.Equal(t, 2, got.code)
	assert.Contains(t, got.stderr, c.path+":7:15: state.path: the folder cannot be used: stat "+folder+": no such file or directory")

	require.NoError(t, os.Mkdir(folder, 0o700))
	g := start(t, "-c", c.path)
	waitFile(t, folder+"/state", nil)
	require.NoError(t, os.Rename(folder, folder+".gone"))
	const warning = "the state cannot be saved; it is tried again and again"
	g.waitLog(warning)
	banned := run(t, []string{"THROTTLED_ADMIN=" + g.admin}, "ban", "127.0.0.2")
	assert.Equal(t, 0, banned.code)
	assert.Contains(t, banned.stderr, "throttled: warning: in force, but a restart will forget it: ")
	g.isDropped(from(t, "127.0.0.2", g.addr["u"]))
	require.NoError(t, os.Rename(folder+".gone", folder))
	g.waitLog("the state is saved again")
	assert.Len(t, g.logged(warning), 1)
}

// A gateway that does not come up changes no state.
func TestStateOfAFailedStart(t *testing.T) {
	t.Parallel()
	c := newConfig(t, "state: {path: DIR/state}\n")
	first := start(t, "-c", c.path)
	for _, args := range [][]string{
		{"--admin", first.admin},
		{"--udp", first.addr["u"] + "=echo"},
	} {
		before := waitFile(t, c.dir+"/state", nil)
		got := run(t, nil, append([]string{"run", "-c", c.path}, args...)...)
		assert.Equal(t, 1, got.code, got.stderr)
		after, err := os.Stat(c.dir + "/state")
		require.NoError(t, err)
		assert.True(t, os.SameFile(before, after), args)
	}
}

// C119: a token is asked for by what changes something, too.
func TestBanNeedsTheToken(t *testing.T) {
	t.Parallel()
	c := newConfig(t, "")
	token := c.dir + "/token"
	require.NoError(t, os.WriteFile(token, []byte("s3cret"), 0o600))
	g := start(t, "-c", c.path, "--token-file", token)
	answer, err := http.Post("http://"+g.admin+"/v1/bans", "application/json", strings.NewReader(`{"prefix":"192.0.2.1"}`))
	require.NoError(t, err)
	answer.Body.Close()
	assert.Equal(t, 401, answer.StatusCode)
	assert.Equal(t, 1, run(t, nil, "ban", "192.0.2.1", "--admin", g.admin).code)
	assert.Equal(t, "192.0.2.1/32 is banned until it is unbanned\n", g.ask("ban", "192.0.2.1", "--token-file", token))
}
