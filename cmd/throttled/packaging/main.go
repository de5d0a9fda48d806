// Command packaging writes what a package holds beside the binary and what lies
// in this folder: man pages and shell completions. They are made of the help
// texts and of the schema of the configuration, so that they say the same.
//
//	go run ./cmd/throttled/packaging FOLDER DATE
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/cli"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: packaging FOLDER DATE")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "packaging:", err)
		os.Exit(1)
	}
}

func write(folder, date string) error {
	command := cli.Command()
	return errors.Join(
		os.MkdirAll(folder, 0o755),
		os.WriteFile(filepath.Join(folder, "throttled.1"), []byte(commandPage(command, date)), 0o644),
		os.WriteFile(filepath.Join(folder, "throttled.yaml.5"), []byte(filePage(fileKeys(), date)), 0o644),
		command.GenBashCompletionFileV2(filepath.Join(folder, "throttled.bash"), true),
		command.GenZshCompletionFile(filepath.Join(folder, "_throttled")),
		command.GenFishCompletionFile(filepath.Join(folder, "throttled.fish"), true),
	)
}
