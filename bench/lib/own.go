package main

import (
	"time"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// A path is one way through a decision.
type path struct {
	name     string
	capacity int64 // of each endpoint's bucket; next to no refill
	lockout  bool
	own      bool // other libraries have nothing like it
	arriving bool // each decision measured is on a key that has not been there
	full     bool // newcomers to a table that holds as many others as it may
}

var paths = []path{
	{name: "allowed", capacity: plenty},
	{name: "denied", capacity: 1},
	{name: "locked out", capacity: 1, lockout: true, own: true},
	{name: "new", capacity: plenty, own: true, arriving: true},
	{name: "table full", capacity: 1, own: true, full: true},
}

func (p path) policy() policy.Policy {
	return policy.Policy{
		Packets:    tokenbucket.Limit{Capacity: p.capacity, RefillPerSecond: 1e-6},
		Escalation: policy.Escalation{Disabled: !p.lockout, MaxSoftViolations: 1, Lockout: time.Hour},
	}
}

// newEngine makes a table for as many endpoints as there are keys, and for the
// path that needs it fills it with others.
func newEngine(k *keys, p path) *engine.Engine {
	e := must(engine.New(engine.Config{
		Default:             p.policy(),
		MaxTrackedEndpoints: len(k.endpoints),
		KeyByPort:           true,
		Load:                engine.NoLoad,
	}))
	if p.full {
		for _, ep := range newKeys(len(k.endpoints)).endpoints {
			e.Evaluate(ep)
		}
	}
	return e
}

func newSingle(k *keys, p path) table {
	e := newEngine(k, p)
	return each(func(i int) bool { return e.Evaluate(k.endpoints[i]).Allowed }, func() { check(e.Close()) })
}

// newBatches fills in the requests within the measurement, as a caller has to.
func newBatches(k *keys, p path) table {
	e := newEngine(k, p)
	return table{end: func() { check(e.Close()) }, decide: func(from, to int) (allowed int) {
		var reqs [chunk]engine.Request
		var out [chunk]policy.Decision
		n := to - from
		for i := range n {
			reqs[i].Endpoint = k.endpoints[from+i]
		}
		e.EvaluateBatch(reqs[:n], out[:n])
		for i := range n {
			if out[i].Allowed {
				allowed++
			}
		}
		return allowed
	}}
}
