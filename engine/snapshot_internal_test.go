package engine

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

var somebody = netip.MustParseAddrPort("192.0.2.1:4000")

// start returns an engine without load adaptation that the test closes.
func start(t testing.TB, p policy.Policy) *Engine {
	t.Helper()
	e, err := New(Config{Load: NoLoad, Default: p, Shards: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

// read takes in a snapshot of the data.
func read(t testing.TB, e *Engine, d snapshotData) error {
	t.Helper()
	b, err := d.seal()
	require.NoError(t, err)
	return e.ReadSnapshot(bytes.NewReader(b))
}

// A wall clock that is set back between the save and the load, by any time,
// makes nothing longer; one that is set forward counts as time spent down. C34
func TestSnapshotClockStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		saved := time.Now()
		d := snapshotData{
			Bans: []savedBan{{Prefix: netip.MustParsePrefix("203.0.113.0/24")}},
			Endpoints: []savedEndpoint{{
				Endpoint: somebody, Policy: "default",
				State: policy.Saved{LockedFor: time.Minute, Lockouts: 1},
			}},
		}
		for _, c := range []struct {
			step, left time.Duration // of the wall clock; of a minute
		}{
			{0, time.Minute}, {-time.Hour, time.Minute}, {-math.MaxInt64, time.Minute},
			{time.Second, 59 * time.Second}, {time.Hour, 0}, {math.MaxInt64, 0},
		} {
			d.At = saved.Add(-c.step).Round(0)
			d.Bans[0].Until = d.At.Add(time.Minute)
			e := start(t, policy.Policy{})
			require.NoError(t, read(t, e, d))
			require.Equal(t, c.left, e.Evaluate(somebody).RetryAfter, "%v", c.step)
			banned := e.Evaluate(netip.MustParseAddrPort("203.0.113.7:1"))
			require.Equal(t, c.left, banned.RetryAfter, "%v", c.step)
		}
	})
}

// A wall clock that was set back while the engine ran makes nothing longer
// either: the ends in a snapshot and of Bans are those on the clock as it is. C34
func TestBansAfterClockStep(t *testing.T) {
	e := start(t, policy.Policy{})
	require.NoError(t, e.Close()) // ends the goroutine that reads base
	e.closed.Store(false)
	defer e.closed.Store(true)
	base := e.base
	e.base = wallAhead(base, time.Hour)
	require.Zero(t, e.base.Sub(base))
	require.Equal(t, time.Hour, e.base.Round(0).Sub(base.Round(0)))
	require.NoError(t, e.Ban(netip.MustParsePrefix("192.0.2.0/24"), time.Hour, ""))
	require.WithinDuration(t, time.Now().Add(time.Hour), e.Bans()[0].Until.Round(0), time.Minute)

	var snapshot bytes.Buffer
	require.NoError(t, e.WriteSnapshot(&snapshot))
	restarted := start(t, policy.Policy{})
	require.NoError(t, restarted.ReadSnapshot(&snapshot))
	require.InDelta(t, time.Hour, restarted.Evaluate(somebody).RetryAfter, float64(time.Minute))
}

// wallAhead moves t on the wall clock and not on the monotonic one, as time
// itself never does: the seconds of the wall clock are the bits from 30 on of
// the first word of a Time.
func wallAhead(t time.Time, d time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&t)) += uint64(d/time.Second) << 30
	return t
}

// What was copied later than the moment of the snapshot has no credit for the
// time before.
func TestSnapshotLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policy.Policy{Packets: tokenbucket.Limit{Capacity: 100, RefillPerSecond: 1}}
		d := snapshotData{At: time.Now().Round(0), Endpoints: []savedEndpoint{
			{Endpoint: somebody, Policy: "default", Later: 3 * time.Second},
		}}
		for _, c := range []struct {
			down   time.Duration
			tokens int64
		}{{0, 0}, {2 * time.Second, 0}, {4 * time.Second, 3}} {
			time.Sleep(c.down)
			e := start(t, p)
			require.NoError(t, read(t, e, d))
			row, ok := e.Lookup(somebody)
			require.True(t, ok)
			require.Equal(t, c.tokens, row.Tokens)
		}
	})
}

// A state that cannot be is an error, and nothing of the rest is taken in.
func TestSnapshotOutOfRange(t *testing.T) {
	for name, spoil := range map[string]func(*snapshotData){
		"prefix":       func(d *snapshotData) { d.Bans[1].Prefix = netip.Prefix{} },
		"endpoint":     func(d *snapshotData) { d.Endpoints[1].Endpoint = netip.AddrPort{} },
		"later":        func(d *snapshotData) { d.Endpoints[1].Later = -1 },
		"packets":      func(d *snapshotData) { d.Endpoints[1].State.Packets.Tokens = -1 },
		"bytes":        func(d *snapshotData) { d.Endpoints[1].State.Bytes.Tokens = -1 },
		"window":       func(d *snapshotData) { d.Endpoints[1].State.Window = -1 },
		"last counted": func(d *snapshotData) { d.Endpoints[1].State.Counted = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			ban := savedBan{Prefix: netip.MustParsePrefix("203.0.113.0/24")}
			endpoint := savedEndpoint{Endpoint: somebody, Policy: "default"}
			d := snapshotData{At: time.Now(), Bans: []savedBan{ban, ban}, Endpoints: []savedEndpoint{endpoint, endpoint}}
			e := start(t, policy.Policy{})
			require.NoError(t, read(t, e, d))
			e = start(t, policy.Policy{})
			spoil(&d)
			require.ErrorIs(t, read(t, e, d), ErrSnapshot)
			require.Empty(t, e.Bans())
			require.Zero(t, e.Report().TrackedEndpoints)
		})
	}
}

// The janitor throws ended bans away, so that a decision need not look past
// them.
func TestEndedBansArePruned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, policy.Policy{})
		require.NoError(t, e.Ban(netip.MustParsePrefix("203.0.113.0/24"), time.Second, ""))
		require.NoError(t, e.Ban(netip.MustParsePrefix("203.0.113.0/25"), time.Hour, ""))
		time.Sleep(DefaultCleanupInterval)
		synctest.Wait()
		require.Equal(t, 1, e.lists.Load().prefixes.Size())
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		require.Nil(t, e.lists.Load())
	})
}

// A snapshot that is whole but tells nonsense is refused, or does no more harm
// than one could expect of it. C100
func FuzzSnapshotContent(f *testing.F) {
	const day = int64(24 * time.Hour)
	f.Add(int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), uint32(0), uint32(0), int64(0))
	f.Add(day, day, day, -day, day, day, uint32(3), uint32(3), day)
	f.Add(day, day, int64(0), int64(math.MinInt64), day, day, uint32(3), uint32(3), int64(math.MinInt64))
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MinInt64),
		int64(math.MaxInt64), int64(math.MaxInt64), uint32(math.MaxUint32), uint32(math.MaxUint32), int64(math.MaxInt64))
	f.Add(int64(math.MaxInt64), int64(1), int64(1), int64(math.MaxInt64), int64(0), int64(0), uint32(1), uint32(9), int64(1))
	f.Fuzz(func(t *testing.T, down, tokens, later, lockedFor, window, counted int64, violations, lockouts uint32, banned int64) {
		synctest.Test(t, func(t *testing.T) {
			p := policy.Policy{
				Packets:    tokenbucket.Limit{Capacity: 3, RefillPerSecond: 1},
				Escalation: policy.Escalation{MaxSoftViolations: 2, Window: time.Second, Lockout: time.Minute, Growth: 2},
			}
			e := start(t, p)
			at := time.Now().Add(-time.Duration(down)).Round(0)
			d := snapshotData{
				At:   at,
				Bans: []savedBan{{Prefix: netip.MustParsePrefix("203.0.113.0/24"), Until: at.Add(time.Duration(banned))}},
				Endpoints: []savedEndpoint{{
					Endpoint: somebody, Policy: "default", Later: time.Duration(later),
					State: policy.Saved{
						Packets:   tokenbucket.Level{Tokens: tokens, Frac: uint64(tokens)},
						LockedFor: time.Duration(lockedFor), Window: time.Duration(window), Counted: time.Duration(counted),
						Violations: violations, Lockouts: lockouts,
					},
				}},
			}
			if err := read(t, e, d); err != nil {
				require.ErrorIs(t, err, ErrSnapshot)
				require.Zero(t, e.Report().TrackedEndpoints)
				require.Empty(t, e.Bans())
				return
			}
			require.LessOrEqual(t, int64(e.Evaluate(netip.MustParseAddrPort("203.0.113.7:1")).RetryAfter), max(0, banned))
			first := e.Evaluate(somebody)
			if lockedFor > 0 && first.Reason == policy.HardLockout && violations < 2 {
				require.LessOrEqual(t, int64(first.RetryAfter), max(lockedFor, int64(time.Hour)))
			} else if lockedFor <= 0 {
				require.LessOrEqual(t, first.RetryAfter, time.Hour)
			}
			allowed := 0
			for range 5 {
				if e.Evaluate(somebody).Allowed {
					allowed++
				}
			}
			require.LessOrEqual(t, allowed, 3)
			if lockedFor < int64(time.Hour) {
				// The longest that it can be remembered: MaxLockout, then ForgetAfter.
				time.Sleep(2*time.Hour + 10*time.Minute + DefaultStaleAfter + 2*DefaultCleanupInterval)
				require.Zero(t, e.Report().TrackedEndpoints)
			}
		})
	})
}

// Any bytes under a right checksum are an error or a snapshot.
func FuzzSnapshotBytes(f *testing.F) {
	whole, err := snapshotData{
		At:        time.Unix(1e9, 0),
		Bans:      []savedBan{{Prefix: netip.MustParsePrefix("203.0.113.0/24"), Note: "x"}},
		Endpoints: []savedEndpoint{{Endpoint: somebody, Policy: "default", State: policy.Saved{LockedFor: 1}}},
	}.seal()
	require.NoError(f, err)
	f.Add(whole[len(snapshotMagic) : len(whole)-8])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, body []byte) {
		b := append([]byte(snapshotMagic), body...)
		b = binary.BigEndian.AppendUint64(b, xxhash.Sum64(b))
		e := start(t, policy.Policy{})
		if err := e.ReadSnapshot(bytes.NewReader(b)); err != nil {
			require.ErrorIs(t, err, ErrSnapshot)
			require.Zero(t, e.Report().TrackedEndpoints)
			require.Empty(t, e.Bans())
		}
		e.Evaluate(somebody)
		require.NoError(t, e.WriteSnapshot(io.Discard))
	})
}
