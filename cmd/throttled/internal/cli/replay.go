package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/config"
	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/replay"
)

func newReplay(s streams) *cobra.Command {
	var (
		o      = replay.Options{Limit: 20}
		file   string
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "replay -c FILE CAPTURE",
		Short: "Show what a configuration would have done to the traffic of a capture",
		Long: `Read a pcap or pcapng file (also packed with gzip; - is standard input), decide
on every packet to a listener of the configuration at the time that it was
captured, and show what would have been dropped and why, who would have been
denied or locked out, and who came near to that. Nothing is sent.

A packet is for a listener that has its destination address and port. For a
capture from another host give the listeners the address that the server has
there, or a wildcard. Take one with: tcpdump -s 128 -w FILE port PORT

Read are Ethernet with VLAN tags, Linux cooked, raw IP and loopback. Headers are
enough: lengths are those that they name. The first fragment of a datagram stands
for all of it. A TCP connection counts at its SYN, once however often that is
sent; its bytes count as the sequence numbers go on, and a client that would have
been paused is counted and not slowed down. A packet that is stamped earlier than
one before it is decided on at the time of that one, and counted. Opcodes and
PROXY headers have to be in the capture, and for lockout_requires: established the
answers of the server. What a dry run lets through is listed apart. Not replayed
is what depends on the machine: CPU load, caps of sessions and connections,
queues, upstreams, the kernel filter.

With --suggest the capture is read a second time, for policies as YAML to paste.
refill is the 99.9th percentile of the endpoints' peak rates, each in the busiest
ten seconds of its endpoint (time is cut into tens from the first packet on),
rounded up to a whole number a second, or to 15, 30 or 45 a minute below one a
second. capacity is the smallest with which, at that refill and from a full bucket,
nobody is denied a packet but the one in 1000 endpoints that would need the most.
With a byte budget the same is found for its bytes; left out are then those who are
farthest beyond the 99.9th percentile of either capacity, one in 1000 in all. With
fewer than 1000 endpoints nobody is left out: use a capture of ordinary traffic,
and leave room above what is suggested.`,
		Example: `  throttled replay -c throttled.yaml evening.pcap
  throttled replay -c throttled.yaml --suggest evening.pcap`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return wrongUsage(cmd, errors.New("CAPTURE is missing"))
			case len(args) > 1:
				return wrongUsage(cmd, fmt.Errorf("unexpected argument %q", args[1]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if file == "" {
				return wrongUsage(cmd, errors.New("-c FILE is missing"))
			}
			c, err := config.LoadAlone(file)
			if err != nil {
				return &wrongError{err: err}
			}
			o.Config, o.Capture = c, args[0]
			return runReplay(s, o, asJSON)
		},
	}
	f := cmd.Flags()
	addConfig(f, &file)
	f.BoolVar(&o.Suggest, "suggest", false, "suggest policies that 99.9 % of the endpoints keep within")
	addJSON(f, &asJSON)
	f.Var(into(&o.Limit, "N", "20", parseLimit), "limit", "endpoints in each list; 0 = all")
	return cmd
}

func parseLimit(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number of endpoints; allowed: 0 to 2147483647", text)
	}
	return int(n), nil
}

// runReplay writes what was found, also where the capture is damaged.
func runReplay(s streams, o replay.Options, asJSON bool) error {
	r, err := replay.Run(o)
	if r == nil {
		return err
	}
	if !asJSON {
		return errors.Join(r.WriteText(s.out), err)
	}
	out := json.NewEncoder(s.out)
	out.SetIndent("", "  ")
	return errors.Join(out.Encode(r), err)
}
