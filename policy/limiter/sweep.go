package limiter

import (
	"errors"
	"math"
	"sync"
	"time"
)

const (
	// sweepStep is how many partitions are read under one hold of a shard's
	// lock, a few microseconds. Limiters are asked outside of it.
	sweepStep = 64
	// minBeat and beatShare bound how many partitions the timer's sweep looks
	// at: it sees a table of up to minBeat partitions whole, and a larger one
	// within beatShare sweeps.
	minBeat   = 16384
	beatShare = 16
	// roomBudget bounds how many partitions a newcomer to a full table looks
	// at.
	roomBudget = 256
)

// A sweeper is the heartbeat of a table.
type sweeper[K comparable] struct {
	mu      sync.Mutex
	timer   *time.Timer
	beating bool // the timer runs, or the sweep that it has started
	stopped bool
	beats   sync.WaitGroup // 1 while beating

	shard int // where the next sweep goes on; of the one that runs
}

// wake starts the timer, unless it runs. There is a partition.
func (w *sweeper[K]) wake(t *table[K]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.beating || w.stopped {
		return
	}
	w.beating = true
	w.beats.Add(1)
	if w.timer == nil {
		w.timer = time.AfterFunc(t.options.Sweep, t.beat)
	} else {
		w.timer.Reset(t.options.Sweep)
	}
}

func (t *table[K]) beat() {
	t.sweepSome()
	w := &t.sweeper
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped || t.count.Load() == 0 {
		w.beating = false
		w.beats.Done()
		return
	}
	w.timer.Reset(t.options.Sweep)
}

// stop ends the heartbeat and returns when no sweep runs any more.
func (w *sweeper[K]) stop() {
	w.mu.Lock()
	w.stopped = true
	if w.beating && w.timer.Stop() {
		w.beating = false
		w.beats.Done()
	}
	w.mu.Unlock()
	w.beats.Wait()
}

// sweepSome is what the timer does: it replenishes all manual limiters and
// looks for idle ones among a bounded number of shards.
func (t *table[K]) sweepSome() {
	var errs []error
	budget := max(minBeat, int(t.count.Load())/beatShare)
	t.replenish()
	for range t.shards {
		if budget <= 0 || t.closed.Load() {
			break
		}
		s := &t.shards[t.sweeper.shard]
		t.sweeper.shard = (t.sweeper.shard + 1) % tableShards
		budget -= t.forgetIdle(s, &errs)
	}
	t.report(errors.Join(errs...))
}

func (t *table[K]) sweepAll() {
	var errs []error
	t.replenish()
	for i := range t.shards {
		t.forgetIdle(&t.shards[i], &errs)
	}
	t.report(errors.Join(errs...))
}

func (t *table[K]) replenish() {
	if t.manual.Load() == 0 {
		return
	}
	var found [sweepStep]candidate[K]
	for i := range t.shards {
		s := &t.shards[i]
		for n, end := s.read(&s.manual, fromEnd, found[:]); n > 0; n, end = s.read(&s.manual, end, found[:]) {
			for _, c := range found[:n] {
				c.limiter.(Replenisher).Replenish()
			}
		}
	}
}

// forgetIdle forgets the idle keys of a shard and returns how many it looked
// at.
func (t *table[K]) forgetIdle(s *tableShard[K], errs *[]error) (seen int) {
	var found [sweepStep]candidate[K]
	for n, end := s.read(&s.kept, fromEnd, found[:]); n > 0; n, end = s.read(&s.kept, end, found[:]) {
		for _, c := range found[:n] {
			if t.forget(s, c, t.options.IdleAfter) {
				*errs = append(*errs, c.limiter.Close())
			}
		}
		seen += n
	}
	return seen
}

// A candidate is a partition as it was when the sweep read it.
type candidate[K comparable] struct {
	*partition[K]
	entered uint64
	quiet   bool // no call was inside
}

// fromEnd as a place in a list is its end.
const fromEnd = math.MaxInt

// read copies the partitions before a place in a list, the last first, so that
// one which takes the place of a removed one has been read. It returns their
// number and the place to go on from.
func (s *tableShard[K]) read(l *list[K], end int, found []candidate[K]) (n, next int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next = min(end, len(l.partitions))
	for n < len(found) && next > 0 {
		next--
		p := l.partitions[next]
		found[n] = candidate[K]{partition: p, entered: p.entered, quiet: p.inside.Load() == 0}
		n++
	}
	return n, next
}

// forget takes out a partition that has been idle for longer than after, if no
// call has come since it was read. The limiter is the caller's to close.
func (t *table[K]) forget(s *tableShard[K], c candidate[K], after time.Duration) bool {
	if !c.quiet {
		return false
	}
	if idle, ok := c.limiter.Idle(); !ok || idle <= after {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.partition.entered == c.entered && t.remove(s, c.partition)
}

// reserve makes sure that there is room for one more partition and counts it.
func (t *table[K]) reserve() bool {
	limit := int64(t.options.MaxPartitions)
	for {
		n := t.count.Load()
		if limit > 0 && n >= limit {
			if !t.makeRoom() {
				return false
			}
			continue
		}
		if t.count.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// makeRoom forgets one partition that has nothing to remember. It goes round
// the table like the hand of a clock, so that newcomers do not all look at the
// same ones.
func (t *table[K]) makeRoom() bool {
	var found [sweepStep]candidate[K]
	first := t.hand.Load()
	for i, budget := uint64(0), roomBudget; i < tableShards && budget > 0; {
		s := &t.shards[(first+i)%tableShards]
		n, end := s.readOn(found[:min(budget, sweepStep)])
		for _, c := range found[:n] {
			if t.forget(s, c, -1) {
				t.report(c.limiter.Close())
				return true
			}
		}
		budget -= n
		if end {
			i++
			t.hand.CompareAndSwap(first+i-1, first+i)
		}
	}
	return false
}

// readOn reads where the last search for room ended and reports whether it has
// come to the end.
func (s *tableShard[K]) readOn(found []candidate[K]) (n int, end bool) {
	s.mu.Lock()
	from := s.hand
	s.mu.Unlock()
	if from == 0 {
		from = fromEnd
	}
	n, next := s.read(&s.kept, from, found)
	s.mu.Lock()
	s.hand = next
	s.mu.Unlock()
	return n, next == 0
}
