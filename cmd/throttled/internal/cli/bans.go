package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/admin"
	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/config"
)

const bansPath = "/v1/bans"

func newBans(s streams) *cobra.Command {
	var (
		asJSON bool
		client admin.Client
	)
	cmd := &cobra.Command{
		Use:   "bans",
		Short: "List who is kept out: bans, the configuration's deny list, lockouts",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			body, err := client.Get(bansPath + "?limit=1000")
			if err != nil {
				return err
			}
			return show(s, body, asJSON, writeBans)
		},
	}
	addJSON(cmd.Flags(), &asJSON)
	addClient(cmd.Flags(), &client)
	return cmd
}

// show writes an answer as it is, or as text.
func show[T any](s streams, body []byte, asJSON bool, write func(streams, T) error) error {
	if asJSON {
		_, err := s.out.Write(body)
		return err
	}
	var answer T
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("not an answer of throttled: %w", err)
	}
	return write(s, answer)
}

func writeBans(s streams, b admin.Bans) error {
	t := tabwriter.NewWriter(s.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "Who\tWhy\tLeft\tPolicy\tNote")
	for _, ban := range b.Bans {
		left := "no end"
		if !ban.Until.IsZero() {
			left = leftOf(ban.LeftMs)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t\t%s\n", ban.Prefix, ban.Kind, left, ban.Note)
	}
	for _, l := range b.Lockouts {
		note := ""
		if l.DryRun {
			note = "dry run: it passes"
		}
		fmt.Fprintf(t, "%s\tlockout\t%s\t%s\t%s\n", l.Endpoint, leftOf(l.LeftMs), l.Policy, note)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if more := b.LockedOut - len(b.Lockouts); more > 0 {
		fmt.Fprintln(s.err, number(more, "more lockout is", "more lockouts are"), "not shown")
	}
	return nil
}

// leftOf writes a time left of some milliseconds; -1 has no end.
func leftOf(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case ms < 0:
		return "no end"
	case d >= 10*time.Second:
		return d.Round(time.Second).String()
	}
	return d.String()
}

func newBan(s streams) *cobra.Command {
	var (
		prefix netip.Prefix
		length time.Duration
		note   string
		client admin.Client
	)
	cmd := &cobra.Command{
		Use:   "ban PREFIX",
		Short: "Keep an address or a prefix out",
		Long: `Keep an address or a prefix out for a time, or until it is unbanned. A ban takes
the place of an earlier one of the same prefix. With a state file it outlives a
restart. TCP connections that are open go on.`,
		Example: `  throttled ban 203.0.113.7 --for 10m --note "port scan"
  throttled ban 2001:db8::/32`,
		Args: oneArg(&prefix, "PREFIX", config.ParsePrefix),
		RunE: func(*cobra.Command, []string) error {
			request := admin.BanRequest{Prefix: prefix.String(), Note: note}
			if length > 0 {
				request.For = length.String()
			}
			body, err := client.Do(http.MethodPost, bansPath, request)
			if err != nil {
				return err
			}
			return show(s, body, false, writeBanned)
		},
	}
	f := cmd.Flags()
	f.Var(into(&length, "DUR", "", config.ParseInterval), "for", "how long; 0, or nothing said, is until unban")
	f.Var(into(&note, "TEXT", "", parseNote), "note", "why, for those who read the list")
	addClient(f, &client)
	return cmd
}

func parseNote(s string) (string, error) { return s, admin.CheckNote(s) }

func writeBanned(s streams, b admin.Ban) error {
	warn(s, b.Warning)
	end := "until it is unbanned"
	if !b.Until.IsZero() {
		end = "for " + leftOf(b.LeftMs)
	}
	_, err := fmt.Fprintf(s.out, "%s is banned %s\n", b.Prefix, end)
	return err
}

func newUnban(s streams) *cobra.Command {
	var (
		prefix netip.Prefix
		client admin.Client
	)
	cmd := &cobra.Command{
		Use:   "unban PREFIX",
		Short: "Lift a ban, or the lockout of an endpoint",
		Long: `Lift the ban of exactly this prefix, and the lockouts of the endpoint that it is,
as "throttled bans" names them. It fails where there is neither.`,
		Args: oneArg(&prefix, "PREFIX", admin.ParseBanned),
		RunE: func(*cobra.Command, []string) error {
			body, err := client.Do(http.MethodDelete, bansPath+"/"+url.PathEscape(prefix.String()), nil)
			if err != nil {
				return err
			}
			return show(s, body, false, writeLifted)
		},
	}
	addClient(cmd.Flags(), &client)
	return cmd
}

func writeLifted(s streams, l admin.Lifted) error {
	warn(s, l.Warning)
	_, err := fmt.Fprintln(s.out, l.Prefix, "is free")
	return err
}

func warn(s streams, text string) {
	if text != "" {
		fmt.Fprintln(s.err, "throttled: warning:", text)
	}
}
