package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/seed-ee4278a0/throttled/shard"
)

const (
	// journalEvery is the least time between two lines about lockouts.
	journalEvery = time.Second
	// fullEvery and loadEvery are the same for the table and the load, which
	// may go back and forth.
	fullEvery = time.Minute
	loadEvery = 10 * time.Second
)

// A journal logs what changes: that endpoints are locked out, that the table is
// full, that refill is slowed down. Each second has at most a line of each kind,
// whatever comes in, so that an attack cannot fill the log. It belongs to the
// janitor.
type journal struct {
	lockouts int64 // that were told of
	full     bool  // as was told
	fullAt   time.Time
	slowed   bool // as was told
	loadAt   time.Time
}

// logs says whether anybody reads what the journal writes.
func (e *Engine) logs() bool { return e.cfg.Logger.Enabled(context.Background(), slog.LevelInfo) }

// write looks for changes since the last time.
func (j *journal) write(e *Engine) {
	stats, now := e.table.Stats(), time.Now()
	if n := stats.Lockouts - j.lockouts; n > 0 {
		j.lockouts = stats.Lockouts
		e.logLockouts(n)
	}
	if full := e.table.Len() >= e.cfg.MaxTrackedEndpoints; full != j.full && now.Sub(j.fullAt) >= fullEvery {
		j.full, j.fullAt = full, now
		e.logFull(stats)
	}
	if ratio := e.RefillRatio(); (ratio < 1) != j.slowed && now.Sub(j.loadAt) >= loadEvery {
		j.slowed, j.loadAt = ratio < 1, now
		e.cfg.Logger.Info("refill follows the CPU load", "ratio", ratio)
	}
}

// logLockouts tells of n lockouts, and of the longest of them. One that began
// between the two looks at the shards is told of now and counted the next time.
func (e *Engine) logLockouts(n int64) {
	args := []any{"lockouts", n}
	at, _ := e.now()
	if l := e.table.LongestLockout(); l.Until > 0 {
		args = append(args, "worst", e.endpoint(l.Key), "locked_for", time.Duration(max(0, l.Until-at.Now)).Round(time.Millisecond).String())
		if rule := e.names.Load().rule(PolicyID(l.Key.Policy)); rule != nil {
			args = append(args, "policy", rule.Policy().Name)
			if rule.DryRun() {
				args = append(args, "dry_run", true)
			}
		}
	}
	e.cfg.Logger.Info("endpoints locked out", args...)
}

func (e *Engine) logFull(stats shard.Stats) {
	if e.table.Len() < e.cfg.MaxTrackedEndpoints {
		e.cfg.Logger.Info("there is room for new endpoints again")
		return
	}
	e.cfg.Logger.Warn("no room for new endpoints but in the place of idle ones", "max_endpoints", e.cfg.MaxTrackedEndpoints,
		"evicted", stats.Evicted, "overflowed", stats.Overflowed)
}
