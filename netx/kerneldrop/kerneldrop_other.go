//go:build !linux

package kerneldrop

import (
	"fmt"
	"net/netip"
	"runtime"

	"github.com/seed-ee4278a0/throttled/engine"
)

// A Table is what the kernel knows of an engine.
type Table struct{}

// New returns an error that matches ErrUnsupported.
func New(Config) (*Table, error) {
	return nil, fmt.Errorf("%w: %s", ErrUnsupported, runtime.GOOS)
}

// Filter is never reached, as there is no Table.
func (*Table) Filter(engine.PolicyID) (*Filter, error) { return nil, ErrUnsupported }

// Close does nothing.
func (*Table) Close() error { return nil }

// A Filter drops nothing.
type Filter struct{}

// Attach does nothing.
func (*Filter) Attach(int) error { return nil }

// Detach does nothing.
func Detach(int) error { return nil }

// Locked does nothing.
func (*Filter) Locked(netip.AddrPort) {}

// Counts returns zeros.
func (*Filter) Counts() (packets, bytes int64) { return 0, 0 }

// Close does nothing.
func (*Filter) Close() error { return nil }
