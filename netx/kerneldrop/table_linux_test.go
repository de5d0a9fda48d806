package kerneldrop

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
)

// lockedOut makes the engine lock out n endpoints of a /16 and offers them.
func lockedOut(table *Table, n int) (all []netip.AddrPort) {
	for i := range n {
		ep := netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)}), 1)
		for table.engine.LockedFor(ep, 0) == 0 {
			table.engine.Evaluate(ep)
		}
		table.admit(offer{from: ep})
		all = append(all, ep)
	}
	return all
}

// C116: what has no room is left to user space, which is said once.
func TestEndpointsFull(t *testing.T) {
	const room = 100
	var log bytes.Buffer
	e := newEngine(t, engine.Config{}, 1, time.Hour)
	table := newTable(t, Config{Engine: e, Endpoints: room, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	f := newFilter(t, table, 0)
	all := lockedOut(table, room+50)
	dropped := 0
	for _, ep := range all {
		if f.drops(t, ep.Addr()) {
			dropped++
		}
		require.False(t, e.Evaluate(ep).Allowed)
	}
	require.Equal(t, room, dropped)
	require.Equal(t, 1, strings.Count(log.String(), "level=WARN"), log.String())
	require.Contains(t, log.String(), "no room")

	// Who goes makes room, and who is there can still be taken out.
	require.True(t, e.Unban(netip.PrefixFrom(all[0].Addr(), 32)))
	require.False(t, f.drops(t, all[0].Addr()))
	table.admit(offer{from: all[room]})
	require.True(t, f.drops(t, all[room].Addr()))
}

func TestPrefixesFull(t *testing.T) {
	var log bytes.Buffer
	e := newEngine(t, engine.Config{}, 1, time.Hour)
	table := newTable(t, Config{Engine: e, Prefixes: 3, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	f := newFilter(t, table, 0)
	require.NoError(t, e.Exempt(prefix("192.0.2.1/32")))
	require.NoError(t, e.Ban(prefix("192.0.2.0/24"), 0, ""))
	require.NoError(t, e.Ban(prefix("198.51.100.0/24"), 0, ""))
	require.NoError(t, e.Ban(prefix("203.0.113.0/24"), 0, "no room"))
	require.NoError(t, e.Ban(prefix("203.0.113.1/32"), 0, "no room"))
	want := map[string]bool{
		"192.0.2.1": false, "192.0.2.2": true, "198.51.100.1": true, "203.0.113.1": false,
	}
	verdicts(t, f, want)
	require.Equal(t, 1, strings.Count(log.String(), "level=WARN"), log.String())

	// One that is there can be replaced all the same.
	require.NoError(t, e.Ban(prefix("198.51.100.0/24"), time.Millisecond, "shorter"))
	require.Eventually(t, func() bool { return !f.drops(t, netip.MustParseAddr("198.51.100.1")) }, patience, time.Millisecond)
	require.Eventually(t, func() bool { n, _ := table.sizes(t); return n == 2 }, patience, time.Millisecond)
	require.NoError(t, e.Ban(prefix("203.0.113.0/24"), 0, "room again"))
	verdicts(t, f, map[string]bool{"203.0.113.1": true})
	require.NotContains(t, log.String(), "ended")

	// Without an exemption no ban may stay: those who are exempt come first.
	require.NoError(t, e.Exempt(prefix("192.0.2.1/32"), prefix("203.0.113.1/32")))
	verdicts(t, f, map[string]bool{"192.0.2.1": false, "192.0.2.2": false, "203.0.113.1": false, "203.0.113.2": false})
	require.Contains(t, log.String(), "kernel drop has ended")
	lockedOut(table, 3)
	require.NoError(t, e.Ban(prefix("0.0.0.0/0"), 0, ""))
	verdicts(t, f, map[string]bool{"172.16.0.1": false, "192.0.2.2": false})
	require.Equal(t, 2, strings.Count(log.String(), "level=WARN"), log.String())
}

// A map that cannot be changed any more ends the dropping.
func TestMapThatFails(t *testing.T) {
	var log bytes.Buffer
	e := newEngine(t, engine.Config{}, 1, time.Hour)
	table := newTable(t, Config{Engine: e, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	f := newFilter(t, table, 0)
	lockOut(t, f, "192.0.2.1")
	lockOut(t, f, "192.0.2.2")
	table.mu.Lock()
	require.NoError(t, table.endpoints.Freeze()) // no changes from here on
	table.mu.Unlock()
	require.True(t, e.Unban(prefix("192.0.2.1/32")))
	verdicts(t, f, map[string]bool{"192.0.2.1": false, "192.0.2.2": false})
	require.Contains(t, log.String(), "kernel drop has ended")
	verdicts(t, newFilter(t, table, 0), map[string]bool{"192.0.2.1": false, "192.0.2.2": false})
}

// So it does where new policies are what it cannot follow.
func TestMapThatFailsAtNewPolicies(t *testing.T) {
	e := newEngine(t, engine.Config{}, 1, time.Hour)
	other, _ := e.Policy("other")
	table := newTable(t, Config{Engine: e})
	f, g := newFilter(t, table, 0), newFilter(t, table, other)
	lockOut(t, f, "192.0.2.1")
	lockOut(t, g, "192.0.2.1")
	table.mu.Lock()
	require.NoError(t, table.endpoints.Freeze())
	table.mu.Unlock()
	require.NoError(t, e.SetPolicies(e.Config().Default, nil))
	verdicts(t, f, map[string]bool{"192.0.2.1": false})
	verdicts(t, g, map[string]bool{"192.0.2.1": false})
}

func TestConfigErrors(t *testing.T) {
	e := newEngine(t, engine.Config{}, 1, time.Hour)
	for _, c := range []Config{
		{}, {Engine: e, Endpoints: -1}, {Engine: e, Endpoints: MaxEntries + 1}, {Engine: e, Prefixes: -1}, {Engine: e, Prefixes: MaxEntries + 1},
	} {
		table, err := New(c)
		require.ErrorContains(t, err, "kerneldrop: ")
		require.Nil(t, table)
	}
}

// Calls from many goroutines: what a change lifts is lifted when it returns,
// while others lock out and ban beside it.
func TestLiftedAtOnceAmongOthers(t *testing.T) {
	e := newEngine(t, engine.Config{}, 1, time.Hour)
	table := newTable(t, Config{Engine: e})
	f := newFilter(t, table, 0)
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Go(func() {
			addr := netip.AddrFrom4([4]byte{10, byte(g), 0, 1})
			ep, p := netip.AddrPortFrom(addr, 1), netip.PrefixFrom(addr, 32)
			for range 100 {
				for e.LockedFor(ep, 0) == 0 {
					e.Evaluate(ep)
				}
				for range rand.IntN(20) {
					f.Locked(ep)
				}
				if rand.IntN(4) == 0 {
					time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond) // so that it has been copied, or is just being
				}
				assert.True(t, e.Unban(p))
				assert.False(t, f.drops(t, addr), "after Unban")
				assert.NoError(t, e.Ban(p, time.Hour, ""))
				assert.True(t, f.drops(t, addr), "after Ban")
				assert.NoError(t, e.Ban(p, 1, "as good as ended"))
				assert.False(t, f.drops(t, addr), "after a shorter ban")
			}
		})
	}
	wg.Wait()
}

// Close, twice too, leaves no goroutine and no descriptor, and a filter that is
// still on a socket lets everything pass.
func TestCloseLeavesNothing(t *testing.T) {
	e := newEngine(t, engine.Config{}, 1, time.Hour)
	require.NoError(t, e.Ban(prefix("192.0.2.0/24"), 0, ""))
	warm, err := New(Config{Engine: e})
	require.NoError(t, err)
	require.NoError(t, warm.Close())
	goroutines, fds := runtime.NumGoroutine(), descriptors(t)
	table, err := New(Config{Engine: e})
	require.NoError(t, err)
	f, err := table.Filter(0)
	require.NoError(t, err)
	require.True(t, f.drops(t, netip.MustParseAddr("192.0.2.1")))
	require.NoError(t, table.Close())
	require.NoError(t, table.Close())
	require.False(t, f.drops(t, netip.MustParseAddr("192.0.2.1")))
	f.Locked(at("192.0.2.1"))
	require.NoError(t, e.Ban(prefix("198.51.100.0/24"), 0, "nobody listens"))
	packets, _ := f.Counts()
	require.EqualValues(t, 1, packets)
	require.NoError(t, f.Close())
	require.NoError(t, f.Close())
	packets, _ = f.Counts()
	require.EqualValues(t, 1, packets, "after Close")
	require.Equal(t, fds, descriptors(t))
	for deadline := time.Now().Add(patience); runtime.NumGoroutine() > goroutines; time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "%d goroutines, %d before", runtime.NumGoroutine(), goroutines)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(list)
}

func TestNilFilterDoesNothing(t *testing.T) {
	var f *Filter
	require.NoError(t, f.Attach(-1))
	f.Locked(at("192.0.2.1"))
	packets, bytes := f.Counts()
	require.Zero(t, packets+bytes)
	require.NoError(t, f.Close())
}

// Offers never wait, whatever becomes of them.
func TestOffersNeverWait(t *testing.T) {
	e := newEngine(t, engine.Config{}, 1, time.Hour)
	table := newTable(t, Config{Engine: e})
	f := newFilter(t, table, 0)
	table.mu.Lock() // the goroutine stands still
	for range 10 * queued {
		f.Locked(at("192.0.2.1"))
	}
	table.mu.Unlock()
	require.Zero(t, testing.AllocsPerRun(100, func() { f.Locked(at("192.0.2.1")) }))
}

// The clock of filters is ours, and never later.
func TestClockAhead(t *testing.T) {
	for range 20 {
		ahead, err := clockAhead()
		require.NoError(t, err)
		require.LessOrEqual(t, ahead, int64(0))
		require.Greater(t, ahead, -int64(time.Second))
	}
}
