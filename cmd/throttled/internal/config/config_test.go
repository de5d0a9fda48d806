package config

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/netx"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/policy/limiter"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// full has every key that there is, each with a value that is not its default.
const full = `
admin:   {listen: 127.0.0.1:9191, token_file: ""}
state:   {path: /var/lib/throttled/state, interval: 5s}
report:  {every: 0s, path: /var/log/throttled.jsonl}
engine:
  {shards: 64, max_endpoints: 5000, on_full: deny, stale_after: 90s, cleanup_interval: 20s,
   ipv4_prefix: 24, ipv6_prefix: 56, key_by_port: true, adaptive: {enabled: true, low: 50%, high: 0.8, floor: 0.5}}
exempt:  [127.0.0.0/8, 2001:db8:1::/48]
deny:
  - 203.0.113.0/24
  - 198.51.100.7
  - ::ffff:192.0.2.0/120
kernel_drop: socket
drain: {grace: 12s}
policies:
  - name: default
    capacity: 100
    refill: 600/m
    scale: 1000
    dry_run: true
    initial: empty
    bytes: {capacity: 256KiB, refill: 128KiB/s}
    violations: {max: 7, window: 9s, spacing: 100ms, reset_on_success: true}
    lockout: {base: 10s, growth: 2, max: 2h, forget_after: 20m}
  - name: status
    capacity: 5
    refill: 3600/h
    initial: 3
    bytes: {refill: 2MiB/s}
    lockout: off
listeners:
  - name: game
    protocol: udp
    listen: 0.0.0.0:27015
    upstream: 127.0.0.1:27016
    policy: status
    dry_run: true
    opcodes: {offset: 4, size: 2, policies: {0x54: status, 0x0FF1: default, 258: status, "3": default}}
    udp: {session_idle: 30s, max_sessions: 77, max_datagram: 1400, max_reply_ratio: 2.5, lockout_requires: established}
    proxy_protocol: {send: v2}
  - name: web
    protocol: tcp
    listen: "[::1]:8080"
    upstream: web.example:80
    tcp: {max_connections: 99, max_connections_per_ip: 3, queue: {limit: 50, order: newest_first, max_wait: 4s},
          dial_timeout: 1s, first_byte_timeout: 2s, idle_timeout: 3s, on_limit: close, reject: silent}
    proxy_protocol: {accept_from: [10.0.0.1, "2001:db8::/32"], timeout: 7s, send: v1}
`

func TestParseReadsEveryKey(t *testing.T) {
	c, err := Parse("full.yaml", []byte(full))
	require.NoError(t, err)

	assert.Equal(t, Admin{Listen: "127.0.0.1:9191"}, c.Admin)
	assert.Equal(t, Report{Every: 0, Path: "/var/log/throttled.jsonl"}, c.Report)
	assert.Equal(t, State{Path: "/var/lib/throttled/state", Interval: 5 * time.Second}, c.State)
	assert.Equal(t, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("2001:db8:1::/48")}, c.Exempt)
	assert.Equal(t, []netip.Prefix{
		netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("198.51.100.7/32"), netip.MustParsePrefix("192.0.2.0/24"),
	}, c.Deny)
	assert.Equal(t, Adaptive{Enabled: true, Low: 0.5, High: 0.8, Floor: 0.5}, c.Adaptive)
	assert.Equal(t, 12*time.Second, c.Grace)
	assert.Equal(t, netx.KernelDropSocket, c.KernelDrop)
	assert.Empty(t, c.Warnings)

	assert.Equal(t, policy.Policy{
		Name:    "default",
		Packets: tokenbucket.Limit{Capacity: 100, RefillPerSecond: 10, Scale: 1000, Initial: tokenbucket.Empty},
		Bytes:   &tokenbucket.Limit{Capacity: 256 << 10, RefillPerSecond: 128 << 10},
		Escalation: policy.Escalation{
			MaxSoftViolations: 7, Window: 9 * time.Second, Spacing: 100 * time.Millisecond, ResetOnSuccess: true,
			Lockout: 10 * time.Second, Growth: 2, MaxLockout: 2 * time.Hour, ForgetAfter: 20 * time.Minute,
		},
		DryRun: true,
	}, c.Engine.Default)
	assert.Equal(t, []policy.Policy{{
		Name:       "status",
		Packets:    tokenbucket.Limit{Capacity: 5, RefillPerSecond: 1, Initial: 3},
		Bytes:      &tokenbucket.Limit{Capacity: 209716, RefillPerSecond: 2 << 20}, // a tenth of a second, rounded up
		Escalation: policy.Escalation{Disabled: true},
	}}, c.Engine.Policies)

	assert.NotNil(t, c.Engine.Load)
	c.Engine.Load, c.Engine.Default, c.Engine.Policies = nil, policy.Policy{}, nil
	assert.Equal(t, engine.Config{
		Shards: 64, MaxTrackedEndpoints: 5000, OnFull: engine.Deny, StaleAfter: 90 * time.Second,
		CleanupInterval: 20 * time.Second, IPv4Prefix: 24, IPv6Prefix: 56, KeyByPort: true,
	}, c.Engine)

	require.Len(t, c.Listeners, 2)
	assert.Equal(t, netx.UDPOptions{
		SessionIdle: 30 * time.Second, MaxSessions: 77, MaxDatagram: 1400,
		MaxReplyRatio: 2.5, LockoutRequires: netx.LockoutEstablished,
	}, c.Listeners[0].UDP)
	assert.True(t, c.Listeners[0].DryRun)
	assert.False(t, c.Listeners[1].DryRun)
	assert.Equal(t, netx.Opcodes{Offset: 4, Size: 2}, c.Listeners[0].Opcodes)
	assert.Equal(t, map[uint32]string{0x54: "status", 0xff1: "default", 0x102: "status", 3: "default"}, c.Listeners[0].OpcodePolicies)
	assert.Equal(t, netx.ProxyOptions{Send: netx.SendV2}, c.Listeners[0].Proxy)
	assert.Equal(t, "status", c.Listeners[0].PolicyName)
	assert.Equal(t, netx.UDP, c.Listeners[0].Protocol)
	assert.Equal(t, "0.0.0.0:27015", c.Listeners[0].Listen.String())
	assert.Equal(t, "127.0.0.1:27016", c.Listeners[0].Upstream)
	assert.Equal(t, netx.TCPOptions{
		MaxConnections: 99, MaxConnectionsPerIP: 3,
		Queue:       limiter.Queue{Limit: 50, Order: limiter.NewestFirst, MaxWait: 4 * time.Second},
		DialTimeout: time.Second, FirstByteTimeout: 2 * time.Second, IdleTimeout: 3 * time.Second, OnLimit: netx.CloseConn, Reject: netx.RejectSilent,
	}, c.Listeners[1].TCP)
	assert.Equal(t, netx.ProxyOptions{
		AcceptFrom: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("2001:db8::/32")},
		Timeout:    7 * time.Second, Send: netx.SendV1,
	}, c.Listeners[1].Proxy)
	assert.Equal(t, "default", c.Listeners[1].PolicyName)
	assert.Equal(t, netx.TCP, c.Listeners[1].Protocol)
	assert.Equal(t, "[::1]:8080", c.Listeners[1].Listen.String())
	assert.Equal(t, "web.example:80", c.Listeners[1].Upstream)
}

func TestGatewayFindsPolicies(t *testing.T) {
	c, err := Parse("full.yaml", []byte(full))
	require.NoError(t, err)
	e, err := engine.New(c.Engine)
	require.NoError(t, err)
	defer e.Close()

	listeners, err := c.Gateway(e)
	require.NoError(t, err)
	status, ok := e.Policy("status")
	require.True(t, ok)
	require.Len(t, listeners, 2)
	assert.Equal(t, status, listeners[0].Policy)
	assert.Zero(t, listeners[1].Policy)

	c.Listeners[0].PolicyName = "gone"
	_, err = c.Gateway(e)
	assert.EqualError(t, err, `config: listener game: no policy "gone"`)
}

func TestDefault(t *testing.T) {
	c := Default()
	want := New()
	want.Listeners = c.Listeners
	c.Engine.Default, want.Engine.Default = c.Engine.Default.WithDefaults(), want.Engine.Default.WithDefaults()
	want.Engine.MaxTrackedEndpoints = engine.DefaultMaxTrackedEndpoints
	assert.Equal(t, want, c, "the embedded file must say what is true without it")

	require.Len(t, c.Listeners, 2)
	for i, p := range []netx.Protocol{netx.UDP, netx.TCP} {
		assert.Equal(t, p, c.Listeners[i].Protocol)
		assert.Equal(t, "127.0.0.1:7000", c.Listeners[i].Listen.String())
		assert.Equal(t, netx.Echo, c.Listeners[i].Upstream)
	}
}

func TestAdaptive(t *testing.T) {
	load := func(settings string) engine.LoadSource {
		c, err := Parse("f", []byte("engine: {adaptive: {"+settings+"}}"))
		require.NoError(t, err)
		return c.Engine.Load
	}
	assert.Nil(t, load("enabled: true"))
	assert.Nil(t, load("low: 60%, high: 90%, floor: 25%"), "the engine's own, which warns where it can read nothing")
	assert.Equal(t, engine.NoLoad, load("enabled: false"))
	assert.Equal(t, engine.NoLoad, load("enabled: false, low: 10%"))
	assert.NotNil(t, load("low: 10%"))
}

func TestAnchorsAndMerges(t *testing.T) {
	c, err := Parse("f", []byte(`
policies:
  - &strict {name: strict, capacity: 5, refill: 1/s}
  - <<: *strict
    name: stricter
    capacity: 2
  - <<: [{name: third, scale: 7}, *strict]
listeners:
  - {name: a, protocol: tcp, listen: 127.0.0.1:1, upstream: &up "127.0.0.1:9", tcp: &tcp {dial_timeout: 1s}}
  - {name: b, protocol: tcp, listen: 127.0.0.1:2, upstream: *up, tcp: *tcp}
`))
	require.NoError(t, err)
	require.Len(t, c.Engine.Policies, 3)
	assert.Equal(t, policy.Policy{Name: "stricter", Packets: tokenbucket.Limit{Capacity: 2, RefillPerSecond: 1}}, c.Engine.Policies[1])
	assert.Equal(t, policy.Policy{Name: "third", Packets: tokenbucket.Limit{Capacity: 5, RefillPerSecond: 1, Scale: 7}}, c.Engine.Policies[2])
	require.Len(t, c.Listeners, 2)
	assert.Equal(t, "127.0.0.1:9", c.Listeners[1].Upstream)
	assert.Equal(t, time.Second, c.Listeners[1].TCP.DialTimeout)
}

// What other YAML readers take for something else stays what it looks like.
func TestScalarsThatLookLikeOthers(t *testing.T) {
	for _, name := range []string{"no", "off", "y", "NO", "60:60", "1.2.3", "0o7x", "'123'", `"true"`, "é"} {
		c, err := Parse("f", []byte("policies: [{name: "+name+"}]"))
		require.NoError(t, err, name)
		assert.Equal(t, strings.Trim(name, `'"`), c.Engine.Policies[0].Name)
	}
}

func TestWarnings(t *testing.T) {
	c, err := Parse("f", []byte(`
listeners:
  - {name: a, protocol: udp, listen: 127.0.0.1:1, upstream: echo, tcp: {reject: rst}}
exempt: [10.0.0.0/8]
deny: [10.0.0.0/9, 10.0.0.0/8]
`))
	require.NoError(t, err)
	assert.Equal(t, []string{
		"f:3:72: warning: listeners[0].tcp: has no effect on a udp listener",
		"f:5:20: warning: deny[1]: has no effect: 10.0.0.0/8 is exempt, too",
	}, c.Warnings)
}

func TestByteOrderMarkAndCRLF(t *testing.T) {
	c, err := Parse("f", []byte("\ufeffdrain:\r\n  grace: 5s\r\nreport:\r\n  every: 1s\r\n"))
	require.NoError(t, err)
	assert.Equal(t, 5*time.Second, c.Grace)
	assert.Equal(t, time.Second, c.Report.Every)
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	token := write("token", " s3cret\n")

	c, err := Load(write("good.yaml", "admin: {listen: 0.0.0.0:1, token_file: "+token+"}"))
	require.NoError(t, err)
	assert.Equal(t, "s3cret", c.Admin.Token)

	_, err = Load(write("bad.yaml", "admin: {token_file: "+dir+"/none}\nx: 1"))
	assert.EqualError(t, err, dir+"/bad.yaml:1:21: admin.token_file: open "+dir+"/none: no such file or directory\n"+
		dir+"/bad.yaml:2:1: x: unknown key; allowed: "+sections)

	c, err = LoadAlone(write("elsewhere.yaml", "admin: {token_file: "+dir+"/none}"))
	require.NoError(t, err)
	assert.Equal(t, dir+"/none", c.Admin.TokenFile)
	_, err = LoadAlone(dir + "/none.yaml")
	assert.ErrorIs(t, err, os.ErrNotExist)

	for content, want := range map[string]string{
		"":                        "the file is empty",
		" \n":                     "the file is empty",
		"two words":               "not in one word",
		strings.Repeat("x", 5000): "longer than 4096 bytes",
	} {
		_, err = Load(write("token.yaml", "admin: {token_file: "+write("wrong", content)+"}"))
		assert.ErrorContains(t, err, want)
	}

	for path, want := range map[string]string{
		dir + "/none/state":                  "state.path: the folder cannot be used: stat " + dir + "/none: no such file or directory; allowed: a path to a file in a folder that is there",
		dir + "/token/state":                 "state.path: " + dir + "/token is not a folder",
		dir:                                  "state.path: " + dir + " is there and is no file",
		"/" + strings.Repeat("x", 300):       "state.path: stat /xxx",
		dir + "/state":                       "",
		filepath.Join(dir, "..", ".", "new"): "",
	} {
		_, err = Load(write("state.yaml", "state: {path: "+path+"}"))
		if want == "" {
			assert.NoError(t, err, path)
		} else {
			assert.ErrorContains(t, err, "state.yaml:1:15: "+want, path)
		}
	}

	_, err = Load(dir + "/none.yaml")
	assert.ErrorIs(t, err, os.ErrNotExist)
	_, err = Load(dir)
	assert.Error(t, err)
	_, err = Load("/dev/zero")
	assert.ErrorContains(t, err, "/dev/zero:1:1: the file is larger than 1048576 bytes")
}

func TestAdd(t *testing.T) {
	add := func(c *Config, p netx.Protocol, spec string) error {
		l, err := ParseListener(p, spec)
		if err != nil {
			return err
		}
		return c.Add(l)
	}
	c := New()
	require.NoError(t, add(c, netx.UDP, "127.0.0.1:7000=echo"))
	require.NoError(t, add(c, netx.TCP, "127.0.0.1:7000=[::1]:80"))
	require.NoError(t, add(c, netx.TCP, "[::ffff:127.0.0.1]:0=echo"))
	require.NoError(t, add(c, netx.TCP, "127.0.0.1:0=echo"), "the kernel gives each its own port")
	assert.Equal(t, "udp:127.0.0.1:7000", c.Listeners[0].Name)
	assert.Equal(t, "[::1]:80", c.Listeners[1].Upstream)

	for spec, want := range map[string]string{
		"127.0.0.1:7000=echo":         `listener "tcp:127.0.0.1:7000" has tcp 127.0.0.1:7000 already`,
		DefaultAdmin + "=echo":        "the admin server has tcp 127.0.0.1:9190 already",
		"127.0.0.1:7001":              "is not LISTEN=UPSTREAM",
		"127.0.0.1=echo":              `"127.0.0.1" is not an address`,
		":7001=echo":                  `":7001" has no address; allowed: 0.0.0.0:7001 for every IPv4 address, [::]:7001 for every IPv6 address`,
		"localhost:7001=echo":         `"localhost:7001" is not an address`,
		"127.0.0.1:7001=":             `"" is not an upstream`,
		"127.0.0.1:7001=:80":          `":80" is not an upstream`,
		"127.0.0.1:7001=h:0":          `"h:0" has no port`,
		"127.0.0.1:7001=h:http":       `"h:http" has no port`,
		"127.0.0.1:7001=h_ü:1":        "is not an upstream",
		"127.0.0.1:7001=1.2.3:1":      "is not an upstream",
		"127.0.0.1:7001=1.2.3.256:1":  "is not an upstream",
		"0.0.0.0:7001=localhost:7001": "is the listener's own address",
	} {
		assert.ErrorContains(t, add(c, netx.TCP, spec), want, spec)
	}
}
