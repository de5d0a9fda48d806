package kerneldrop

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
)

// Under a policy that is a dry run the kernel drops nothing, whatever keeps
// somebody out, from the moment that the policy is one; and those of others are
// dropped as before.
func TestDryRunDropsNothing(t *testing.T) {
	e := newEngine(t, engine.Config{}, 3, time.Hour)
	other, _ := e.Policy("other")
	table := newTable(t, Config{Engine: e})
	f, g := newFilter(t, table, 0), newFilter(t, table, other)
	require.NoError(t, e.Ban(prefix("10.0.0.0/8"), 0, ""))
	require.NoError(t, e.Deny(prefix("172.16.0.0/12")))
	lockOut(t, f, "192.0.2.1")
	lockOut(t, g, "192.0.2.1")
	all := map[string]bool{"192.0.2.1": true, "10.0.0.1": true, "172.16.0.1": true}
	none := map[string]bool{"192.0.2.1": false, "10.0.0.1": false, "172.16.0.1": false}
	verdicts(t, f, all)
	verdicts(t, g, all)
	c := e.Config()
	trial := c.Policies[0]
	trial.DryRun = true
	for range 3 {
		require.NoError(t, e.SetPolicies(c.Default, []policy.Policy{trial}))
		verdicts(t, f, all)
		verdicts(t, g, none)
		verdicts(t, newFilter(t, table, other), none)
		table.admit(offer{at("192.0.2.1"), other}) // one that was denied before
		verdicts(t, g, none)

		require.NoError(t, e.SetPolicies(c.Default, c.Policies))
		verdicts(t, f, all)
		verdicts(t, g, map[string]bool{"192.0.2.1": false, "10.0.0.1": true, "172.16.0.1": true})
		table.admit(offer{at("192.0.2.1"), other})
		verdicts(t, g, all)
	}
}
