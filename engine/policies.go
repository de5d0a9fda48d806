package engine

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"

	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/shard"
)

// A PolicyID stands for a named policy of an engine. The zero PolicyID is the
// default policy. It is valid as long as there is a policy of the name.
type PolicyID uint32

const maxPolicyID = shard.MaxPolicies - 1

// names is what the engine knows of its policies. It is immutable.
type names struct {
	ids   map[string]PolicyID // also of policies that are no more, so that an id is never given out twice
	rules []*policy.Rule      // by id; nil where the policy is no more
}

func (n *names) rule(id PolicyID) *policy.Rule {
	if id >= PolicyID(len(n.rules)) { // int(id) may be negative where it has 32 bits
		return nil
	}
	return n.rules[id]
}

// compile returns the policies that follow old, which may be nil. A policy
// that stays as it was keeps its very rule, so that nothing has to be settled.
func compile(old *names, def policy.Policy, named []policy.Policy) (*names, error) {
	if old == nil {
		old = &names{rules: make([]*policy.Rule, 1)}
	}
	n := &names{ids: maps.Clone(old.ids), rules: make([]*policy.Rule, len(old.rules))}
	if n.ids == nil {
		n.ids = make(map[string]PolicyID)
	}
	if def.Name == "" {
		def.Name = "default"
	}
	errs := []error{n.setDefault(old, def)}
	seen := map[string]bool{def.Name: true}
	for i, p := range named {
		switch {
		case p.Name == "":
			errs = append(errs, fmt.Errorf("engine: Policies[%d]: Name: a named policy needs one", i))
			continue
		case seen[p.Name]:
			errs = append(errs, fmt.Errorf("engine: Policies[%d]: Name: there is another policy %q", i, p.Name))
			continue
		}
		seen[p.Name] = true
		id, ok := n.ids[p.Name]
		if !ok {
			id = PolicyID(len(n.rules))
			n.rules = append(n.rules, nil)
			n.ids[p.Name] = id
		}
		if id > maxPolicyID {
			return nil, fmt.Errorf("engine: Policies[%d]: %q would be the name of a policy number %d; an engine can have seen %d", i, p.Name, id, maxPolicyID)
		}
		errs = append(errs, n.set(id, old, p))
	}
	return n, errors.Join(errs...)
}

// setDefault sets the default policy. One that was a named policy before stays
// under that id, too, with what is remembered there, for those who hold the id.
func (n *names) setDefault(old *names, p policy.Policy) error {
	if err := n.set(0, old, p); err != nil {
		return err
	}
	if id, ok := n.ids[p.Name]; ok {
		return n.set(id, old, p)
	}
	return nil
}

func (n *names) set(id PolicyID, old *names, p policy.Policy) error {
	if was := old.rule(id); was != nil && reflect.DeepEqual(was.Policy(), p.WithDefaults()) {
		n.rules[id] = was
		return nil
	}
	rule, err := p.Compile()
	if err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	n.rules[id] = rule
	return nil
}

// id returns the id of the policy of the name.
func (n *names) id(name string) (PolicyID, bool) {
	if n.rules[0].Policy().Name == name {
		return 0, true
	}
	id, ok := n.ids[name]
	return id, ok && n.rules[id] != nil
}

// Policy returns the id of the policy of the name, which may be that of the
// default policy. The id stays valid over SetPolicies while the name does.
func (e *Engine) Policy(name string) (PolicyID, bool) { return e.names.Load().id(name) }

// SetPolicies replaces all policies while the engine runs. Time that has
// elapsed is settled at the old rates; tokens, lockouts and counts stay as they
// are, and a larger capacity adds no tokens. What was remembered under a policy
// that is no more is forgotten. On an error nothing changes.
func (e *Engine) SetPolicies(def policy.Policy, named []policy.Policy) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed.Load() {
		return ErrClosed
	}
	policies, err := compile(e.names.Load(), def, named)
	if err != nil {
		return err
	}
	at, _ := e.now()
	e.table.SetRules(policies.rules, at)
	e.names.Store(policies)
	e.changed(netip.Prefix{}, true)
	return nil
}
