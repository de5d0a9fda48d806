// Command plain is what gnet does by itself, a datagram for each wake: a server
// that discards what it receives, and a gateway without batches. The commands
// beside it compare the project's gateway with them.
package main

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/netx"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

func main() {
	var (
		mode     = flag.String("mode", "receive", "receive or relay")
		listen   = flag.String("listen", "127.0.0.1:7000", "UDP address")
		upstream = flag.String("upstream", "", "where relay sends to")
		capacity = flag.Int64("capacity", 64, "packets of an address at once")
		refill   = flag.Float64("refill", 32, "packets of an address a second")
	)
	flag.Parse()
	if err := run(*mode, *listen, *upstream, tokenbucket.Limit{Capacity: *capacity, RefillPerSecond: *refill}); err != nil {
		fmt.Fprintln(os.Stderr, "plain:", err)
		os.Exit(1)
	}
}

func run(mode, listen, upstream string, limit tokenbucket.Limit) error {
	var handler gnet.EventHandler
	switch mode {
	case "receive":
		handler = &receiver{}
	case "relay":
		e, err := engine.New(engine.Config{
			Default: policy.Policy{Packets: limit, Escalation: policy.Escalation{Lockout: time.Hour}},
			Load:    engine.NoLoad,
		})
		if err != nil {
			return err
		}
		defer e.Close()
		r, err := newRelay(upstream)
		if err != nil {
			return err
		}
		if err := e.Exempt(netip.PrefixFrom(r.upstream.AddrPort().Addr().Unmap(), 32)); err != nil {
			return err
		}
		handler = netx.Guard(e, r)
	default:
		return fmt.Errorf("mode %q is none of receive, relay", mode)
	}
	return gnet.Run(handler, "udp4://"+listen, gnet.WithNumEventLoop(1))
}

// receiver discards.
type receiver struct{ gnet.BuiltinEventEngine }

func (*receiver) OnTraffic(c gnet.Conn) gnet.Action {
	_, _ = c.Discard(-1)
	return gnet.None
}
