package limiter

// A Concurrency is a limiter of how many permits are out at a time. A permit is
// out until its lease is released; one whose lease is lost never comes back. Use
// NewConcurrency; the zero value is of no use.
type Concurrency struct {
	core
	pool pool
}

// ConcurrencyOptions configure a [Concurrency]. PermitLimit must be set.
type ConcurrencyOptions struct {
	// PermitLimit is the number of permits; 1 or more.
	PermitLimit int
	// Queue says who may wait; the zero value lets nobody.
	Queue Queue
}

// NewConcurrency returns a limiter with all its permits, or an error that names
// every option that is out of its range.
func NewConcurrency(o ConcurrencyOptions) (*Concurrency, error) {
	var p problems
	p.positive("PermitLimit", o.PermitLimit)
	p.queue(o.Queue)
	if err := p.err(); err != nil {
		return nil, err
	}
	c := &Concurrency{pool: pool{limit: int64(o.PermitLimit), free: int64(o.PermitLimit)}}
	c.pool.now = c.now
	c.init(&c.pool, o.PermitLimit, o.Queue, false, concurrencyReached)
	return c, nil
}

// SetPermitLimit changes the number of permits, to 1 or more. Where more than
// that are out, nobody gets any before enough have come back. How many a call
// may ask for stays as it was made.
func (c *Concurrency) SetPermitLimit(n int) error {
	var p problems
	p.positive("PermitLimit", n)
	if err := p.err(); err != nil {
		return err
	}
	now := c.arrival()
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return ErrClosed
	}
	c.pool.free += int64(n) - c.pool.limit
	c.pool.limit = int64(n)
	woken := c.settle(now)
	c.mu.Unlock()
	woken.wake()
	return nil
}

// A pool is the algorithm of a Concurrency. What is out under one lease has a
// slot, and a slot has turns, so that a lease that was released already is
// known by its turn and none has to be allocated. There are as many slots as
// there ever were leases at a time.
type pool struct {
	limit, free int64 // free is less than 0 while more are out than the limit
	slots       []slot
	vacant      int64 // the first free slot, or the number of slots
	returned    int64 // when the last permit came back
	now         func() int64
}

type slot struct {
	turn int64
	n    int64 // permits; in a free slot the next free one
}

func (p *pool) available(int64) int64 { return max(0, p.free) }

func (p *pool) take(_, n int64) (claim, bool) {
	if p.free < n {
		return claim{}, false
	}
	p.free -= n
	i := p.vacant
	if i == int64(len(p.slots)) {
		p.slots = append(p.slots, slot{turn: 1, n: i + 1})
	}
	s := &p.slots[i]
	p.vacant, s.n = s.n, n
	return claim{n: s.turn, stamp: i}, true
}

func (p *pool) giveBack(_ int64, c claim) {
	s := &p.slots[c.stamp]
	if s.turn != c.n {
		return
	}
	s.turn++
	p.free += s.n
	p.vacant, s.n = c.stamp, p.vacant
	if p.free == p.limit {
		p.returned = p.now()
	}
}

func (p *pool) wait(int64, *queue, int64) (int64, bool) { return 0, false }

func (p *pool) idle(int64) (int64, bool) { return p.returned, p.free == p.limit }

func (p *pool) replenish(int64) {}
