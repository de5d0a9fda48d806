// Package policy says what an endpoint may do and what happens when it does
// more. It stands above tokenbucket and below shard in the chain netx ->
// engine -> shard -> policy -> tokenbucket, and like tokenbucket it is pure: a
// [Decision] is a function of the rule, the state, the time and the packet.
//
// A [Policy] is what a person writes: a packet budget, perhaps a byte budget,
// and an [Escalation]. [Policy.Compile] turns it once into a [Rule]. An
// endpoint is open while its tokens last, is throttled softly beyond them, and
// after enough denials within a window is locked out for a while:
//
//	open --no tokens--> soft denial --MaxSoftViolations in Window--> locked --Lockout--> open
//
// The invariant: a denial charges nothing, and a lockout ends at the time that
// it was given when it began, whatever the endpoint sends meanwhile.
package policy

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// Never is the RetryAfter of a request that can never pass.
const Never = tokenbucket.Never

// What the zero fields of a Policy mean.
const (
	DefaultCapacity          = 64
	DefaultRefillPerSecond   = 32
	DefaultMaxSoftViolations = 5
	DefaultWindow            = 8 * time.Second
	DefaultLockout           = 30 * time.Second
	DefaultMaxLockout        = time.Hour
	DefaultForgetAfter       = 10 * time.Minute
)

// MaxGrowth is the largest [Escalation.Growth].
const MaxGrowth = 1000

// A Policy is a named rule. The zero value is a valid policy: 64 packets at
// once, 32 a second, and the default [Escalation].
type Policy struct {
	Name string
	// Packets is the budget of packets, connections or requests: one token
	// for each. Zero Capacity and RefillPerSecond mean 64 and 32.
	Packets tokenbucket.Limit
	// Bytes is the budget of payload bytes, one token for each; nil means
	// none. Its Capacity and RefillPerSecond have no defaults. Both budgets
	// are tested before either is charged.
	Bytes      *tokenbucket.Limit
	Escalation Escalation
	// DryRun makes this a trial: everything is decided and counted as ever, and
	// whoever acts on the decisions lets pass what is denied, by a ban or the
	// list of the denied, too. [Rule] does not look at it.
	DryRun bool
}

// An Escalation says when soft throttling turns into a lockout. The zero value
// stands for the values named at the fields.
type Escalation struct {
	// MaxSoftViolations is the number of denials within Window of which the
	// last is already a lockout; 0 means 5.
	MaxSoftViolations int
	// Window is opened by the first denial; a denial at or after its end
	// opens a new one. 0 means 8 s.
	Window time.Duration
	// Lockout is the length of a lockout, 0 meaning 30 s.
	Lockout time.Duration
	// Growth multiplies the length for each lockout in a row, 1..1000;
	// 0 means 1, always Lockout.
	Growth float64
	// MaxLockout caps the growth; 0 means the larger of 1 h and Lockout.
	MaxLockout time.Duration
	// ForgetAfter is the time from the end of a lockout after which the next
	// one has the first length again; 0 means 10 min.
	ForgetAfter time.Duration
	// Spacing makes denials that follow the last counted one by less than it
	// not count; 0 counts each. It also merges what one burst denies.
	Spacing time.Duration
	// ResetOnSuccess lets an allowed packet clear the count.
	ResetOnSuccess bool
	// Disabled leaves soft throttling alone: nothing is ever locked out.
	Disabled bool
}

// WithDefaults returns the policy with its zero fields filled in.
func (p Policy) WithDefaults() Policy {
	setDefault(&p.Packets.Capacity, DefaultCapacity)
	setDefault(&p.Packets.RefillPerSecond, DefaultRefillPerSecond)
	setDefault(&p.Packets.Scale, tokenbucket.DefaultScale)
	if p.Bytes != nil {
		limit := *p.Bytes
		setDefault(&limit.Scale, tokenbucket.DefaultScale)
		p.Bytes = &limit
	}
	e := &p.Escalation
	setDefault(&e.MaxSoftViolations, DefaultMaxSoftViolations)
	setDefault(&e.Window, DefaultWindow)
	setDefault(&e.Lockout, DefaultLockout)
	setDefault(&e.Growth, 1)
	setDefault(&e.MaxLockout, max(DefaultMaxLockout, e.Lockout))
	setDefault(&e.ForgetAfter, DefaultForgetAfter)
	return p
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate reports every field that is out of its range, joined into one error
// whose lines begin with the path of the field.
func (p Policy) Validate() error {
	p = p.WithDefaults()
	errs := []error{prefix("Packets", p.Packets.Validate())}
	if p.Bytes != nil {
		errs = append(errs, prefix("Bytes", p.Bytes.Validate()))
	}
	return errors.Join(append(errs, prefix("Escalation", p.Escalation.validate()))...)
}

func (e Escalation) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(e.MaxSoftViolations > 0 && e.MaxSoftViolations <= math.MaxInt32,
		"MaxSoftViolations: %d is outside 1..%d", e.MaxSoftViolations, math.MaxInt32)
	check(e.Window > 0, "Window: %v is not positive", e.Window)
	check(e.Lockout > 0, "Lockout: %v is not positive", e.Lockout)
	check(e.Growth >= 1 && e.Growth <= MaxGrowth, "Growth: %v is outside 1..%d", e.Growth, MaxGrowth)
	check(e.MaxLockout >= e.Lockout, "MaxLockout: %v is below Lockout, %v", e.MaxLockout, e.Lockout)
	check(e.ForgetAfter > 0, "ForgetAfter: %v is not positive", e.ForgetAfter)
	check(e.Spacing >= 0, "Spacing: %v is negative", e.Spacing)
	return errors.Join(errs...)
}

// prefix puts path before each of the errors that err joins.
func prefix(path string, err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	var errs []error
	for _, e := range joined.Unwrap() {
		errs = append(errs, fmt.Errorf("%s.%w", path, e))
	}
	return errors.Join(errs...)
}
