package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/config"
	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/serve"
	"github.com/seed-ee4278a0/throttled/netx"
)

// runFlags are what the command line puts over a configuration.
type runFlags struct {
	file      string
	listeners []config.Listener
	admin     string
	token     string // the path of its file
	every     time.Duration
	grace     time.Duration
}

func newRun(s streams) *cobra.Command {
	var o runFlags
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the gateway",
		Long: `Run the gateway until SIGINT (at once) or SIGTERM (after its sessions and
connections have ended, or the grace is over). SIGHUP reads the file again. With
neither a file nor a listener it serves an example: UDP and TCP echo on
127.0.0.1:7000.

Every flag has a variable: --report-every is THROTTLED_REPORT_EVERY; --udp and
--tcp have their values in one, with commas between. A flag wins over its
variable, and both win over the file; listeners are added to those of the file.`,
		Example: `  throttled run --udp 0.0.0.0:27015=127.0.0.1:27016
  throttled run -c throttled.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.config(cmd)
			if err != nil {
				return err
			}
			reread := func() (*config.Config, error) { return o.config(cmd) }
			if o.file == "" {
				reread = nil
			}
			log, flush := newLog(s.err)
			defer flush()
			return serve.Run(c, reread, s.out, log)
		},
	}
	f := cmd.Flags()
	addConfig(f, &o.file)
	f.Var(listenersInto(&o.listeners, netx.UDP), "udp", "add a UDP listener; UPSTREAM is host:port or echo; repeatable")
	f.Var(listenersInto(&o.listeners, netx.TCP), "tcp", "add a TCP listener; repeatable")
	f.Var(into(&o.admin, "ADDR", config.DefaultAdmin, config.ParseAdmin), "admin", "admin server: ip:port, unix:PATH or off")
	f.Var(into(&o.token, "FILE", "", readableToken), "token-file", "file with the token of the admin server")
	f.Var(into(&o.every, "DUR", "10s", config.ParseEvery), "report-every", "time between JSON report lines; 0 = never")
	f.Var(into(&o.grace, "DUR", "30s", config.ParseTimeout), "grace", "how long a drain waits for sessions and connections")
	return cmd
}

// config puts the flags over the file, or over what stands for one.
func (o *runFlags) config(cmd *cobra.Command) (*config.Config, error) {
	c, err := o.base(cmd)
	if err != nil {
		return nil, &wrongError{err: err}
	}
	given := cmd.Flags().Changed
	if given("admin") {
		c.Admin.Listen = o.admin
	}
	if given("report-every") {
		c.Report.Every = o.every
	}
	if given("grace") {
		c.Grace = o.grace
	}
	if given("token-file") {
		c.Admin.TokenFile = o.token
		if c.Admin.Token, err = config.ReadToken(o.token); err != nil {
			return nil, err
		}
	}
	if c.Admin.Token == "" && config.NeedsToken(c.Admin.Listen) {
		return nil, wrongUsage(cmd, fmt.Errorf("the admin address %s is not a loopback address and needs --token-file", c.Admin.Listen))
	}
	var errs []error
	for _, l := range o.listeners {
		errs = append(errs, c.Add(l))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, wrongUsage(cmd, err)
	}
	if len(c.Listeners) == 0 {
		return nil, wrongUsage(cmd, fmt.Errorf("%s has no listeners; add them there, or with --udp or --tcp", o.file))
	}
	return c, nil
}

// readableToken wants the path of a token that is there.
func readableToken(path string) (string, error) {
	_, err := config.ReadToken(path)
	return path, err
}

// base is the configuration beneath the flags.
func (o *runFlags) base(cmd *cobra.Command) (*config.Config, error) {
	switch {
	case cmd.Flags().Changed("config"):
		return config.Load(o.file)
	case len(o.listeners) > 0:
		return config.New(), nil
	}
	return config.Default(), nil
}
