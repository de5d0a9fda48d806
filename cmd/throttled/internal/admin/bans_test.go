package admin

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

func addr(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// post gives a request a body, and JSON as its type.
func post(body string) func(*http.Request) {
	return func(r *http.Request) {
		r.Header.Set("Content-Type", "application/json; charset=utf-8")
		r.Body = io.NopCloser(strings.NewReader(body))
	}
}

// locking locks out at the first denial.
func locking() policy.Policy {
	return policy.Policy{
		Packets:    tokenbucket.Limit{Capacity: 1, RefillPerSecond: 1e-6},
		Escalation: policy.Escalation{MaxSoftViolations: 1, Lockout: time.Hour},
	}
}

func TestBanAndUnban(t *testing.T) {
	saves := 0
	e := newEngine(t, engine.Config{})
	s := serve(t, Config{Listen: "127.0.0.1:0", Engine: e, Save: func() error { saves++; return nil }})
	got := ask(t, s, "POST", "/v1/bans", post(`{"prefix":"203.0.113.0/24","for":"10m","note":"port scan"}`))
	assert.Equal(t, 200, got.status)
	assert.Equal(t, "203.0.113.0/24", got.body["prefix"])
	assert.Equal(t, 600_000.0, got.body["left_ms"])
	assert.Equal(t, 1, saves)
	assert.Equal(t, 200, ask(t, s, "POST", "/v1/bans", post(`{"prefix":"::ffff:192.0.2.1"}`)).status)
	assert.Equal(t, 200, ask(t, s, "POST", "/v1/bans", post(`{"prefix":"2001:db8::/32","for":"0"}`)).status)
	bans := e.Bans()
	require.Len(t, bans, 3)
	assert.Equal(t, engine.Ban{Prefix: prefix("192.0.2.1/32")}, bans[0])
	assert.Equal(t, "port scan", bans[1].Note)
	assert.InDelta(t, 600, time.Until(bans[1].Until).Seconds(), 60)
	assert.True(t, bans[2].Until.IsZero())
	assert.False(t, e.Evaluate(addr("203.0.113.77:1")).Allowed)

	// The slash may be escaped or not.
	for _, path := range []string{"203.0.113.0/24", "2001:db8::%2F32", "192.0.2.1"} {
		got = ask(t, s, "DELETE", "/v1/bans/"+path, nil)
		assert.Equal(t, 200, got.status, path)
		got = ask(t, s, "DELETE", "/v1/bans/"+path, nil)
		assert.Equal(t, 404, got.status, path)
		assert.Contains(t, got.body["error"], "there is no ban of ")
	}
	assert.Empty(t, e.Bans())
	assert.Equal(t, 6, saves, "what changes nothing is not saved")
}

// C44: one of a thousand is lifted, and the others are kept out throughout.
func TestUnbanOneOfMany(t *testing.T) {
	e := newEngine(t, engine.Config{})
	s := serve(t, Config{Listen: "127.0.0.1:0", Engine: e})
	host := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}) }
	for i := range 1000 {
		require.NoError(t, e.Ban(netip.PrefixFrom(host(i), 32), 0, ""))
	}
	stop, ended := make(chan struct{}), make(chan int)
	go func() {
		through := 0
		for {
			for i := range 1000 {
				if i != 500 && e.Evaluate(netip.AddrPortFrom(host(i), 1)).Allowed {
					through++
				}
			}
			select {
			case <-stop:
				ended <- through
				return
			default:
			}
		}
	}()
	assert.Equal(t, 200, ask(t, s, "DELETE", "/v1/bans/"+host(500).String(), nil).status)
	assert.Equal(t, 404, ask(t, s, "DELETE", "/v1/bans/"+host(500).String(), nil).status)
	close(stop)
	assert.Zero(t, <-ended)
	assert.True(t, e.Evaluate(netip.AddrPortFrom(host(500), 1)).Allowed)
	assert.Len(t, ask(t, s, "GET", "/v1/bans", nil).body["bans"], 999)
}

func TestUnbanWhatIsNoBan(t *testing.T) {
	e := newEngine(t, engine.Config{})
	require.NoError(t, e.Deny(prefix("10.0.0.0/8")))
	require.NoError(t, e.Ban(prefix("203.0.113.0/24"), 0, ""))
	require.NoError(t, e.Ban(prefix("203.0.0.0/16"), 0, ""))
	s := serve(t, Config{Listen: "127.0.0.1:0", Engine: e})
	got := ask(t, s, "DELETE", "/v1/bans/203.0.113.7", nil)
	assert.Equal(t, 404, got.status)
	assert.Equal(t, "there is no ban of 203.0.113.7/32 and no lockout; it is within 203.0.113.0/24, which is banned", got.body["error"])
	got = ask(t, s, "DELETE", "/v1/bans/10.0.0.7", nil)
	assert.Equal(t, 404, got.status)
	assert.Equal(t, "there is no ban of 10.0.0.7/32 and no lockout; it is within 10.0.0.0/8, which the configuration denies", got.body["error"])
	got = ask(t, s, "DELETE", "/v1/bans/10.0.0.0/8", nil)
	assert.Equal(t, 409, got.status)
	assert.Equal(t, "10.0.0.0/8 is denied by the configuration, and no ban: take it out there", got.body["error"])
	got = ask(t, s, "DELETE", "/v1/bans/10.0.0.0/7", nil)
	assert.Equal(t, 404, got.status)
	for _, path := range []string{"", "x", "10.0.0.1/8", "10.0.0.0/33"} {
		assert.Equal(t, 400, ask(t, s, "DELETE", "/v1/bans/"+path, nil).status, path)
	}
	assert.Equal(t, 400, ask(t, s, "DELETE", "/v1/bans", nil).status)
	assert.Len(t, e.Listings(), 3)
}

func TestBanThatIsRefused(t *testing.T) {
	e := newEngine(t, engine.Config{})
	s := serve(t, Config{Listen: "127.0.0.1:0", Engine: e, Save: func() error { panic("nothing to save") }})
	for _, c := range []struct {
		body   string
		status int
		want   string
	}{
		{``, 400, "the body is not what it has to be: it is empty"},
		{`null`, 400, `"" is not a prefix`},
		{`[]`, 400, "the body is not what it has to be: a JSON array; allowed: an object"},
		{`{}`, 400, `"" is not a prefix`},
		{`{"prefix":"192.0.2.1"`, 400, "the body is not what it has to be"},
		{`{"prefix":"192.0.2.1"} {}`, 400, "the body goes on behind the object"},
		{`{"prefix":"192.0.2.1"} x`, 400, "the body goes on behind the object"},
		{`{"prefix":7}`, 400, "the body is not what it has to be: prefix: a number; allowed: a string"},
		{`{"prefix":"192.0.2.1","until":"tomorrow"}`, 400, `unknown field "until"`},
		{`{"prefix":"192.0.2.1","for":600}`, 400, "the body is not what it has to be: for: a number; allowed: a string"},
		{`{"prefix":"192.0.2.1","for":"600"}`, 400, "for: 600 has no unit"},
		{`{"prefix":"192.0.2.1","for":"-1s"}`, 400, "for: -1s is negative"},
		{`{"prefix":"192.0.2.1","note":"\u001b[2J"}`, 400, "note: it is too long or has control characters"},
		{`{"prefix":"192.0.2.1","note":"` + strings.Repeat("x", maxNote+1) + `"}`, 400, "note: "},
		{`{"prefix":"192.0.2.1/24","for":"x"}`, 400, "192.0.2.1/24 has bits behind its length"},
		{`{"prefix":"192.0.2.1","note":"` + strings.Repeat("x", maxBody) + `"}`, 413, "larger than 4096 bytes"},
		{`{"prefix":"192.0.2.1"}` + strings.Repeat(" ", maxBody), 413, "larger than 4096 bytes"},
	} {
		got := ask(t, s, "POST", "/v1/bans", post(c.body))
		assert.Equal(t, c.status, got.status, c.body)
		assert.Contains(t, got.body["error"], c.want, c.body)
	}
	for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "application/jsonx", ";"} {
		got := ask(t, s, "POST", "/v1/bans", func(r *http.Request) {
			post(`{"prefix":"192.0.2.1"}`)(r)
			r.Header["Content-Type"] = []string{kind}
			if kind == "" {
				r.Header.Del("Content-Type")
			}
		})
		assert.Equal(t, 415, got.status, kind)
	}
	assert.Empty(t, e.Bans())
	require.NoError(t, e.Close())
	assert.Equal(t, 503, ask(t, s, "POST", "/v1/bans", post(`{"prefix":"192.0.2.1"}`)).status)
}

// What a ban does not do is said with it.
func TestBanWithAWarning(t *testing.T) {
	e := newEngine(t, engine.Config{})
	require.NoError(t, e.Exempt(prefix("192.0.2.0/24")))
	full := errors.New("disk full")
	s := serve(t, Config{Listen: "127.0.0.1:0", Engine: e, Save: func() error { return full }})
	got := ask(t, s, "POST", "/v1/bans", post(`{"prefix":"192.0.2.0/24"}`))
	assert.Equal(t, 200, got.status)
	assert.Equal(t, "in force, but a restart will forget it: disk full; the prefix is exempt, too, and that counts", got.body["warning"])
	got = ask(t, s, "DELETE", "/v1/bans/192.0.2.0/24", nil)
	assert.Equal(t, 200, got.status)
	assert.Equal(t, "in force, but a restart will forget it: disk full", got.body["warning"])
	full = nil
	assert.Equal(t, "the prefix is exempt, too, and that counts",
		ask(t, s, "POST", "/v1/bans", post(`{"prefix":"192.0.2.0/24"}`)).body["warning"])
}

// The list tells a ban, a denied prefix and a lockout apart. C45: each lockout is
// lifted by the name that it has in the list.
func TestBansAndLockouts(t *testing.T) {
	other := locking()
	other.Name = "other"
	e := newEngine(t, engine.Config{Default: locking(), Policies: []policy.Policy{other}, KeyByPort: true})
	for _, ep := range []string{"192.0.2.1:7", "[2001:db8::1]:7", "[fe80::1%eth0]:7"} {
		e.Evaluate(addr(ep))
		e.Evaluate(addr(ep))
	}
	id, _ := e.Policy("other")
	e.EvaluatePolicy(addr("192.0.2.1:7"), id)
	e.EvaluatePolicy(addr("192.0.2.1:7"), id)
	e.Evaluate(addr("198.51.100.1:7")) // tracked, and not locked out
	require.NoError(t, e.Exempt(prefix("127.0.0.0/8")))
	require.NoError(t, e.Deny(prefix("203.0.113.0/24")))
	require.NoError(t, e.Ban(prefix("203.0.113.0/24"), 0, "too"))
	s := serve(t, Config{Listen: "127.0.0.1:0", Engine: e})
	read := func(query string) (b Bans) {
		body, err := Client{Address: s.Addr()}.Get("/v1/bans" + query)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(body, &b))
		return b
	}
	b := read("")
	assert.Equal(t, []Ban{{Prefix: prefix("203.0.113.0/24"), Kind: "deny"}, {Prefix: prefix("203.0.113.0/24"), Kind: "ban", Note: "too"}}, b.Bans)
	assert.Equal(t, 4, b.LockedOut)
	require.Len(t, b.Lockouts, 4)
	few := read("?limit=2")
	assert.Equal(t, 4, few.LockedOut)
	assert.Len(t, few.Lockouts, 2)

	lifted := map[string]bool{}
	for _, l := range b.Lockouts {
		assert.Positive(t, l.LeftMs)
		p, err := ParseBanned(l.Endpoint)
		require.NoError(t, err, l.Endpoint)
		_, err = Client{Address: s.Addr()}.Do("DELETE", "/v1/bans/"+p.String(), nil)
		if !lifted[l.Endpoint] { // once for all policies
			require.NoError(t, err, l.Endpoint)
		}
		lifted[l.Endpoint] = true
	}
	assert.Len(t, lifted, 3)
	assert.Equal(t, Bans{Bans: b.Bans, Lockouts: []Lockout{}}, read("?limit=1"))
}
