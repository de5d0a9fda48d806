// Package kerneldrop lets the kernel drop datagrams that the engine would deny
// with a HardLockout, before they cost a wakeup, a copy and a decision.
//
//	datagram -> socket filter: exempt? banned? locked out? -> socket -> netx -> engine
//
// A [Table] holds, in maps of the kernel, a copy of the engine's bans and
// exemptions and of lockouts that its users have met. A [Filter] is a program
// over these maps for the sockets of one listener; it knows the listener's
// policy, as somebody may be locked out under one policy and not under another.
//
// The invariant: what the filter drops, Evaluate would deny with a HardLockout
// at that moment. So the copy may lack what the engine has, but where the engine
// lifts a ban or a lockout, or exempts somebody, the copy follows before the
// engine's method returns ([engine.Engine.Watch]), and whoever goes in is asked
// about once more under the lock that serialises this with what goes out. Ends
// are kept on the kernel's clock, never later than the engine's; whoever has
// reached one is the engine's to decide on.
//
// It is an optimisation: where the kernel does not allow it or has no room, the
// datagrams come to user space and are denied there. It touches nothing but
// sockets it is given: no interface, nothing pinned, and all of it is gone with
// Close or with the process.
//
// It needs Linux 5.8 and CAP_BPF.
package kerneldrop

import (
	"errors"
	"log/slog"

	"github.com/seed-ee4278a0/throttled/engine"
)

// What the zero fields of a Config mean, and the most they may be.
const (
	DefaultEndpoints = 1 << 18
	DefaultPrefixes  = 1 << 16
	MaxEntries       = 1 << 20
)

// Config is what a Table is made of.
type Config struct {
	Engine *engine.Engine // whose decisions are copied; it must outlive the Table
	// Endpoints is the most lockouts that are copied at a time, 1..1048576; 0 =
	// as many as the engine tracks endpoints, up to 262144. Each takes some 100
	// bytes of the kernel's memory from the beginning.
	Endpoints int
	// Prefixes is the most bans and exemptions that are copied at a time,
	// 1..1048576; 0 = 65536. Bans beyond it are left to user space. Exemptions
	// cannot be left out: a list of more of them ends the dropping.
	Prefixes int
	Logger   *slog.Logger // nil = discard
}

// ErrUnsupported is matched by the error of New where this system cannot drop in
// the kernel whatever the permissions.
var ErrUnsupported = errors.New("kerneldrop: not supported by this system")

func (c *Config) setDefaults() error {
	if c.Engine == nil {
		return errors.New("kerneldrop: Engine is nil")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Endpoints == 0 {
		c.Endpoints = min(c.Engine.Config().MaxTrackedEndpoints, DefaultEndpoints)
	}
	if c.Prefixes == 0 {
		c.Prefixes = DefaultPrefixes
	}
	if c.Endpoints < 0 || c.Endpoints > MaxEntries || c.Prefixes < 0 || c.Prefixes > MaxEntries {
		return errors.New("kerneldrop: Endpoints or Prefixes is outside 1..1048576")
	}
	return nil
}
