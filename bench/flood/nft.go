package main

import (
	"fmt"
	"os/exec"
	"strings"

	"github.com/seed-ee4278a0/throttled/bench/internal/load"
)

const nftName = "throttled behind nft"

// A firewall drops so many flooding addresses with nftables, in the network
// namespace that this command was given, and only while it is up. The zero value
// does nothing.
type firewall struct{ addresses int }

// rules are as early as a rule can be, and look the source up in a set.
func (f firewall) rules() string {
	list := make([]string, f.addresses)
	for i := range list {
		list[i] = load.Source(floodNet, i).String()
	}
	return fmt.Sprintf(`table ip bench {
	set flooding { type ipv4_addr; elements = { %s } }
	chain early { type filter hook prerouting priority raw; ip saddr @flooding drop; }
}
`, strings.Join(list, ", "))
}

func (f firewall) up() error { return f.nft(f.rules()) }

func (f firewall) down() { _ = f.nft("delete table ip bench\n") }

func (f firewall) nft(commands string) error {
	if f.addresses == 0 {
		return nil
	}
	c := exec.Command("nft", "-f", "-")
	c.Stdin = strings.NewReader(commands)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, out)
	}
	return nil
}
