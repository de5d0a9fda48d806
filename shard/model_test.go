package shard

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// A model is a table of one shard with EvictIdle, made of a Go map.
type model struct {
	rules    []*policy.Rule
	limit    int
	entries  map[Key]*modelEntry
	overflow []modelEntry
}

type modelEntry struct {
	state   policy.State
	history policy.History
}

func newModel(limit int, rules []*policy.Rule) *model {
	m := &model{rules: rules, limit: limit, entries: map[Key]*modelEntry{}}
	for _, r := range rules {
		m.overflow = append(m.overflow, *newEntry(r, policy.Instant{}))
	}
	return m
}

func newEntry(r *policy.Rule, at policy.Instant) *modelEntry {
	return &modelEntry{r.New(at), r.NewHistory(at)}
}

// idle returns those who have nothing to be remembered by.
func (m *model) idle(at policy.Instant) (keys []Key) {
	for k, e := range m.entries {
		if m.rules[k.Policy].ForgetIn(&e.state, &e.history, at) == 0 {
			keys = append(keys, k)
		}
	}
	return keys
}

// place finds or makes the entry of the key in the model, giving up what the
// table gave up for it. It returns nil where there is no room.
func (m *model) place(t *testing.T, table *Table, k Key, at policy.Instant) *modelEntry {
	t.Helper()
	if e, ok := m.entries[k]; ok {
		return e
	}
	if len(m.entries) == m.limit {
		idle := m.idle(at)
		require.Equal(t, len(idle) > 0, tracked(table, k), "there are %d to give up", len(idle))
		if len(idle) == 0 {
			return nil
		}
		var gone []Key
		for _, k := range idle {
			if !tracked(table, k) {
				gone = append(gone, k)
			}
		}
		require.Len(t, gone, 1)
		delete(m.entries, gone[0])
	}
	m.entries[k] = newEntry(m.rules[k.Policy], at)
	return m.entries[k]
}

func (m *model) decide(t *testing.T, table *Table, k Key, at policy.Instant, n int64) {
	t.Helper()
	got, ok := table.Decide(k, at, n)
	require.True(t, ok)
	rule := m.rules[k.Policy]
	e := m.place(t, table, k, at)
	if e == nil {
		o := &m.overflow[k.Policy]
		require.Equal(t, rule.Take(&o.state, &o.history, at, n), got, "overflow")
		return
	}
	want := rule.Take(&e.state, &e.history, at, n)
	if want.Reason == policy.SoftThrottle {
		want = rule.Escalate(&e.state, &e.history, at, want)
	}
	require.Equal(t, want, got)
}

func (m *model) takeBytes(t *testing.T, table *Table, k Key, at policy.Instant, n int64) {
	t.Helper()
	took, wait, ok := table.TakeBytes(k, at, n)
	require.True(t, ok)
	rule := m.rules[k.Policy]
	if !rule.HasBytes() {
		require.Equal(t, n, took)
		return
	}
	e := m.place(t, table, k, at)
	if e == nil {
		e = &m.overflow[k.Policy]
	}
	wantTook, wantWait := rule.TakeBytes(&e.history, at, n)
	require.Equal(t, wantTook, took)
	require.Equal(t, wantWait, wait)
}

func (m *model) sweep(t *testing.T, table *Table, at policy.Instant, stale time.Duration) {
	t.Helper()
	for slot := 0; slot != Done; {
		slot = table.Sweep(0, slot, 3, at, stale)
	}
	for k, e := range m.entries {
		if m.rules[k.Policy].Stale(&e.state, &e.history, at, stale) {
			delete(m.entries, k)
		}
	}
}

func (m *model) pardon(t *testing.T, table *Table, k Key, at policy.Instant) {
	t.Helper()
	e, ok := m.entries[k]
	locked := ok && at.Now < e.state.LockedUntil
	require.Equal(t, locked, table.Pardon(k, at))
	if locked {
		policy.Pardon(&e.state, &e.history)
	}
}

func (m *model) setRules(table *Table, rules []*policy.Rule, at policy.Instant) {
	table.SetRules(rules, at)
	settle := func(i uint16, e *modelEntry) {
		if m.rules[i] != rules[i] {
			e.state, e.history = rules[i].Restore(m.rules[i].Save(&e.state, &e.history, at), at, 0)
		}
	}
	for k, e := range m.entries {
		settle(k.Policy, e)
	}
	for i := range m.overflow {
		settle(uint16(i), &m.overflow[i])
	}
	m.rules = rules
}

// check compares what is tracked.
func (m *model) check(t *testing.T, table *Table) {
	t.Helper()
	require.Len(t, m.entries, table.Len())
	require.LessOrEqual(t, table.Len(), m.limit)
	for k := range m.entries {
		require.True(t, tracked(table, k), "%v", k)
	}
}

// randomDuration is spread over the orders of magnitude up to an hour.
func randomDuration(r *rand.Rand) time.Duration {
	scale := []time.Duration{time.Nanosecond, time.Millisecond, 50 * time.Millisecond, time.Second, time.Minute, time.Hour}
	return 1 + time.Duration(r.Int64N(int64(scale[r.IntN(len(scale))])))
}

func randomRule(t *testing.T, r *rand.Rand) *policy.Rule {
	p := policy.Policy{
		Packets: tokenbucket.Limit{
			Capacity: 1 + r.Int64N(4), RefillPerSecond: 0.01 + 100*r.Float64()*r.Float64(), Initial: r.Int64N(3) - 1,
		},
		Escalation: policy.Escalation{
			MaxSoftViolations: 1 + r.IntN(3),
			Window:            randomDuration(r),
			Lockout:           randomDuration(r),
			MaxLockout:        2 * time.Hour,
			Growth:            float64(r.IntN(3)),
			ForgetAfter:       randomDuration(r),
			ResetOnSuccess:    r.IntN(2) == 0,
			Disabled:          r.IntN(5) == 0,
		},
	}
	if r.IntN(3) == 0 {
		p.Escalation.Spacing = randomDuration(r)
	}
	if r.IntN(3) == 0 {
		p.Bytes = &tokenbucket.Limit{Capacity: 1 + r.Int64N(100), RefillPerSecond: 0.1 + 1000*r.Float64()*r.Float64()}
	}
	return compile(t, p)
}

func randomRules(t *testing.T, r *rand.Rand, n int) []*policy.Rule {
	var rules []*policy.Rule
	for range n {
		rules = append(rules, randomRule(t, r))
	}
	return rules
}

// The table against a Go map, over everything that happens to it: which
// decision, who is tracked, and that somebody makes room where somebody can.
func TestTableAgainstMap(t *testing.T) {
	for seed := range uint64(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 7))
			rules := randomRules(t, r, 1+r.IntN(3))
			m := newModel(1+r.IntN(24), rules)
			table := newTable(Config{Limit: m.limit}, rules...)
			hosts := 1 + r.IntN(2*m.limit)
			ratio := r.Float64()
			var at policy.Instant
			for range 1000 {
				k := under(host(r.IntN(hosts)), r.IntN(len(rules)))
				switch r.IntN(40) {
				case 0:
					m.sweep(t, table, at, randomDuration(r))
				case 1:
					m.pardon(t, table, k, at)
				case 2:
					if r.IntN(4) == 0 {
						next := randomRules(t, r, len(rules))
						if r.IntN(2) == 0 {
							next[0] = m.rules[0] // as it is
						}
						m.setRules(table, next, at)
					}
				case 3, 4:
					m.takeBytes(t, table, k, at, r.Int64N(120))
				case 5, 6, 7, 8, 9, 10:
					step := randomDuration(r)
					at.Now += int64(step)
					at.Refill += int64(ratio * float64(step))
				default:
					m.decide(t, table, k, at, r.Int64N(120))
				}
			}
			m.check(t, table)
		})
	}
}
