package engine_test

import (
	"encoding/json"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// written are the lines of a log.
type written chan string

func (w written) Write(line []byte) (int, error) {
	w <- string(line)
	return len(line), nil
}

// journalled runs a test with an engine that logs; lines gives what it logged
// since it was asked last.
func journalled(t *testing.T, c engine.Config, test func(e *engine.Engine, lines func() []map[string]any)) {
	synctest.Test(t, func(t *testing.T) {
		log := make(written, 1000)
		c.Logger = slog.New(slog.NewJSONHandler(log, nil))
		e := newEngine(t, c)
		test(e, func() (lines []map[string]any) {
			synctest.Wait()
			for len(log) > 0 {
				line := map[string]any{}
				require.NoError(t, json.Unmarshal([]byte(<-log), &line))
				lines = append(lines, line)
			}
			return lines
		})
	})
}

func sender(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 1)
}

// Of a source that does not stop the log has a line for each lockout; of many
// that are locked out together it has one line. C106.
func TestJournalOfLockouts(t *testing.T) {
	p := policy.Policy{
		Name:       "strict",
		Packets:    tokenbucket.Limit{Capacity: 1, RefillPerSecond: 1e-6},
		Escalation: policy.Escalation{Lockout: 30 * time.Second, Growth: 2},
	}
	journalled(t, engine.Config{Default: p}, func(e *engine.Engine, lines func() []map[string]any) {
		time.Sleep(time.Millisecond)
		for range 90 * 1000 { // 0..90 s: locked out at 0 s for 30 s, and at 30 s for a minute
			e.Evaluate(sender(1))
			time.Sleep(time.Millisecond)
		}
		got := lines()
		require.Len(t, got, 2)
		for i, left := range []string{"29.", "59."} {
			assert.Equal(t, "endpoints locked out", got[i]["msg"])
			assert.Equal(t, 1.0, got[i]["lockouts"])
			assert.Equal(t, "10.0.0.1", got[i]["worst"])
			assert.Equal(t, "strict", got[i]["policy"])
			assert.True(t, strings.HasPrefix(got[i]["locked_for"].(string), left), got[i])
		}

		time.Sleep(time.Second)
		for i := range 5000 { // the one that was locked out before is among them
			for range 10 {
				e.Evaluate(sender(i))
			}
		}
		time.Sleep(time.Minute)
		got = lines()
		require.Len(t, got, 1)
		assert.Equal(t, 5000.0, got[0]["lockouts"])
		assert.Equal(t, "10.0.0.1", got[0]["worst"], "its lockout is the longest")
	})
}

// A table that goes back and forth between full and not is told of once a minute
// at most.
func TestJournalOfAFullTable(t *testing.T) {
	c := engine.Config{MaxTrackedEndpoints: 100, StaleAfter: time.Second, CleanupInterval: 5 * time.Second}
	journalled(t, c, func(e *engine.Engine, lines func() []map[string]any) {
		for range 30 { // each 10 s full, and emptied again
			for i := range 200 {
				e.Evaluate(sender(i))
			}
			time.Sleep(10 * time.Second)
		}
		got := lines()
		require.NotEmpty(t, got)
		assert.Equal(t, "no room for new endpoints but in the place of idle ones", got[0]["msg"])
		assert.Equal(t, 100.0, got[0]["max_endpoints"])
		assert.LessOrEqual(t, len(got), 6)
		time.Sleep(2 * time.Minute)
		if got = lines(); len(got) > 0 { // unless that was the last that was told
			assert.Equal(t, "there is room for new endpoints again", got[0]["msg"])
		}
	})
}

type flapping struct{ n atomic.Int64 }

func (f *flapping) Ratio() float64 {
	if f.n.Add(1)/8%2 == 1 {
		return 0.5
	}
	return 1
}

func TestJournalOfTheLoad(t *testing.T) {
	journalled(t, engine.Config{Load: &flapping{}}, func(_ *engine.Engine, lines func() []map[string]any) {
		time.Sleep(time.Minute)
		got := lines()
		require.NotEmpty(t, got)
		assert.Equal(t, "refill follows the CPU load", got[0]["msg"])
		assert.Equal(t, 0.5, got[0]["ratio"])
		assert.LessOrEqual(t, len(got), 6)
	})
}

func TestNobodyReadsTheJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := make(written, 10)
		e := newEngine(t, engine.Config{Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
		for range 1000 {
			e.Evaluate(sender(1))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Empty(t, log)
	})
}
