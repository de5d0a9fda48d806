package engine_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
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

// What has no place is left out with a warning; the locked out go first.
func TestSnapshotWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, snapshot := twice(t)
		var log bytes.Buffer
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

func TestSnapshotAfterClose(t *testing.T) {
	e, snapshot := twice(t)
	require.NoError(t, e.Close())
	var buf bytes.Buffer
	require.NoError(t, e.WriteSnapshot(&buf), "a server that stops writes it last")
	require.ErrorIs(t, e.ReadSnapshot(bytes.NewReader(snapshot)), engine.ErrClosed)
}
