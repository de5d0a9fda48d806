package cli

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/admin"
)

func newReload(s streams) *cobra.Command {
	var client admin.Client
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Have the gateway read its configuration again",
		Long: `Have the gateway read its configuration file again and put it into force, as
SIGHUP does. Whatever is wrong with it is shown, and nothing changes then.
Listeners that are as they were keep their sessions and connections; buckets and
lockouts stay. Keys that wait for a restart are named.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			body, err := client.Do(http.MethodPost, "/v1/reload", nil)
			if refused, ok := errors.AsType[*admin.StatusError](err); ok && refused.Status == http.StatusUnprocessableEntity {
				fmt.Fprintln(s.err, refused.Reason) // file:line:column: first, as check has it
				return errors.New("the configuration is not reloaded, what ran goes on")
			}
			if err != nil {
				return err
			}
			return show(s, body, false, writeReloaded)
		},
	}
	addClient(cmd.Flags(), &client)
	return cmd
}

func writeReloaded(s streams, r admin.Reloaded) error {
	for _, w := range r.Warnings {
		if strings.Contains(w, ": warning: ") { // file:line:column: first, as check has it
			fmt.Fprintln(s.err, w)
			continue
		}
		warn(s, w)
	}
	_, err := fmt.Fprintln(s.out, "the configuration is reloaded")
	return err
}

func newDrain(s streams) *cobra.Command {
	var client admin.Client
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Have the gateway take nobody new, and end when the last one has left",
		Long: `Have the gateway take no new sessions and connections, as SIGTERM does, and end
when those that are open have ended, or when the grace is over. /readyz answers
503 from then on. It returns at once, and there is no way back.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			body, err := client.Do(http.MethodPost, "/v1/drain", nil)
			if err != nil {
				return err
			}
			return show(s, body, false, func(s streams, d admin.Draining) error {
				_, err := fmt.Fprintf(s.out, "the gateway drains, for at most %s\n", d.Grace)
				return err
			})
		},
	}
	addClient(cmd.Flags(), &client)
	return cmd
}
