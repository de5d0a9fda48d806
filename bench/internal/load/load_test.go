package load_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/bench/internal/load"
)

func startEcho(t *testing.T) netip.AddrPort {
	t.Helper()
	e, err := load.StartEcho()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e.Addr
}

func run(t *testing.T, cfg load.Config, d time.Duration) *load.Result {
	t.Helper()
	c, err := load.NewClient(cfg)
	require.NoError(t, err)
	defer c.Close()
	r, err := c.Run(d)
	require.NoError(t, err)
	assert.Equal(t, r.Sent, r.Answered+r.Lost)
	assert.Equal(t, r.Answered, r.RTT.Len())
	return r
}

func TestClosedLoop(t *testing.T) {
	r := run(t, load.Config{Target: startEcho(t), Sources: load.Sources{Addresses: 300, Ports: 2}, Window: 32}, 50*time.Millisecond)
	assert.Greater(t, r.Answered, uint64(32), "an answer makes room for another request")
	assert.Zero(t, r.Lost)
	assert.Positive(t, r.RTT.Quantile(0.5))
}

func TestOpenLoopSendsAtItsRate(t *testing.T) {
	const rate, d = 1000, 100 * time.Millisecond
	r := run(t, load.Config{Target: startEcho(t), Sources: load.Sources{Addresses: 10}, Rate: rate}, d)
	assert.LessOrEqual(t, r.Sent, uint64(rate*d.Seconds()+1))
	assert.Positive(t, r.Answered)
}

// What nobody answers is lost, and does not stop an open loop.
func TestLostAnswersCount(t *testing.T) {
	sink, err := load.StartEcho()
	require.NoError(t, err)
	require.NoError(t, sink.Close())
	r := run(t, load.Config{Target: sink.Addr, Sources: load.Sources{Addresses: 1}, Rate: 1000, Timeout: 5 * time.Millisecond}, 50*time.Millisecond)
	assert.Zero(t, r.Answered)
	assert.Positive(t, r.Lost)
}

func TestFloodEndsAndCounts(t *testing.T) {
	f, err := load.NewFlood(startEcho(t), load.Sources{Net: 80, Addresses: 7}, 5000)
	require.NoError(t, err)
	defer f.Close()
	r, err := f.Run(50*time.Millisecond, nil)
	require.NoError(t, err)
	assert.Positive(t, r.Sent)
	assert.LessOrEqual(t, r.Sent, uint64(5000*r.Elapsed.Seconds()+1))
	stop := make(chan struct{})
	close(stop)
	_, err = f.Run(time.Hour, stop)
	require.NoError(t, err)
}

func TestSourcesAreDistinctAndLoopback(t *testing.T) {
	seen := make(map[netip.Addr]bool)
	for i := range 130_000 {
		if a := load.Source(16, i); a.IsLoopback() {
			seen[a] = true
		}
	}
	assert.Len(t, seen, 130_000)
	assert.Equal(t, netip.MustParseAddr("127.16.0.1"), load.Source(16, 0))
	assert.Equal(t, netip.MustParseAddr("127.75.249.250"), load.Source(16, load.MaxAddresses-1))
	assert.Equal(t, 100, load.Spread(100).Count())
	assert.Equal(t, 1, load.Spread(1).Count())
}

func TestConfigIsChecked(t *testing.T) {
	ok := load.Config{Target: netip.MustParseAddrPort("127.0.0.1:9"), Sources: load.Sources{Addresses: 1}, Window: 1}
	for name, change := range map[string]func(*load.Config){
		"no loop":      func(c *load.Config) { c.Window = 0 },
		"both loops":   func(c *load.Config) { c.Rate = 1 },
		"no address":   func(c *load.Config) { c.Sources.Addresses = 0 },
		"payload":      func(c *load.Config) { c.Payload = 7 },
		"other target": func(c *load.Config) { c.Target = netip.MustParseAddrPort("192.0.2.1:9") },
	} {
		cfg := ok
		change(&cfg)
		_, err := load.NewClient(cfg)
		assert.Error(t, err, name)
	}
}

func TestTCP(t *testing.T) {
	s, err := load.StartServer()
	require.NoError(t, err)
	defer s.Close()
	served, err := load.Connections(s.Addr, 5, 3, 30*time.Millisecond)
	require.NoError(t, err)
	assert.Positive(t, served)
	megabytes, err := load.Transfer(s.Addr, 2, 30*time.Millisecond)
	require.NoError(t, err)
	assert.Positive(t, megabytes)
}

func TestTCPFailureIsToldOnce(t *testing.T) {
	s, err := load.StartServer()
	require.NoError(t, err)
	require.NoError(t, s.Close())
	_, err = load.Connections(s.Addr, 1, 1, time.Hour)
	require.ErrorContains(t, err, "refused")
	_, err = load.Transfer(s.Addr, 1, time.Hour)
	require.ErrorContains(t, err, "refused")
}
