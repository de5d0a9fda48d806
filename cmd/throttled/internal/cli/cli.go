// Package cli is the command line of throttled: its commands, their flags, the
// environment variables behind the flags, and the exit codes.
package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/config"
)

// The exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitWrong  = 2 // wrong usage or configuration
)

// A wrongError is the user's to put right: flags, variables, configuration.
type wrongError struct {
	err  error
	hint string // what to read; "" = nothing
}

func (e *wrongError) Error() string { return e.err.Error() }
func (e *wrongError) Unwrap() error { return e.err }

// wrongUsage is the error of a command that was called in the wrong way.
func wrongUsage(cmd *cobra.Command, err error) error {
	return &wrongError{err, fmt.Sprintf("see: %s --help", cmd.CommandPath())}
}

// streams are where a command writes.
type streams struct{ out, err *os.File }

// Main runs the command line and returns the exit code.
func Main(args []string, stdout, stderr *os.File) int {
	root := newRoot(streams{stdout, stderr})
	root.SetArgs(args)
	err := root.Execute()
	if err == nil {
		return exitDone
	}
	if m, ok := errors.AsType[*config.Mistakes](err); ok {
		fmt.Fprintln(stderr, m) // file:line:column: first, as editors expect it
	} else {
		fmt.Fprintln(stderr, "throttled:", err)
	}
	wrong, ok := errors.AsType[*wrongError](err)
	if !ok {
		return exitFailed
	}
	if wrong.hint != "" {
		fmt.Fprintln(stderr, wrong.hint)
	}
	return exitWrong
}

// Command is the command line, for whoever describes it.
func Command() *cobra.Command { return newRoot(streams{os.Stdout, os.Stderr}) }

func newRoot(s streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "throttled",
		Short: "throttled stands in front of a UDP or TCP server and throttles whoever floods it",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return wrongUsage(cmd, errors.New("a command is missing"))
			}
			return wrongUsage(cmd, fmt.Errorf("there is no command %q", args[0]))
		},
		RunE:              func(*cobra.Command, []string) error { return nil },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return fromEnvironment(cmd) },
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetFlagErrorFunc(wrongUsage)
	root.SetHelpCommand(newHelp())
	root.AddCommand(newRun(s), newCheck(s), newDemo(s), newReport(s), newTop(s), newReplay(s),
		newBans(s), newBan(s), newUnban(s), newExplain(s), newReload(s), newDrain(s), newVersion(s))
	return root
}

// newHelp is cobra's help command, but for a command that is not there it fails.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show the help of a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			topic, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return wrongUsage(cmd.Root(), fmt.Errorf("there is no command %q", strings.Join(args, " ")))
			}
			return topic.Help()
		},
	}
}

// oneArg wants one argument and parses it into to.
func oneArg[T any](to *T, name string, parse func(string) (T, error)) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch len(args) {
		case 0:
			return wrongUsage(cmd, fmt.Errorf("%s is missing", name))
		case 1:
			x, err := parse(args[0])
			if err != nil {
				return wrongUsage(cmd, err)
			}
			*to = x
			return nil
		}
		return wrongUsage(cmd, fmt.Errorf("unexpected argument %q", args[1]))
	}
}

// noArgs refuses arguments that are no flags.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return wrongUsage(cmd, fmt.Errorf("unexpected argument %q", args[0]))
	}
	return nil
}

// isTerminal takes every character device for a terminal. That includes
// /dev/null, where it does not matter.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
