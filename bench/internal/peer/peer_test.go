package peer_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/bench/internal/lab"
	"github.com/seed-ee4278a0/throttled/bench/internal/peer"
	"github.com/seed-ee4278a0/throttled/bench/internal/proc"
)

// stand is a lab whose gateway is a shell script.
func stand(t *testing.T, script string) *lab.Lab {
	t.Helper()
	cores, err := proc.Cores()
	require.NoError(t, err)
	dir := t.TempDir()
	l := &lab.Lab{Dir: dir, Throttled: filepath.Join(dir, "throttled"), Core: cores[0]}
	require.NoError(t, os.WriteFile(l.Throttled, []byte("#!/bin/sh\n"+script), 0o755))
	return l
}

var upstream = netip.MustParseAddrPort("127.0.0.1:9")

func TestWhatIsMissingIsLeftOut(t *testing.T) {
	k := peer.Throttled("ours", peer.Plenty).Needing("no-such-program", "no-such-package")
	var told []error
	s, err := peer.StartAll(stand(t, "exit 0"), "udp", upstream, func(err error) { told = append(told, err) }, k)
	require.NoError(t, err)
	assert.Empty(t, s)
	require.Len(t, told, 1)
	assert.EqualError(t, told[0], "peer: ours: not there, apt-get install no-such-package")
}

func TestABuildWithoutKernelDropIsLeftOut(t *testing.T) {
	k := peer.Throttled("ours", peer.Budget{Capacity: 1, Refill: 1, KernelDrop: true})
	_, err := k.Start(stand(t, "echo unknown key; exit 2"), "udp", upstream)
	require.ErrorIs(t, err, peer.ErrMissing)
	require.ErrorContains(t, err, "unknown key")
}

func TestAWrongConfigurationIsAnError(t *testing.T) {
	_, err := peer.Throttled("ours", peer.Plenty).Start(stand(t, "echo what is wrong; exit 2"), "udp", upstream)
	require.NotErrorIs(t, err, peer.ErrMissing)
	require.ErrorContains(t, err, "what is wrong")
}

func TestAGatewayThatEndsIsToldWithItsLastWords(t *testing.T) {
	start := time.Now()
	_, err := peer.Throttled("ours", peer.Plenty).Start(stand(t, `[ "$1" = check ] || { echo last words >&2; exit 7; }`), "udp", upstream)
	require.ErrorContains(t, err, "exit status 7")
	require.ErrorContains(t, err, "last words")
	require.Less(t, time.Since(start), 9*time.Second, "it was waited for")
}
