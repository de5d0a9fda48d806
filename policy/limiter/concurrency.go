package limiter

// A Concurrency is a limiter of how many permits are out at a time. A permit is
// out until its lease is released; one whose lease is lost never comes back.
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
	c.init(&c.pool, o.PermitLimit, o.Queue, false, concurrencyReached)
	return c, nil
}

// A pool is the algorithm of a Concurrency.
type pool struct {
	limit, free int64
	returned    int64 // when the last permit came back
}

func (p *pool) available(int64) int64 { return p.free }

func (p *pool) take(_, n int64) (stamp int64, ok bool) {
	if p.free < n {
		return 0, false
	}
	p.free -= n
	return 0, true
}

func (p *pool) giveBack(now, n, _ int64) {
	p.free += n
	p.returned = now
}

func (p *pool) wait(int64, *queue, int64) (int64, bool) { return 0, false }

func (p *pool) idle(int64) (int64, bool) { return p.returned, p.free == p.limit }

func (p *pool) replenish(int64) {}
