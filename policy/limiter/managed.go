package limiter

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// A ManagedLifetime is a limiter that is in use until somebody closes it: a
// [Partitioned] forgets it then and not before. It is what ties a key to the
// life of something else, a session or a tenant.
//
// It passes everything on to the limiter inside, with its leases. It is a
// [Replenisher] whatever is inside: one that is none is automatic and has a
// period of [Never]. Use Managed; the zero value is of no use.
type ManagedLifetime struct {
	inner  Limiter
	closed atomic.Bool
}

// Managed returns a limiter that owns inner. Idle is false until Close, which
// closes inner; the partition goes at the next sweep, and the key is new again
// at once. Managed panics where inner is nil.
func Managed(inner Limiter) *ManagedLifetime {
	if inner == nil {
		panic("limiter: Managed of nil")
	}
	return &ManagedLifetime{inner: inner}
}

// ManagedPartition returns a partition whose limiter is [Managed]. register is
// called with each before the first call for its key is answered, so that
// somebody can close it. Where it returns an error the limiter is closed, the
// call gets the error, and the next call tries anew; to refuse a key that is
// registered already is its to decide.
func ManagedPartition[K comparable](key K, factory func(K) (Limiter, error), register func(*ManagedLifetime, K) error) Partition[K] {
	return Partition[K]{Key: key, New: func(key K) (Limiter, error) {
		if register == nil {
			return nil, fmt.Errorf("limiter: partition %v has no function that registers it", key)
		}
		inner, err := construct(key, factory)
		if err != nil {
			return nil, err
		}
		m := Managed(inner)
		if err := enrol(m, key, register); err != nil {
			return nil, fmt.Errorf("limiter: registering partition %v: %w", key, err)
		}
		return m, nil
	}}
}

// enrol registers the limiter, and closes it where that fails or panics.
func enrol[K comparable](m *ManagedLifetime, key K, register func(*ManagedLifetime, K) error) (err error) {
	err = errPanicked // until register has returned
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	return register(m, key)
}

func (m *ManagedLifetime) permitLimit() int { return permitLimit(m.inner) }

// TryAcquire passes on to the limiter inside.
func (m *ManagedLifetime) TryAcquire(n int) (Lease, error) {
	if err := m.check(n); err != nil {
		return Lease{}, err
	}
	return m.inner.TryAcquire(n)
}

// Acquire passes on to the limiter inside.
func (m *ManagedLifetime) Acquire(ctx context.Context, n int) (Lease, error) {
	if err := m.check(n); err != nil {
		return Lease{}, err
	}
	return m.inner.Acquire(ctx, n)
}

func (m *ManagedLifetime) check(n int) error {
	switch {
	case !m.closed.Load():
		return nil // the limiter inside checks
	case n < 0 || n > m.permitLimit():
		return PermitError{Asked: n, Limit: m.permitLimit()}
	}
	return ErrClosed
}

// Stats passes on to the limiter inside.
func (m *ManagedLifetime) Stats() Stats { return m.inner.Stats() }

// Idle is false until Close and [Never] from then on.
func (m *ManagedLifetime) Idle() (time.Duration, bool) {
	if m.closed.Load() {
		return Never, true
	}
	return 0, false
}

// Close closes the limiter inside, once.
func (m *ManagedLifetime) Close() error {
	if m.closed.Swap(true) {
		return nil
	}
	return m.inner.Close()
}

// Replenish passes on to a replenisher inside.
func (m *ManagedLifetime) Replenish() bool {
	r, ok := m.inner.(Replenisher)
	return ok && !m.closed.Load() && r.Replenish()
}

// Auto passes on to a replenisher inside and is true without one.
func (m *ManagedLifetime) Auto() bool {
	r, ok := m.inner.(Replenisher)
	return !ok || r.Auto()
}

// Period passes on to a replenisher inside and is [Never] without one.
func (m *ManagedLifetime) Period() time.Duration {
	if r, ok := m.inner.(Replenisher); ok {
		return r.Period()
	}
	return Never
}
