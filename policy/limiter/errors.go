package limiter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"time"
)

// ErrClosed is what a closed limiter answers. It matches net.ErrClosed.
var ErrClosed = fmt.Errorf("limiter: %w", net.ErrClosed)

// A PermitError says that a call asked for fewer than 0 permits, or for more
// than the limiter can ever give. It counts in no statistic. It is returned as
// a value; errors.As finds it for a target of type *PermitError as well.
type PermitError struct {
	Asked int
	Limit int // the most that one call may ask for
}

// Error says what was asked for and what may be.
func (e PermitError) Error() string {
	return fmt.Sprintf("limiter: %d permits asked for, outside 0..%d", e.Asked, e.Limit)
}

// As sets a target of type **PermitError.
func (e PermitError) As(target any) bool {
	t, ok := target.(**PermitError)
	if ok {
		*t = &e
	}
	return ok
}

// ended is the error of a context that is done, nil where it is not.
func ended(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// problems collects what is wrong with the options of a constructor.
type problems []error

func (p *problems) check(ok bool, format string, args ...any) {
	if !ok {
		*p = append(*p, fmt.Errorf("limiter: "+format, args...))
	}
}

func (p *problems) positive(name string, n int) {
	p.check(n > 0, "%s: %d is outside 1..%d", name, n, math.MaxInt)
}

func (p *problems) duration(name string, d time.Duration) {
	p.check(d > 0, "%s: %v is not positive", name, d)
}

func (p *problems) queue(q Queue) {
	p.check(q.Limit >= 0, "Queue.Limit: %d is negative", q.Limit)
	p.check(q.Order <= NewestFirst, "Queue.Order: %d is neither OldestFirst nor NewestFirst", q.Order)
	p.check(q.MaxWait >= 0, "Queue.MaxWait: %v is negative", q.MaxWait)
}

func (p problems) err() error { return errors.Join(p...) }
