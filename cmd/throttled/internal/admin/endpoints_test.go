package admin

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// C120
func TestEndpoints(t *testing.T) {
	e := newEngine(t, engine.Config{Default: locking()})
	for i := range 150 {
		ep := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 1)
		e.Evaluate(ep)
		if i == 77 {
			e.Evaluate(ep)
		}
	}
	s := serve(t, Config{Listen: "127.0.0.1:0", Engine: e})
	got := ask(t, s, "GET", "/v1/endpoints", nil)
	assert.Equal(t, 150.0, got.body["Tracked"])
	assert.Equal(t, 1.0, got.body["LockedOut"])
	require.Len(t, got.body["Endpoints"], usualLimit)
	assert.Equal(t, "10.0.0.77", got.body["Endpoints"].([]any)[0].(map[string]any)["Endpoint"])
	assert.Len(t, ask(t, s, "GET", "/v1/endpoints?limit=1", nil).body["Endpoints"], 1)
	assert.Len(t, ask(t, s, "GET", "/v1/endpoints?limit=10000", nil).body["Endpoints"], 150)
	for _, query := range []string{"limit=0", "limit=-1", "limit=10001", "limit=x", "limit=", "limit=1&limit=2", "limt=1"} {
		for _, path := range []string{"/v1/endpoints?", "/v1/bans?"} {
			got := ask(t, s, "GET", path+query, nil)
			assert.Equal(t, 400, got.status, query)
			assert.NotEmpty(t, got.body["error"], query)
		}
	}
	empty := serve(t, Config{Listen: "127.0.0.1:0"})
	assert.Equal(t, map[string]any{"Tracked": 0.0, "LockedOut": 0.0, "Endpoints": []any{}}, ask(t, empty, "GET", "/v1/endpoints", nil).body)
}

// C56: the rule that decides is named, and what it overrules.
func TestExplain(t *testing.T) {
	bytes := policy.Policy{
		Name:       "bytes",
		Packets:    tokenbucket.Limit{Capacity: 8, RefillPerSecond: 1e-6},
		Bytes:      &tokenbucket.Limit{Capacity: 100, RefillPerSecond: 1e-6},
		Escalation: policy.Escalation{Disabled: true},
	}
	e := newEngine(t, engine.Config{Default: locking(), Policies: []policy.Policy{bytes}})
	id, _ := e.Policy("bytes")
	require.NoError(t, e.Deny(prefix("10.0.0.0/8")))
	require.NoError(t, e.Exempt(prefix("10.0.0.5/32")))
	require.NoError(t, e.Ban(prefix("203.0.113.0/24"), time.Hour, "scan"))
	var out [1]policy.Decision
	e.EvaluateBatch([]engine.Request{{Endpoint: addr("192.0.2.1:1"), Policy: id, Bytes: 100}}, out[:])
	e.Evaluate(addr("192.0.2.1:1"))
	e.Evaluate(addr("192.0.2.1:1"))
	before := e.Report().Evaluated
	s := serve(t, Config{Listen: "127.0.0.1:0", Engine: e})
	explain := func(ip string) (x Explanation) {
		body, err := Client{Address: s.Addr()}.Get("/v1/endpoints/" + ip)
		require.NoError(t, err, ip)
		require.NoError(t, json.Unmarshal(body, &x))
		return x
	}

	x := explain("10.0.0.5")
	assert.Equal(t, "exempt", x.Rule)
	assert.Equal(t, "10.0.0.5/32", x.Prefix.String())
	require.Len(t, x.Lists, 2)
	assert.Equal(t, Listed{Rule: "deny", Prefix: prefix("10.0.0.0/8"), LeftMs: -1}, x.Lists[1])
	for _, p := range x.Policies {
		assert.Equal(t, "exempt", p.Rule)
		assert.Equal(t, Next{Allowed: true, Reason: "none"}, p.Next)
	}
	x = explain("::ffff:10.0.0.6")
	assert.Equal(t, "10.0.0.6", x.Endpoint)
	assert.Equal(t, "deny", x.Rule)
	assert.Equal(t, Next{Reason: "hard_lockout", RetryAfterMs: -1}, x.Policies[1].Next)
	x = explain("203.0.113.9:4000")
	assert.Equal(t, "ban", x.Rule)
	assert.Equal(t, "scan", x.Lists[0].Note)
	assert.InDelta(t, 3_600_000, x.Policies[0].Next.RetryAfterMs, 60_000)

	x = explain("192.0.2.1")
	assert.Equal(t, "policies", x.Rule)
	assert.Nil(t, x.Prefix)
	require.Len(t, x.Policies, 2)
	p := x.Policies[0]
	assert.Equal(t, []any{"default", "lockout", true, int64(0), int64(1), 1}, []any{p.Policy, p.Rule, p.Tracked, p.Tokens, p.Capacity, p.Lockouts})
	assert.Positive(t, p.LockedForMs)
	assert.Equal(t, "hard_lockout", p.Next.Reason)
	p = x.Policies[1]
	assert.Equal(t, []any{"bytes", "bucket", true, int64(7), int64(8)}, []any{p.Policy, p.Rule, p.Tracked, p.Tokens, p.Capacity})
	assert.Equal(t, []int64{0, 100}, []int64{p.ByteTokens, p.ByteCapacity})
	assert.Equal(t, "soft_throttle", p.Next.Reason, "not a byte is left")
	assert.Equal(t, before, e.Report().Evaluated, "asking is no packet")

	x = explain("2001:db8:1:2::/64")
	assert.Equal(t, "2001:db8:1:2::/64", x.Endpoint)
	assert.False(t, x.Policies[0].Tracked)
	assert.Equal(t, "bucket", x.Policies[0].Rule)
	assert.True(t, x.Policies[0].Next.Allowed)
	for path, want := range map[string]string{
		"x":                    `"x" is not an endpoint`,
		"":                     `"" is not an endpoint`,
		"2001:db8::/63":        "2001:db8::/63 is more than one endpoint, which has 64 bits here",
		"192.0.2.0/24":         "192.0.2.0/24 is more than one endpoint, which has 32 bits here",
		"::ffff:192.0.2.0/120": "more than one endpoint, which has 128 bits here",
	} {
		got := ask(t, s, "GET", "/v1/endpoints/"+path, nil)
		assert.Equal(t, 400, got.status, path)
		assert.Contains(t, got.body["error"], want, path)
	}
}

func TestExplainAPort(t *testing.T) {
	e := newEngine(t, engine.Config{KeyByPort: true})
	s := serve(t, Config{Listen: "127.0.0.1:0", Engine: e})
	got := ask(t, s, "GET", "/v1/endpoints/192.0.2.1", nil)
	assert.Equal(t, 400, got.status)
	assert.Equal(t, "192.0.2.1 has no port, which tells endpoints apart here; allowed: 192.0.2.1:4000", got.body["error"])
	assert.Equal(t, "192.0.2.1:7", ask(t, s, "GET", "/v1/endpoints/192.0.2.1:7", nil).body["Endpoint"])
	assert.Equal(t, "[fe80::%eth0/64]:7", ask(t, s, "GET", "/v1/endpoints/[fe80::1%25eth0]:7", nil).body["Endpoint"])
}
