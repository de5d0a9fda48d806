package engine_test

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// growing locks out at the first denial, twice as long each time.
func growing() policy.Policy {
	p := rate(1, 1)
	p.Escalation = policy.Escalation{MaxSoftViolations: 1, Lockout: time.Minute, Growth: 2}
	return p
}

// twice makes an engine with one endpoint locked out, one drained, one half way
// to a lockout, a ban with an end and one without, and its snapshot.
func twice(t *testing.T) (e *engine.Engine, snapshot []byte) {
	slow := rate(10, 0.1)
	slow.Name = "slow"
	slow.Escalation = policy.Escalation{}
	e = newEngine(t, engine.Config{Default: growing(), Policies: []policy.Policy{slow}})
	id, _ := e.Policy("slow")
	e.Evaluate(client)
	e.Evaluate(client)
	for range 14 {
		e.EvaluatePolicy(addr("192.0.2.2"), id)
	}
	require.NoError(t, e.Ban(prefix("203.0.113.0/24"), time.Hour, "an hour"))
	require.NoError(t, e.Ban(prefix("198.51.100.0/24"), 0, "for good"))
	var buf bytes.Buffer
	require.NoError(t, e.WriteSnapshot(&buf))
	return e, buf.Bytes()
}

// again is an engine of the same configuration that has read the snapshot.
func again(t *testing.T, snapshot []byte, change func(*engine.Config)) *engine.Engine {
	slow := rate(10, 0.1)
	slow.Name = "slow"
	slow.Escalation = policy.Escalation{}
	c := engine.Config{Default: growing(), Policies: []policy.Policy{slow}}
	if change != nil {
		change(&c)
	}
	e := newEngine(t, c)
	require.NoError(t, e.ReadSnapshot(bytes.NewReader(snapshot)))
	return e
}

// C42: what a restart must not lose, with the time spent down counted.
func TestSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, snapshot := twice(t)
		time.Sleep(20 * time.Second)
		e := again(t, snapshot, nil)
		d := e.Evaluate(client)
		require.Equal(t, policy.Decision{Reason: policy.HardLockout, RetryAfter: 40 * time.Second}, d)
		bans := e.Bans()
		require.Len(t, bans, 2)
		require.Equal(t, []string{"for good", "an hour"}, []string{bans[0].Note, bans[1].Note})
		require.Equal(t, time.Hour-20*time.Second, time.Until(bans[1].Until))
		require.True(t, bans[0].Until.IsZero())

		id, _ := e.Policy("slow")
		for range 2 {
			require.True(t, e.EvaluatePolicy(addr("192.0.2.2"), id).Allowed, "20 s at 0.1/s")
		}
		require.Equal(t, policy.SoftThrottle, e.EvaluatePolicy(addr("192.0.2.2"), id).Reason, "a new window")

		time.Sleep(d.RetryAfter)
		require.True(t, e.Evaluate(client).Allowed)
		require.Equal(t, 2*time.Minute, e.Evaluate(client).RetryAfter, "growth was kept")
	})
}

func TestSnapshotKeepsTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, snapshot := twice(t)
		e := again(t, snapshot, nil)
		id, _ := e.Policy("slow")
		require.Equal(t, policy.HardLockout, e.EvaluatePolicy(addr("192.0.2.2"), id).Reason, "the fifth denial")
	})
}

func TestSnapshotOfAnEndedLockout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, snapshot := twice(t)
		time.Sleep(2 * time.Hour)
		e := again(t, snapshot, nil)
		require.True(t, e.Evaluate(client).Allowed)
		require.Equal(t, time.Minute, e.Evaluate(client).RetryAfter, "long forgotten")
		require.Equal(t, []string{"198.51.100.0/24"}, prefixes(e))
	})
}

// Any cut and any flipped byte is an error, and changes nothing.
func TestSnapshotDamaged(t *testing.T) {
	e, snapshot := twice(t)
	before := e.Report()
	damaged := func(b []byte, what string, i int) {
		err := e.ReadSnapshot(bytes.NewReader(b))
		require.ErrorIs(t, err, engine.ErrSnapshot, "%s %d", what, i)
	}
	for i := range snapshot {
		damaged(snapshot[:i], "cut at", i)
		flipped := bytes.Clone(snapshot)
		flipped[i] ^= 1 << (i % 8)
		damaged(flipped, "flipped", i)
	}
	damaged(append(bytes.Clone(snapshot), 0), "longer by", 1)
	damaged(append(bytes.Clone(snapshot), snapshot...), "doubled", len(snapshot))
	damaged([]byte(strings.Repeat("x", 100)), "garbage", 100)
	after := e.Report()
	after.UtcNow, before.UtcNow = time.Time{}, time.Time{}
	after.Top, before.Top = nil, nil // has the time left of lockouts
	require.Equal(t, before, after)
	require.Len(t, e.Bans(), 2)
}

// What is there already stays as it is.
func TestSnapshotIntoARunningEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, snapshot := twice(t)
		e := newEngine(t, engine.Config{Default: growing()})
		require.True(t, e.Evaluate(client).Allowed)
		require.NoError(t, e.Ban(prefix("203.0.113.0/24"), time.Minute, "newer"))
		require.NoError(t, e.ReadSnapshot(bytes.NewReader(snapshot)))
		row, ok := e.Lookup(client)
		require.True(t, ok)
		require.Zero(t, row.LockedForMs)
		require.Equal(t, "newer", e.Bans()[1].Note)
	})
}

// A ban that has ended is none that could stay.
func TestSnapshotOverAnEndedBan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, snapshot := twice(t)
		e := newEngine(t, engine.Config{Default: growing()})
		require.NoError(t, e.Ban(prefix("203.0.113.0/24"), time.Second, "ended"))
		require.NoError(t, e.Exempt(prefix("198.51.100.0/24")))
		time.Sleep(time.Second)
		require.NoError(t, e.ReadSnapshot(bytes.NewReader(snapshot)))
		require.Len(t, e.Bans(), 2)
		require.Equal(t, "an hour", e.Bans()[1].Note)
		require.True(t, e.Evaluate(addr("198.51.100.1")).Allowed, "the exemption stayed beside its ban")
	})
}

// What has no place is left out with a warning; the locked out go first.
func TestSnapshotWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, snapshot := twice(t)
		var log bytes.Buffer
		again(t, snapshot, func(c *engine.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		require.Empty(t, log.String(), "nothing was left out")
		e := again(t, snapshot, func(c *engine.Config) {
			c.MaxTrackedEndpoints = 1
			c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		require.Equal(t, policy.HardLockout, e.Evaluate(client).Reason)
		require.Equal(t, 1, e.Report().TrackedEndpoints)
		require.Contains(t, log.String(), "left_out=1 of=2")

		log.Reset()
		e = again(t, snapshot, func(c *engine.Config) {
			c.Policies = nil
			c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		require.Equal(t, 1, e.Report().TrackedEndpoints)
		require.Contains(t, log.String(), "left_out=1 of=2")
	})
}

func TestSnapshotUnderOtherPrefixes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, snapshot := twice(t)
		e := again(t, snapshot, func(c *engine.Config) { c.IPv4Prefix = 24 })
		require.Equal(t, policy.HardLockout, e.Evaluate(addr("192.0.2.200")).Reason)
	})
}

// An engine and the one that took its place decide the same of every endpoint,
// now and later. C42, C100
func TestSnapshotTwins(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 5))
			p := policy.Policy{
				Packets:    tokenbucket.Limit{Capacity: 1 + r.Int64N(5), RefillPerSecond: 0.01 + r.Float64()},
				Escalation: policy.Escalation{MaxSoftViolations: 1 + r.IntN(4), Growth: 1 + 2*r.Float64()},
			}
			q := named("bytes", p)
			q.Bytes = &tokenbucket.Limit{Capacity: 1000, RefillPerSecond: 100 * r.Float64()}
			c := engine.Config{Default: p, Policies: []policy.Policy{q}, KeyByPort: seed%2 == 0, StaleAfter: 1 << 62}
			hosts := []netip.Addr{}
			for _, a := range []string{"192.0.2.1", "2001:db8::1", "fe80::1%eth0", "fe80::1%eth1", "::ffff:192.0.2.9", "192.0.2.3"} {
				hosts = append(hosts, netip.MustParseAddr(a))
			}
			request := func() []engine.Request {
				return []engine.Request{{
					Endpoint: netip.AddrPortFrom(hosts[r.IntN(len(hosts))], uint16(r.IntN(2))),
					Policy:   engine.PolicyID(r.IntN(2)), Bytes: r.IntN(600),
				}}
			}
			rest := func() { time.Sleep(time.Duration(r.Int64N(int64(5 * time.Second)))) }
			e := newEngine(t, c)
			was, is := make([]policy.Decision, 1), make([]policy.Decision, 1)
			for range 200 {
				e.EvaluateBatch(request(), was)
				rest()
			}
			var snapshot bytes.Buffer
			require.NoError(t, e.WriteSnapshot(&snapshot))
			rest()
			twin := newEngine(t, c)
			require.NoError(t, twin.ReadSnapshot(&snapshot))
			for i := range 300 {
				req := request()
				e.EvaluateBatch(req, was)
				twin.EvaluateBatch(req, is)
				require.InDelta(t, was[0].RetryAfter, is[0].RetryAfter, 1, "a nanosecond, as rest is rounded")
				was[0].RetryAfter = is[0].RetryAfter
				require.Equal(t, was, is, "seed %d, packet %d", seed, i)
				rest()
			}
		})
	}
}

// What was saved with ports finds its place in an engine without, and the other
// way round.
func TestSnapshotWithOtherKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		saved := func(c engine.Config) []byte {
			c.Default = growing()
			e := newEngine(t, c)
			for port := range uint16(4) {
				e.Evaluate(netip.AddrPortFrom(client.Addr(), port))
			}
			e.Evaluate(netip.AddrPortFrom(client.Addr(), 3))
			var b bytes.Buffer
			require.NoError(t, e.WriteSnapshot(&b))
			return b.Bytes()
		}
		byPort := saved(engine.Config{KeyByPort: true})
		without := saved(engine.Config{})

		e := again(t, byPort, nil)
		require.Equal(t, 1, e.Report().TrackedEndpoints)
		require.Equal(t, policy.HardLockout, e.Evaluate(client).Reason, "one of its ports was locked out")

		e = again(t, without, func(c *engine.Config) { c.KeyByPort = true })
		require.Equal(t, 1, e.Report().HardBlockedCount)
		require.True(t, e.Evaluate(client).Allowed, "no port was named")
	})
}

func TestSnapshotAfterClose(t *testing.T) {
	e, snapshot := twice(t)
	require.NoError(t, e.Close())
	var buf bytes.Buffer
	require.NoError(t, e.WriteSnapshot(&buf), "a server that stops writes it last")
	require.ErrorIs(t, e.ReadSnapshot(bytes.NewReader(snapshot)), engine.ErrClosed)
}
