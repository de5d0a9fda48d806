// Package engine decides, for each packet of each endpoint, whether it may
// pass, and tells afterwards who was throttled and why.
//
// A server that embeds it makes one Engine and asks it for every packet:
//
//	e, err := engine.New(engine.Config{})
//	...
//	if d := e.Evaluate(from); !d.Allowed {
//		return // drop it; d.RetryAfter says how long this will last
//	}
//
// # The chain
//
//	datagram or connection
//	   netx            whose is it?         sockets, sessions
//	     engine        may it pass now?     clock, CPU load, policies, bans, janitor, report
//	       shard       where is its state?  seeded xxhash -> one mutex -> slab
//	         policy       under which rule? limit + escalation -> decision   (pure)
//	           tokenbucket  are there tokens?  fixed-point micro-tokens      (pure)
//
// Imports run down this list only. The packages from engine down need nothing
// but the standard library, xxhash and bart.
//
// # A decision
//
// An endpoint is an address, masked to a prefix: an IPv4 address, the /64 of
// an IPv6 address, or what Config says. Its bans and exemptions are looked up
// by longest prefix first. Then the state of the endpoint under the policy is
// found, or made, in one of the shards and decided on under that shard's lock.
//
// # Two clocks
//
// Windows, lockouts and bans run on the monotonic clock, as nanoseconds since
// the engine was made. Buckets refill on a second clock, the integral of the
// load source's ratio over the first: when the machine is busy it runs slower,
// and everybody's refill with it. Both are read once for a decision, or once
// for a batch.
//
// # Copies
//
// Somebody who drops packets before they reach the engine, such as a kernel, keeps
// a copy of who is kept out: Watch tells where it must follow, Listed and LockedFor
// what holds.
//
// # Dry runs
//
// Under a policy with DryRun decisions are made and counted as under any other. It
// is for whoever acts on them to ask DryRun about a denial, and to let it pass.
//
// # Life
//
// One goroutine samples the load and sweeps out who has gone, a bounded number
// of entries at a time. Close ends it; from then on every packet is denied.
package engine
