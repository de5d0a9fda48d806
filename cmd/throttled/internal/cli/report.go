package cli

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/admin"
	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/serve"
)

func newReport(s streams) *cobra.Command {
	var (
		text   bool
		client admin.Client
	)
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Show the report of the running gateway, as JSON or as text",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return report(s, client, text)
		},
	}
	cmd.Flags().BoolVar(&text, "text", false, "print readable text")
	addClient(cmd.Flags(), &client)
	return cmd
}

func report(s streams, client admin.Client, text bool) error {
	body, err := client.Get("/v1/report")
	if err != nil {
		return err
	}
	if !text {
		_, err := s.out.Write(body)
		return err
	}
	var r serve.Report
	if err := json.Unmarshal(body, &r); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return r.WriteText(s.out)
}
