package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/config"
)

func newCheck(s streams) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "check -c FILE",
		Short: "Check a configuration file and name every mistake in it",
		Long: `Check a configuration file and name every mistake in it, with its line and column
and what is allowed there. The token file that it names is read, and the folder of
the state file has to be there. Whether names resolve, ports are free and caps fit
the descriptor limit is for run to find.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return wrongUsage(cmd, errors.New("-c FILE is missing"))
			}
			return check(s, file)
		},
	}
	addConfig(cmd.Flags(), &file)
	return cmd
}

// check writes what there is to say about a file.
func check(s streams, file string) error {
	c, err := config.Load(file)
	if err != nil {
		return &wrongError{err: err}
	}
	for _, w := range c.Warnings {
		fmt.Fprintln(s.err, w)
	}
	_, err = fmt.Fprintf(s.out, "%s: ok: %s, %s beside the default, admin server %s\n", file,
		number(len(c.Listeners), "listener", "listeners"),
		number(len(c.Engine.Policies), "policy", "policies"), c.Admin.Listen)
	return err
}

func number(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
