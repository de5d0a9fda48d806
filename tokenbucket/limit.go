package tokenbucket

import (
	"errors"
	"fmt"
	"math"
)

// DefaultScale is the number of micro-tokens in a token where a Limit names
// none.
const DefaultScale = 100

// Empty as [Limit.Initial] lets a bucket start without a token.
const Empty = -1

// The ranges that [Limit.Validate] holds a Limit to.
const (
	MaxCapacity        = 1<<31 - 1
	MinRefillPerSecond = 1e-6
	MaxRefillPerSecond = 1e9
	MaxScale           = 1_000_000
)

// A Limit is a rate and a burst as a person writes them. The zero value is not
// a usable limit: Capacity and RefillPerSecond have no default here.
type Limit struct {
	// Capacity is the burst in tokens, 1..2^31-1.
	Capacity int64
	// RefillPerSecond is the rate in tokens per second, 1e-6..1e9.
	RefillPerSecond float64
	// Scale is the number of micro-tokens in a token, 1..1_000_000;
	// 0 means DefaultScale.
	Scale int64
	// Initial is what a bucket holds at first sight, in tokens, at most
	// Capacity; 0 means full, Empty none.
	Initial int64
}

// Validate reports every field that is out of its range, joined into one error.
func (l Limit) Validate() error {
	var errs []error
	if l.Capacity < 1 || l.Capacity > MaxCapacity {
		errs = append(errs, fmt.Errorf("Capacity: %d is outside 1..%d", l.Capacity, MaxCapacity))
	}
	if r := l.RefillPerSecond; math.IsNaN(r) || r < MinRefillPerSecond || r > MaxRefillPerSecond {
		errs = append(errs, fmt.Errorf("RefillPerSecond: %v is outside %g..%g", r, MinRefillPerSecond, MaxRefillPerSecond))
	}
	if l.Scale < 0 || l.Scale > MaxScale {
		errs = append(errs, fmt.Errorf("Scale: %d is outside 1..%d (0 means %d)", l.Scale, MaxScale, DefaultScale))
	}
	if l.Initial < Empty || l.Initial > max(l.Capacity, 0) {
		errs = append(errs, fmt.Errorf("Initial: %d is outside 1..Capacity (0 means full, %d empty)", l.Initial, Empty))
	}
	return errors.Join(errs...)
}
