package engine

import (
	"time"

	"github.com/seed-ee4278a0/throttled/shard"
)

// sampleEvery is the time between two readings of the load.
const sampleEvery = 250 * time.Millisecond

// sweepBudget and walkBudget bound the slots seen under one hold of a shard's
// lock, some 10 µs.
const (
	sweepBudget = 512
	walkBudget  = 256
)

// janitor is the engine's goroutine.
func (e *Engine) janitor() {
	cleanup := time.NewTicker(e.cfg.CleanupInterval)
	defer cleanup.Stop()
	var sample <-chan time.Time
	if e.cfg.Load != NoLoad {
		ticker := time.NewTicker(sampleEvery)
		defer ticker.Stop()
		sample = ticker.C
	}
	var look <-chan time.Time
	if e.logs() {
		ticker := time.NewTicker(journalEvery)
		defer ticker.Stop()
		look = ticker.C
	}
	var j journal
	for first := 0; ; {
		select {
		case <-e.stop:
			return
		case <-look:
			j.write(e)
		case <-sample:
			ratio := e.cfg.Load.Ratio() // may take a while, for which the last one holds
			e.refill.set(e.elapsed(), ratio)
		case <-cleanup.C:
			e.pruneBans()
			e.sweep(first)
			first++
		}
	}
}

// sweep forgets who has gone, beginning with another shard each time, so that
// one that is interrupted by Close over and over starves none.
func (e *Engine) sweep(first int) {
	for i := range e.table.Shards() {
		for slot := 0; slot != shard.Done; {
			if e.closed.Load() {
				return
			}
			at, _ := e.now()
			slot = e.table.Sweep((first+i)%e.table.Shards(), slot, sweepBudget, at, e.cfg.StaleAfter)
		}
	}
}

// walk calls f for a copy of every entry.
func (e *Engine) walk(f func(shard.Row)) {
	rows := make([]shard.Row, walkBudget)
	for i := range e.table.Shards() {
		for slot := 0; slot != shard.Done; {
			at, _ := e.now()
			var n int
			n, slot = e.table.Read(i, slot, rows, at)
			for _, row := range rows[:n] {
				f(row)
			}
		}
	}
}
