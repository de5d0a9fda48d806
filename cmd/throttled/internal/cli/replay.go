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
there, or a wildcard. Take one with: tcpdump -s 128 -w FILE port PORT`,
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
	f.BoolVar(&asJSON, "json", false, "print JSON")
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
