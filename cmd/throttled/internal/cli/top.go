package cli

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/admin"
	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/config"
	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/top"
)

func newTop(s streams) *cobra.Command {
	var (
		client admin.Client
		once   bool
		every  = time.Second
	)
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch the running gateway: listeners, drops by reason, the worst endpoints",
		Long: `Show what passes and what is dropped at each listener of the running gateway,
and the endpoints that it holds back most, until q or Ctrl-C is pressed. While no
gateway answers it says so and tries again.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if once {
				return top.Once(client, s.out)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			err := top.Run(ctx, client, every, os.Stdin, s.out)
			if errors.Is(err, top.ErrNoTerminal) {
				return wrongUsage(cmd, err)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVar(&once, "once", false, "print the table once, as plain text")
	f.Var(into(&every, "DUR", "1s", config.ParseTimeout), "every", "time between two looks")
	addClient(f, &client)
	return cmd
}
