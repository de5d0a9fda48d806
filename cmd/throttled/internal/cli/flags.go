package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/admin"
	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/config"
	"github.com/seed-ee4278a0/throttled/netx"
)

// A parsedFlag is a flag whose value a function reads. A flag that can be
// repeated calls it each time.
type parsedFlag struct {
	parse func(string) error
	kind  string // how the usage text calls the value
	text  string
}

func (f *parsedFlag) String() string { return f.text }
func (f *parsedFlag) Type() string   { return f.kind }

func (f *parsedFlag) Set(s string) error {
	if err := f.parse(s); err != nil {
		return err
	}
	f.text = s
	return nil
}

// into makes a flag of a function that parses and the place for the result.
func into[T any](to *T, kind, text string, parse func(string) (T, error)) *parsedFlag {
	return &parsedFlag{kind: kind, text: text, parse: func(s string) error {
		x, err := parse(s)
		if err == nil {
			*to = x
		}
		return err
	}}
}

// listenersInto makes a flag that can be repeated; a variable has all the
// listeners in one, with commas between.
func listenersInto(to *[]config.Listener, p netx.Protocol) *parsedFlag {
	return &parsedFlag{kind: "LISTEN=UPSTREAM", parse: func(s string) error {
		for spec := range strings.SplitSeq(s, ",") {
			l, err := config.ParseListener(p, strings.TrimSpace(spec))
			if err != nil {
				return err
			}
			*to = append(*to, l)
		}
		return nil
	}}
}

// addConfig adds the flag -c.
func addConfig(f *pflag.FlagSet, file *string) {
	f.StringVarP(file, "config", "c", "", "configuration `FILE`")
}

// addToken adds the flag that names the file of the admin server's token.
func addToken(f *pflag.FlagSet, token *string) {
	f.Var(into(token, "FILE", "", config.ReadToken), "token-file", "file with the token of the admin server")
}

// addJSON adds the flag for an answer as it comes.
func addJSON(f *pflag.FlagSet, asJSON *bool) { f.BoolVar(asJSON, "json", false, "print JSON") }

// addClient adds the flags that say how to reach a running gateway.
func addClient(f *pflag.FlagSet, c *admin.Client) {
	c.Address = config.DefaultAdmin
	f.Var(into(&c.Address, "ADDR", config.DefaultAdmin, admin.ParseAddress), "admin", "admin server of the gateway: host:port or unix:PATH")
	addToken(f, &c.Token)
}

// variable is the environment variable behind a flag.
func variable(flag string) string {
	return "THROTTLED_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnvironment sets the flags that the command line leaves out. An empty
// variable is one that is not set.
func fromEnvironment(cmd *cobra.Command) error {
	var errs []error
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		text := os.Getenv(variable(f.Name))
		if f.Changed || f.Name == "help" || text == "" {
			return
		}
		if err := f.Value.Set(text); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", variable(f.Name), err))
			return
		}
		f.Changed = true
	})
	if len(errs) > 0 {
		return wrongUsage(cmd, errors.Join(errs...))
	}
	return nil
}
