package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/bench/internal/load"
	"github.com/seed-ee4278a0/throttled/bench/internal/peer"
)

func TestHonestClientsStayWithinTheirBudget(t *testing.T) {
	o := options{honest: 100, trips: 5000}
	assert.Equal(t, peer.Budget{Capacity: 255, Refill: 510}, o.budget())
}

func TestFirewallNamesWhoFloods(t *testing.T) {
	assert.Equal(t, `table ip bench {
	set flooding { type ipv4_addr; elements = { 127.100.0.1, 127.100.0.2 } }
	chain early { type filter hook prerouting priority raw; ip saddr @flooding drop; }
}
`, firewall{2}.rules())
	require.NoError(t, firewall{}.up(), "the zero value leaves the machine alone")
}

func TestSeen(t *testing.T) {
	s := seen{
		trips:   &load.Result{Sent: 1000, Answered: 999, Elapsed: 2 * time.Second},
		cpu:     500 * time.Millisecond,
		flooded: load.Flooded{Sent: 1_200_000, Elapsed: 2 * time.Second},
	}
	assert.InDelta(t, 99.9, s.answered(), 1e-9)
	assert.InDelta(t, 25, s.ofCore(), 1e-9)
	assert.InDelta(t, 600, s.rate(), 1e-9)
	assert.Zero(t, seen{}.rate())
}
