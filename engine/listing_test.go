package engine_test

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
)

var kept = policy.Decision{Reason: policy.HardLockout, RetryAfter: policy.Never}

// C56: the longest prefix wins, whatever the order they came in.
func TestDeny(t *testing.T) {
	e := newEngine(t, engine.Config{})
	require.NoError(t, e.Deny(prefix("10.0.0.0/8"), prefix("10.0.0.5/32"), prefix("2001:db8::7/32")))
	require.NoError(t, e.Exempt(prefix("10.0.0.5/32"), prefix("2001:db8:1::/48")))
	for ep, allowed := range map[string]bool{
		"10.0.0.5": true, "10.0.0.6": false, "::ffff:10.0.0.5": true, "::ffff:10.0.0.6": false,
		"2001:db8::1": false, "2001:db8:1::1": true, "11.0.0.1": true,
	} {
		d := e.Evaluate(addr(ep))
		require.Equal(t, allowed, d.Allowed, ep)
		if !allowed {
			require.Equal(t, kept, d, ep)
		}
	}
	require.ErrorContains(t, e.Deny(prefix("10.0.0.0/8"), prefix("0.0.0.0/0").Masked(), engine.Ban{}.Prefix), "engine: Deny: invalid Prefix, number 3 of the list")
	require.NoError(t, e.Deny())
	require.True(t, e.Evaluate(addr("10.0.0.6")).Allowed, "the list was replaced")
	require.Len(t, e.Listings(), 2)
	require.NoError(t, e.Close())
	require.ErrorIs(t, e.Deny(), engine.ErrClosed)
}

// A ban of a denied prefix comes and goes, and the prefix stays denied.
func TestDenyBesideABan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, engine.Config{})
		p := prefix("203.0.113.0/24")
		require.NoError(t, e.Deny(p))
		require.False(t, e.Unban(p), "it is no ban")
		require.NoError(t, e.Ban(p, time.Minute, "scanner"))
		require.Equal(t, []engine.Listing{
			{Kind: engine.Denied, Prefix: p},
			{Kind: engine.Banned, Prefix: p, Until: time.Now().Add(time.Minute).Local(), Note: "scanner"},
		}, wall(e.Listings()))
		require.Len(t, e.Bans(), 1)
		exempt, left := e.Listed(p)
		require.False(t, exempt)
		require.Equal(t, policy.Never, left)
		time.Sleep(time.Hour) // the ban is swept out
		require.Equal(t, kept, e.Evaluate(addr("203.0.113.1")))
		require.Len(t, e.Listings(), 1)

		require.NoError(t, e.Ban(p, time.Hour, ""))
		require.NoError(t, e.Deny())
		require.Equal(t, time.Hour, e.Evaluate(addr("203.0.113.1")).RetryAfter, "the ban outlives the list")
		require.True(t, e.Unban(p))
		require.Empty(t, e.Listings())
	})
}

func wall(list []engine.Listing) []engine.Listing {
	for i := range list {
		if !list[i].Until.IsZero() {
			list[i].Until = list[i].Until.Round(0).Local()
		}
	}
	return list
}

// What a list says is not in a snapshot, so that it goes when the list does.
func TestDenyIsNoState(t *testing.T) {
	e := newEngine(t, engine.Config{})
	require.NoError(t, e.Deny(prefix("203.0.113.0/24"), prefix("192.0.2.0/24")))
	require.NoError(t, e.Ban(prefix("192.0.2.0/24"), 0, "by hand"))
	var saved bytes.Buffer
	require.NoError(t, e.WriteSnapshot(&saved))
	fresh := newEngine(t, engine.Config{})
	require.NoError(t, fresh.ReadSnapshot(&saved))
	require.Equal(t, []engine.Listing{{Kind: engine.Banned, Prefix: prefix("192.0.2.0/24"), Note: "by hand"}}, fresh.Listings())
}

func TestWatchHearsOfDeny(t *testing.T) {
	e := lockingEngine(t)
	d := &diary{e: e}
	e.Watch(d.note)
	require.NoError(t, e.Deny(prefix("10.0.0.0/8")))
	require.NoError(t, e.Deny(prefix("11.0.0.0/8")))
	never := "banned=" + policy.Never.String()
	require.Equal(t, []string{
		"10.0.0.0/8 lifted=false exempt=false " + never,
		"11.0.0.0/8 lifted=false exempt=false " + never,
		"10.0.0.0/8 lifted=false exempt=false banned=0s",
	}, d.told())
}
