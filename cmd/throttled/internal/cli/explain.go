package cli

import (
	"fmt"
	"net/url"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/admin"
	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/config"
)

func newExplain(s streams) *cobra.Command {
	var (
		asJSON   bool
		endpoint string
		client   admin.Client
	)
	cmd := &cobra.Command{
		Use:   "explain IP",
		Short: "Say what the next packet of an address would get, and why",
		Long: `Say which rule decides on an address (exempt, deny, ban, lockout or bucket), how
it stands with each policy, and what its next packet would get. Nothing is
charged or counted for that.`,
		Args: oneArg(&endpoint, "IP", func(s string) (string, error) {
			_, _, err := config.ParseEndpoint(s)
			return s, err
		}),
		RunE: func(*cobra.Command, []string) error {
			body, err := client.Get("/v1/endpoints/" + url.PathEscape(endpoint))
			if err != nil {
				return err
			}
			return show(s, body, asJSON, writeExplanation)
		},
	}
	addJSON(cmd.Flags(), &asJSON)
	addClient(cmd.Flags(), &client)
	return cmd
}

func writeExplanation(s streams, x admin.Explanation) error {
	if len(x.Lists) == 0 {
		fmt.Fprintf(s.out, "%s is on no list: its policies decide\n", x.Endpoint)
	}
	for i, l := range x.Lists {
		what := "decides on " + x.Endpoint
		if i > 0 {
			what = "holds it, too, and is overruled"
		}
		fmt.Fprintf(s.out, "%s %s %s", l.Rule, l.Prefix, what)
		if l.LeftMs >= 0 {
			fmt.Fprintf(s.out, ", %s left", leftOf(l.LeftMs))
		}
		if l.Note != "" {
			fmt.Fprintf(s.out, " (%s)", l.Note)
		}
		fmt.Fprintln(s.out)
	}
	t := tabwriter.NewWriter(s.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "\nPolicy\tTokens\tByte tokens\tViolations\tLockouts\tLocked for\tNext packet")
	for _, p := range x.Policies {
		bytes, locked := "-", "-"
		if p.ByteCapacity > 0 {
			bytes = part(p.ByteTokens, p.ByteCapacity)
		}
		if p.LockedForMs > 0 {
			locked = leftOf(p.LockedForMs)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%s\t%s\n", p.Policy, part(p.Tokens, p.Capacity), bytes,
			p.SoftViolations, p.Lockouts, locked, nextOf(p))
	}
	return t.Flush()
}

func part(n, of int64) string { return strconv.FormatInt(n, 10) + "/" + strconv.FormatInt(of, 10) }

// nextOf says what the next packet would get, and by what.
func nextOf(p admin.Standing) string {
	text := "passes"
	if !p.Next.Allowed {
		text = p.Next.Reason
		if p.Next.RetryAfterMs >= 0 {
			text += " for " + leftOf(p.Next.RetryAfterMs)
		}
	}
	text += " (" + p.Rule
	if !p.Tracked {
		text += ", not seen so far"
	}
	text += ")"
	if p.DryRun && !p.Next.Allowed {
		return "passes in a dry run, else " + text
	}
	return text
}
