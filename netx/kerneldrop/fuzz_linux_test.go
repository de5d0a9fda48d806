package kerneldrop

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// A world is an engine and its copy in the kernel, over few addresses that have
// many prefixes in common.
type world struct {
	e        *engine.Engine
	table    *Table
	policies []policy.Policy
	filters  [2]*Filter // of policies 1 and 2
	lists    engine.PolicyID
	known    map[netip.Prefix]bool
	exempt   []netip.Prefix
	denied   []netip.Prefix
}

func newWorld(t testing.TB, ipv4, ipv6 int) *world {
	w := &world{known: make(map[netip.Prefix]bool)}
	for _, name := range []string{"a", "b", "lists"} {
		p := policy.Policy{
			Name:       name,
			Packets:    tokenbucket.Limit{Capacity: 2, RefillPerSecond: 1e-6},
			Escalation: policy.Escalation{MaxSoftViolations: 1, Lockout: time.Hour},
		}
		if name == "lists" { // denies none but the banned
			p.Packets = tokenbucket.Limit{Capacity: tokenbucket.MaxCapacity, RefillPerSecond: 1e9}
		}
		w.policies = append(w.policies, p)
	}
	var err error
	w.e, err = engine.New(engine.Config{Policies: w.policies, IPv4Prefix: ipv4, IPv6Prefix: ipv6, Load: engine.NoLoad, Shards: 1})
	require.NoError(t, err)
	t.Cleanup(func() { w.e.Close() })
	w.table = newTable(t, Config{Engine: w.e, Endpoints: 1 << 12, Prefixes: 1 << 12})
	for i, name := range []string{"a", "b"} {
		id, _ := w.e.Policy(name)
		w.filters[i] = newFilter(t, w.table, id)
	}
	w.lists, _ = w.e.Policy("lists")
	return w
}

// reset takes the world back to where nobody is known.
func (w *world) reset(t testing.TB) {
	require.NoError(t, w.e.SetPolicies(policy.Policy{}, nil))
	require.NoError(t, w.e.SetPolicies(policy.Policy{}, w.policies))
	w.exempt, w.denied = nil, nil
	require.NoError(t, w.e.Exempt())
	require.NoError(t, w.e.Deny())
	for p := range w.known {
		w.e.Unban(p)
	}
	clear(w.known)
	prefixes, endpoints := w.table.sizes(t)
	require.Zero(t, prefixes+endpoints)
}

// address makes one of 64 addresses of a byte.
func address(b byte) netip.Addr {
	x := b >> 1 & 0x1f
	if b&1 == 0 {
		return netip.AddrFrom4([4]byte{10, x & 0x18 << 3, x & 4 << 5, x&2<<6&0x80 | x&1})
	}
	return netip.AddrFrom16([16]byte{0: 0x20, 7: x & 0x18 << 3, 8: x & 4 << 5, 15: x & 3})
}

// step does what three bytes say.
func (w *world) step(t testing.TB, op, who, length byte) {
	a := address(who)
	p := netip.PrefixFrom(a, int(length)%(a.BitLen()+1)).Masked()
	f := w.filters[op>>3&1]
	switch op & 7 {
	case 0, 1, 2: // lock out
		ep := netip.AddrPortFrom(a, 1)
		for range 3 {
			w.e.EvaluatePolicy(ep, f.policy)
		}
		w.table.admit(offer{ep, f.policy})
	case 3:
		w.known[p] = true
		require.NoError(t, w.e.Ban(p, 0, ""))
	case 4:
		w.known[p] = true
		require.NoError(t, w.e.Ban(p, time.Hour, ""))
		w.denied = append(w.denied, p)[max(0, len(w.denied)-3):]
		require.NoError(t, w.e.Deny(w.denied...))
	case 5:
		w.e.Unban(p)
	case 6:
		w.exempt = append(w.exempt, p)
		require.NoError(t, w.e.Exempt(w.exempt...))
	case 7:
		w.exempt = w.exempt[len(w.exempt)/2:]
		require.NoError(t, w.e.Exempt(w.exempt...))
	}
}

// compare holds every verdict of the filters against the engine's decision:
// what is dropped would be denied with a HardLockout, and whoever is banned or
// was offered while locked out is dropped.
func (w *world) compare(t testing.TB) {
	var offered [64][2]bool // before the comparison itself locks anybody out
	for who := range byte(64) {
		for i, f := range w.filters {
			offered[who][i] = w.e.LockedFor(netip.AddrPortFrom(address(who), 1), f.policy) > 0
		}
	}
	for who := range byte(64) {
		a := address(who)
		ep := netip.AddrPortFrom(a, 1)
		listed := w.e.EvaluatePolicy(ep, w.lists)
		for i, f := range w.filters {
			dropped := f.drops(t, a)
			d := w.e.EvaluatePolicy(ep, f.policy)
			if dropped {
				require.Equal(t, policy.HardLockout, d.Reason, "%v is dropped; engine: %+v", a, d)
			} else {
				require.True(t, listed.Allowed, "%v is banned and not dropped", a)
				require.False(t, offered[who][i] && !d.Allowed, "%v is locked out and not dropped", a)
			}
		}
	}
}

// FuzzVerdict compares kernel and engine after any sequence of lockouts, bans,
// exemptions and their ends.
func FuzzVerdict(f *testing.F) {
	worlds := []*world{newWorld(f, 32, 64), newWorld(f, 24, 56), newWorld(f, 32, 128), newWorld(f, 9, 70)}
	f.Add([]byte{0})
	f.Add([]byte{1, 0, 2, 0, 3, 2, 24, 6, 2, 32})                    // an exempt address in a banned prefix
	f.Add([]byte{0, 0, 1, 0, 3, 5, 128, 5, 1, 64})                   // a banned address in a locked endpoint, which is lifted
	f.Add([]byte{2, 3, 0, 0, 3, 1, 0, 6, 1, 0, 3, 1, 128, 7, 0, 0})  // all of a family
	f.Add([]byte{3, 8, 4, 0, 0, 4, 0, 5, 4, 32, 8, 4, 0, 5, 4, 200}) // under two policies
	f.Fuzz(func(t *testing.T, ops []byte) {
		if len(ops) == 0 {
			return
		}
		w := worlds[int(ops[0])%len(worlds)]
		w.reset(t)
		for ops = ops[1:min(len(ops), 91)]; len(ops) >= 3; ops = ops[3:] {
			w.step(t, ops[0], ops[1], ops[2])
		}
		w.compare(t)
	})
}
