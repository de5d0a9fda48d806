package config

import (
	"cmp"
	"math"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// defaultPolicy is the name of the policy that needs no entry in a file.
const defaultPolicy = "default"

// minByteBurst is the least byte capacity that a refill alone stands for: any
// datagram fits.
const minByteBurst = 64 << 10

// policies reads the list of policies into c.
func (d *decoder) policies(c *engine.Config, v value) {
	names := map[string]int{}
	list(func(d *decoder, v value) {
		p, ok := d.policy(v)
		if !ok {
			return
		}
		line, _ := position(v.node)
		if first, twice := names[p.Name]; twice {
			d.wrong(v, "a second policy %q, first in line %d; allowed: one for each name", p.Name, first)
			return
		}
		names[p.Name] = line
		if p.Name == defaultPolicy {
			c.Default = p
		} else {
			c.Policies = append(c.Policies, p)
		}
	})(d, v)
}

// policy reads an entry; ok is false where it has no usable name.
func (d *decoder) policy(v value) (p policy.Policy, ok bool) {
	at := places{}
	read := d.mapping(v, at, []field{
		{"name", "Name", name(&p.Name)},
		{"capacity", "Packets.Capacity", orElse(&p.Packets.Capacity, tokenbucket.MaxCapacity, count(&p.Packets.Capacity))},
		{"refill", "Packets.RefillPerSecond", rate(&p.Packets.RefillPerSecond)},
		{"scale", "Packets.Scale", count(&p.Packets.Scale)},
		{"dry_run", "", truth(&p.DryRun)},
		{"initial", "Packets.Initial", initial(&p.Packets.Initial)},
		{"bytes", "", func(d *decoder, v value) { p.Bytes = d.bytes(v, at) }},
		{"violations", "", func(d *decoder, v value) { d.violations(&p.Escalation, v, at) }},
		{"lockout", "", func(d *decoder, v value) { d.lockout(&p.Escalation, v, at) }},
	})
	if !read {
		return p, false
	}
	d.explain(p.Validate(), at, v)
	d.required(v, at, "Name")
	return p, p.Name != ""
}

// initial reads what a bucket holds at first sight.
func initial(to *int64) func(*decoder, value) {
	const allowed = "full, empty, or a whole number of tokens of 1 or more"
	return func(d *decoder, v value) {
		text, _, ok := d.single(v, allowed)
		if !ok {
			return
		}
		switch text {
		case "full":
			*to = 0
			return
		case "empty":
			*to = tokenbucket.Empty
			return
		}
		n, err := parseCount(text, allowed)
		switch {
		case err != nil:
			d.wrong(d.resolve(v), "%s", err)
		case n == 0:
			d.wrong(d.resolve(v), "0 has no meaning here; allowed: %s", allowed)
		default:
			*to = n
		}
	}
}

// bytes reads the byte budget. A refill alone is enough: its capacity is then
// what comes in a tenth of a second.
func (d *decoder) bytes(v value, at places) *tokenbucket.Limit {
	var l tokenbucket.Limit
	ok := d.mapping(v, at, []field{
		{"capacity", "Bytes.Capacity", orElse(&l.Capacity, tokenbucket.MaxCapacity, size(&l.Capacity))},
		{"refill", "Bytes.RefillPerSecond", orElse(&l.RefillPerSecond, 1, byteRate(&l.RefillPerSecond))},
	})
	if !ok || !d.required(v, at, "Bytes.RefillPerSecond") {
		return nil
	}
	tenth := math.Ceil(min(l.RefillPerSecond, tokenbucket.MaxRefillPerSecond) / 10)
	l.Capacity = cmp.Or(l.Capacity, max(minByteBurst, int64(tenth)))
	return &l
}

func (d *decoder) violations(e *policy.Escalation, v value, at places) {
	d.mapping(v, at, []field{
		{"max", "Escalation.MaxSoftViolations", count(&e.MaxSoftViolations)},
		{"window", "Escalation.Window", duration(&e.Window)},
		{"spacing", "Escalation.Spacing", durationOrZero(&e.Spacing)},
		{"reset_on_success", "Escalation.ResetOnSuccess", truth(&e.ResetOnSuccess)},
	})
}

func (d *decoder) lockout(e *policy.Escalation, v value, at places) {
	fields := []field{
		{"base", "Escalation.Lockout", orElse(&e.Lockout, 1, duration(&e.Lockout))},
		{"growth", "Escalation.Growth", parsed(&e.Growth, allowedFactor, positive(parseFactor))},
		{"max", "Escalation.MaxLockout", orElse(&e.MaxLockout, math.MaxInt64, duration(&e.MaxLockout))},
		{"forget_after", "Escalation.ForgetAfter", duration(&e.ForgetAfter)},
	}
	if word, _, single := scalar(d.resolve(v).node); single {
		if e.Disabled = word == "off"; !e.Disabled {
			d.wrong(d.resolve(v), "%s is not known; allowed: off, or a mapping with the keys %s", describe(d.resolve(v).node), keys(fields))
		}
		return
	}
	d.mapping(v, at, fields)
}

// orElse gives the target of a reader a value that no rule about it and another
// field objects to, for the case that the one in the file is wrong.
func orElse[T any](to *T, standIn T, read func(*decoder, value)) func(*decoder, value) {
	return func(d *decoder, v value) {
		*to = standIn
		read(d, v)
	}
}
