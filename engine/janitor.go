package engine

import (
	"time"

	"github.com/seed-ee4278a0/throttled/shard"
)

// sampleEvery is the time between two readings of the load.
const sampleEvery = 250 * time.Millisecond

// sweepBudget and walkBudget bound the slots seen under one hold of a shard's
// lock. A sweep is so short in each that a decision spins rather than sleeps
// while it waits (bench/lib -sweep); a copy takes some 10 µs.
const (
	sweepBudget = 16
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

// sweep forgets who has gone. It takes a step in each shard in turn: whoever has
// waited for a lock gets it before it is wanted again. It begins with another
// shard each time, so that one that is interrupted by Close over and over
// starves none.
func (e *Engine) sweep(first int) {
	next := make([]int, e.table.Shards()) // the slot to go on from
	for left := len(next); left > 0; {
		for i := range next {
			s := (first + i) % len(next)
			if next[s] == shard.Done {
				continue
			}
			if e.closed.Load() {
				return
			}
			at, _ := e.now()
			if next[s] = e.table.Sweep(s, next[s], sweepBudget, at, e.cfg.StaleAfter); next[s] == shard.Done {
				left--
			}
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
