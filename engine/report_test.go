package engine_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
)

// names are the keys of a JSON object in their order.
func names(t *testing.T, object []byte) (list []string) {
	d := json.NewDecoder(bytes.NewReader(object))
	_, err := d.Token()
	require.NoError(t, err)
	for d.More() {
		key, err := d.Token()
		require.NoError(t, err)
		list = append(list, key.(string))
		var value any
		require.NoError(t, d.Decode(&value))
	}
	return list
}

func TestReportJSON(t *testing.T) {
	e := lockedOut(t, client)
	b, err := json.Marshal(e.Report())
	require.NoError(t, err)
	require.Equal(t, strings.Fields(`UtcNow CapacityTokens RefillPerSecond TokenScale Shards
		HardLockoutSeconds StaleEntrySeconds CleanupIntervalSecs MaxTrackedEndpoints TrackedEndpoints
		PeakTrackedEndpoints HardBlockedCount SoftWarningCount TotalCleaned RefillRatio Evaluated
		Allowed SoftThrottled HardLocked Lockouts Overflowed Invalid Evicted Policies Top`), names(t, b))
	var r struct{ Top, Policies []json.RawMessage }
	require.NoError(t, json.Unmarshal(b, &r))
	require.Equal(t, strings.Fields("Endpoint Policy Tokens SoftViolations LockedForMs Denied"), names(t, r.Top[0]))
	require.Len(t, r.Policies, 1)

	b, err = json.Marshal(newEngine(t, engine.Config{}).Report())
	require.NoError(t, err)
	require.Contains(t, string(b), `"Top":[]`, "an empty list is not null")
}

func TestReportFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := rate(2, 1)
		p.Escalation = policy.Escalation{MaxSoftViolations: 3, Lockout: 90 * time.Second}
		e := newEngine(t, engine.Config{
			Default: p, Policies: []policy.Policy{named("other", rate(1, 1))},
			Shards: 4, MaxTrackedEndpoints: 50, StaleAfter: time.Minute, CleanupInterval: 500 * time.Millisecond,
		})
		other, _ := e.Policy("other")
		for range 6 { // 2 allowed, 2 soft, locked by the third denial, once more
			e.Evaluate(client)
		}
		for range 3 { // 2 allowed, 1 soft
			e.Evaluate(addr("192.0.2.2"))
		}
		e.EvaluatePolicy(client, other)
		e.EvaluatePolicy(client, other)
		e.Evaluate(netip.AddrPort{})

		r := e.Report()
		require.Equal(t, time.Now().UTC(), r.UtcNow)
		want := engine.Report{
			UtcNow: r.UtcNow, CapacityTokens: 2, RefillPerSecond: 1, TokenScale: 100, Shards: 4,
			HardLockoutSeconds: 90, StaleEntrySeconds: 60, CleanupIntervalSecs: 0.5,
			MaxTrackedEndpoints: 50, TrackedEndpoints: 3, PeakTrackedEndpoints: 3,
			HardBlockedCount: 1, SoftWarningCount: 1, RefillRatio: 1, // "other" never escalates: it counts no violations
			Evaluated: 12, Allowed: 5, SoftThrottled: 4, HardLocked: 3, Lockouts: 1, Invalid: 1,
			Policies: []engine.PolicyReport{
				{Name: "default", CapacityTokens: 2, RefillPerSecond: 1, TokenScale: 100, HardLockoutSeconds: 90,
					Evaluated: 9, Allowed: 4, SoftThrottled: 3, HardLocked: 2},
				{Name: "other", CapacityTokens: 1, RefillPerSecond: 1, TokenScale: 100,
					Evaluated: 2, Allowed: 1, SoftThrottled: 1},
			},
			Top: []engine.EndpointReport{
				{Endpoint: "192.0.2.1", Policy: "default", LockedForMs: 90_000, Denied: 4},
				{Endpoint: "192.0.2.1", Policy: "other", Denied: 1},
				{Endpoint: "192.0.2.2", Policy: "default", SoftViolations: 1, Denied: 1},
			},
		}
		if r.Top[1].Policy == "default" { // equals come in any order
			r.Top[1], r.Top[2] = r.Top[2], r.Top[1]
		}
		require.Equal(t, want, r)
	})
}

// Top has the locked out first, then by denials, at most 20, and nobody who
// was never denied. C109
func TestReportTop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := rate(1, 1e-6)
		p.Escalation = policy.Escalation{MaxSoftViolations: 100}
		e := newEngine(t, engine.Config{Default: p})
		host := func(i int) netip.AddrPort {
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 1)
		}
		for i := range 60 { // host i is denied i times
			for range i + 1 {
				e.Evaluate(host(i))
			}
		}
		for range 101 {
			e.Evaluate(host(500))
		}
		top := e.Report().Top
		require.Len(t, top, 20)
		require.Equal(t, "10.0.1.244", top[0].Endpoint)
		require.Positive(t, top[0].LockedForMs)
		for i, row := range top[1:] {
			require.Equal(t, fmt.Sprintf("10.0.0.%d", 59-i), row.Endpoint)
			require.EqualValues(t, 59-i, row.Denied)
		}
		quiet := newEngine(t, engine.Config{})
		quiet.Evaluate(client)
		require.Empty(t, quiet.Report().Top)
	})
}

func TestReportText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := lockedOut(t, client)
		var b strings.Builder
		require.NoError(t, e.WriteReport(&b))
		lines := strings.Split(b.String(), "\n")
		require.Equal(t, "[2000-01-01 00:00:00] TokenBucketLimiter Status:", lines[0])
		require.Equal(t, "CapacityTokens      : 1", lines[1])
		labels := 0
		for _, line := range lines[1:] {
			if strings.HasPrefix(line, "Policies:") {
				break
			}
			require.Equal(t, ":", line[20:21], line)
			labels++
		}
		require.Equal(t, 22, labels)
		require.Contains(t, b.String(), "192.0.2.1")
		require.ErrorIs(t, e.WriteReport(full{}), errFull)
		b.Reset()
		require.NoError(t, engine.Report{RefillRatio: 0.3275094919710573}.WriteText(&b))
		require.Contains(t, b.String(), "RefillRatio         : 0.328\n")
	})
}

var errFull = fmt.Errorf("full")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, engine.Config{Default: rate(5, 1)})
		_, ok := e.Lookup(client)
		require.False(t, ok)
		_, ok = e.Lookup(netip.AddrPort{})
		require.False(t, ok)
		require.Zero(t, e.Report().TrackedEndpoints, "looking makes no entry")
		for range 5 {
			e.Evaluate(client)
		}
		time.Sleep(2500 * time.Millisecond)
		row, ok := e.Lookup(netip.AddrPortFrom(client.Addr(), 9))
		require.True(t, ok)
		require.Equal(t, engine.EndpointReport{Endpoint: "192.0.2.1", Policy: "default", Tokens: 2}, row)

		e = lockedOut(t, client)
		for _, c := range []struct {
			rest time.Duration
			want int64
		}{{0, 60_000}, {1, 60_000}, {time.Millisecond - 1, 59_999}, {1, 59_999}, {time.Minute, 0}} {
			time.Sleep(c.rest)
			row, _ = e.Lookup(client)
			require.Equal(t, c.want, row.LockedForMs, "rounded up")
		}
	})
}
