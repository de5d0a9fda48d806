package main

import (
	"bufio"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	empty, good := filepath.Join(dir, "empty.yaml"), filepath.Join(dir, "good.yaml")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	require.NoError(t, os.WriteFile(good, []byte("drain: {grace: 1s}\n"), 0o600))
	for _, c := range []struct {
		args string
		env  []string
		want string // the beginning of standard error
	}{
		{"", nil, "throttled: a command is missing\nsee: throttled --help\n"},
		{"bars", nil, "throttled: there is no command \"bars\"\nsee: throttled --help\n"},
		{"help bars", nil, "throttled: there is no command \"bars\"\nsee: throttled --help\n"},
		{"bans 192.0.2.1", nil, "throttled: unexpected argument \"192.0.2.1\"\nsee: throttled bans --help\n"},
		{"ban", nil, "throttled: PREFIX is missing\nsee: throttled ban --help\n"},
		{"ban 192.0.2.1 now", nil, "throttled: unexpected argument \"now\"\nsee: throttled ban --help\n"},
		{"ban 192.0.2.1/24", nil, "throttled: 192.0.2.1/24 has bits behind its length"},
		{"ban nobody", nil, "throttled: \"nobody\" is not a prefix; allowed: "},
		{"ban 192.0.2.1 --for 10", nil, "throttled: invalid argument \"10\" for \"--for\" flag: 10 has no unit"},
		{"ban 192.0.2.1", []string{"THROTTLED_FOR=-1s"}, "throttled: THROTTLED_FOR: -1s is negative"},
		{"ban 192.0.2.1", []string{"THROTTLED_NOTE=a\nb"}, "throttled: THROTTLED_NOTE: note: it is too long or has control characters"},
		{"unban", nil, "throttled: PREFIX is missing\nsee: throttled unban --help\n"},
		{"unban nobody", nil, "throttled: \"nobody\" is not a prefix; allowed: "},
		{"explain", nil, "throttled: IP is missing\nsee: throttled explain --help\n"},
		{"explain somebody", nil, "throttled: \"somebody\" is not an endpoint; allowed: "},
		{"run now", nil, "throttled: unexpected argument \"now\"\nsee: throttled run --help\n"},
		{"version now", nil, "throttled: unexpected argument \"now\"\nsee: throttled version --help\n"},
		{"run --port 1", nil, "throttled: unknown flag: --port\nsee: throttled run --help\n"},
		{"run --udp", nil, "throttled: flag needs an argument: --udp\n"},
		{"run --udp 127.0.0.1:1", nil, "throttled: invalid argument \"127.0.0.1:1\" for \"--udp\" flag: \"127.0.0.1:1\" is not LISTEN=UPSTREAM"},
		{"run --tcp :1=echo", nil, "throttled: invalid argument \":1=echo\" for \"--tcp\" flag: \":1\" has no address"},
		{"run --report-every 10", nil, "throttled: invalid argument \"10\" for \"--report-every\" flag: 10 has no unit"},
		{"run --report-every 1us", nil, "throttled: invalid argument \"1us\" for \"--report-every\" flag: 1us is too often; allowed: 1ms or more"},
		{"run --grace 0", nil, "throttled: invalid argument \"0\" for \"--grace\" flag: 0 has no meaning here"},
		{"run --admin 9190", nil, "throttled: invalid argument \"9190\" for \"--admin\" flag: \"9190\" is not an address"},
		{"run --udp 127.0.0.1:1=echo,127.0.0.1:1=echo", nil, "throttled: config: listener udp:127.0.0.1:1: listener \"udp:127.0.0.1:1\" has udp 127.0.0.1:1 already"},
		{"run --token-file " + dir + "/none", nil, "throttled: invalid argument \"" + dir + "/none\" for \"--token-file\" flag: open"},
		{"run -c " + dir + "/none", nil, "throttled: config: open " + dir + "/none: no such file or directory\n"},
		{"run -c " + empty, nil, empty + ":1:1: the file is empty"},
		{"run -c " + good, nil, "throttled: " + good + " has no listeners; add them there, or with --udp or --tcp\n"},
		{"check", nil, "throttled: -c FILE is missing\nsee: throttled check --help\n"},
		{"check -c " + empty, nil, empty + ":1:1: the file is empty"},
		{"check", []string{"THROTTLED_CONFIG=" + empty}, empty + ":1:1: the file is empty"},
		{"replay", nil, "throttled: CAPTURE is missing\nsee: throttled replay --help\n"},
		{"replay a b", nil, "throttled: unexpected argument \"b\"\nsee: throttled replay --help\n"},
		{"replay a", nil, "throttled: -c FILE is missing\nsee: throttled replay --help\n"},
		{"replay -c " + empty + " a", nil, empty + ":1:1: the file is empty"},
		{"replay --limit -1 a", nil, "throttled: invalid argument \"-1\" for \"--limit\" flag: \"-1\" is not a number of endpoints"},
		{"report --admin off", nil, "throttled: invalid argument \"off\" for \"--admin\" flag: \"off\" is not an address; allowed: host:port or unix:PATH"},

		// Whatever is wrong with variables is said at once, with their names.
		{"run", []string{"THROTTLED_GRACE=soon", "THROTTLED_REPORT_EVERY=10"}, "throttled: THROTTLED_GRACE: \"soon\" is not a duration; allowed: a number and a unit, " +
			"such as 500ms, 30s, 10m or 1h\nTHROTTLED_REPORT_EVERY: 10 has no unit"},
		{"run", []string{"THROTTLED_UDP=127.0.0.1:1=echo,x"}, "throttled: THROTTLED_UDP: \"x\" is not LISTEN=UPSTREAM"},
		{"report", []string{"THROTTLED_TEXT=maybe"}, "throttled: THROTTLED_TEXT: "},

		// C119
		{"run --admin 0.0.0.0:1 --udp 127.0.0.1:0=echo", nil, "throttled: the admin address 0.0.0.0:1 is not a loopback address and needs --token-file\n"},
	} {
		got := run(t, c.env, strings.Fields(c.args)...)
		assert.Equal(t, 2, got.code, "%s %v: %s", c.args, c.env, got.stderr)
		assert.Empty(t, got.stdout, c.args)
		assert.True(t, strings.HasPrefix(got.stderr, c.want), "%s %v: %s", c.args, c.env, got.stderr)
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"help", "--help", "help run", "run --help", "run -h"} {
		got := run(t, []string{"THROTTLED_HELP=x"}, strings.Fields(args)...)
		assert.Equal(t, 0, got.code, args)
		assert.Contains(t, got.stdout, "Usage:", args)
		assert.Empty(t, got.stderr, args)
	}
}

// A flag wins over its variable, a variable that is empty is not set, and one
// that belongs to no flag of ours is not looked at.
func TestVariables(t *testing.T) {
	t.Parallel()
	cmd := command("run", "--report-every", "0", "--admin", "127.0.0.1:0")
	cmd.Env = append(cmd.Env, "THROTTLED_REPORT_EVERY=1ms", "THROTTLED_UDP=127.0.0.1:0=echo, 127.0.0.2:0=echo",
		"THROTTLED_CONFIG=", "THROTTLED_PORT=tcp://10.0.0.1:80", "THROTTLED_TEXT=nonsense", "THROTTLED_GRACE=1s")
	g := launch(t, cmd, nil)
	require.Len(t, g.addr, 2)
	echoes(t, dial(t, "udp", g.addr["udp:127.0.0.2:0"]), "x")
	g.signal(syscall.SIGUSR1)
	g.waitLines(1)
	assert.Len(t, g.lines(), 1)
	g.signal(syscall.SIGTERM)
	g.ended(patience)
	assert.Equal(t, "1s", g.waitLog("draining")["grace"])
}

func TestCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "throttled.yaml")
	write := func(content string) { require.NoError(t, os.WriteFile(file, []byte(content), 0o600)) }

	write("policies: [{name: a}]\nlisteners: [{name: l, protocol: tcp, listen: 127.0.0.1:1, upstream: echo, udp: {}}]\n")
	got := run(t, nil, "check", "-c", file)
	assert.Equal(t, result{0,
		file + ": ok: 1 listener, 1 policy beside the default, admin server 127.0.0.1:9190\n",
		file + ":2:80: warning: listeners[0].udp: has no effect on a tcp listener\n"}, got)

	write("engine: {shards: 3}\nlisteners: [{name: l, protocol: tcp, listen: 127.0.0.1:1, upstream: x, policy: fast}]\n")
	got = run(t, nil, "check", "--config", file)
	assert.Equal(t, result{2, "",
		file + ":1:18: engine.shards: 3 is not a power of two in 1..65536\n" +
			file + ":2:69: listeners[0].upstream: \"x\" is not an upstream; allowed: host:port, or echo\n" +
			file + ":2:80: listeners[0].policy: there is no policy \"fast\"; allowed: default\n"}, got)
}

func TestVersion(t *testing.T) {
	t.Parallel()
	got := run(t, nil, "version")
	assert.Equal(t, 0, got.code)
	assert.Regexp(t, `^throttled \S+ `+runtime.Version()+` linux/`+runtime.GOARCH+`\n$`, got.stdout)
}

func TestReportWithoutAGateway(t *testing.T) {
	t.Parallel()
	got := run(t, nil, "report", "--admin", "127.0.0.1:1")
	assert.Equal(t, 1, got.code)
	assert.Contains(t, got.stderr, "throttled: admin: no gateway answers at 127.0.0.1:1")
}

func TestDemo(t *testing.T) {
	t.Parallel()
	got := run(t, nil, "demo")
	require.Equal(t, 0, got.code, got.stderr)
	assert.Empty(t, got.stderr)
	assert.NotContains(t, got.stdout, "\x1b", "no colours where there is no terminal")
	for _, event := range []string{
		"the flooder begins", "the flooder has used up its tokens and is throttled",
		"the flooder is locked out for 3s", "the lockout is over",
	} {
		assert.Contains(t, got.stdout, event)
	}
	assert.Regexp(t, `(?m)^honest:  \d+ sent, \d+ answered, 0 denied$`, got.stdout)
	assert.Contains(t, got.stdout, "TokenBucketLimiter Status:")
	assert.Regexp(t, `(?m)^ +127\.0\.0\.2 +default `, got.stdout, "the report names the flooder")
	assert.NotRegexp(t, `(?m)^ +127\.0\.0\.1 +default `, got.stdout, "and the honest client not")
}

func TestDemoEndsEarly(t *testing.T) {
	t.Parallel()
	cmd := command("demo")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer cmd.Process.Kill()
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	rest := ""
	for lines.Scan() {
		rest += lines.Text() + "\n"
	}
	require.NoError(t, cmd.Wait())
	assert.Contains(t, rest, "TokenBucketLimiter Status:")
	assert.NotContains(t, rest, "locked out for 3s: nothing")
}
