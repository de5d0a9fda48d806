package cli

import (
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/demo"
)

func newDemo(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Show in ten seconds how a flooder is throttled and locked out",
		Long: `Start a gateway with an echo server behind it on a free loopback port, an
honest client and a flooding one, and show second by second who is answered.
Ctrl-C ends it early.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			log := slog.New(slog.NewTextHandler(s.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
			return demo.Run(ctx, demo.NewScreen(s.out, wantColour(isTerminal(s.out), os.Getenv)), log)
		},
	}
}

// wantColour says whether to print in colour; see https://no-color.org.
func wantColour(terminal bool, getenv func(string) string) bool {
	return terminal && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}
