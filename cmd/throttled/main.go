// Command throttled is a gateway in front of UDP and TCP servers: it throttles
// endpoints that send too much, locks out those that do not stop, and reports
// who they are. See `throttled --help`.
package main

import (
	"os"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr)) }
