// Package limiter hands out permits, so many at a time or so many in a time,
// and can let those wait for whom there are none. The engine of this module
// decides on packets, at once and for millions of endpoints; this package is
// for connections and requests, of which one can wait.
//
//	l, err := limiter.NewConcurrency(limiter.ConcurrencyOptions{
//		PermitLimit: 100,
//		Queue:       limiter.Queue{Limit: 50, MaxWait: time.Second},
//	})
//	...
//	lease, err := l.Acquire(ctx, 1)
//	if err != nil {
//		return err // wrong arguments, closed, or ctx is done
//	}
//	if !lease.Acquired() {
//		return errors.New(lease.Reason()) // a denial is not an error
//	}
//	defer lease.Release()
//
// # The limiters
//
//	NewTokenBucket    a burst, and a steady rate that goes on behind it
//	NewFixedWindow    so many in each minute, say
//	NewSlidingWindow  so many in any minute, in steps
//	NewConcurrency    so many at a time; leases are released
//	Unlimited         all
//	Chain             what all members grant
//	NewPartitioned    a limiter for each key
//	ChainSelective    what all members grant, each by a key of its own
//	Translate         a keyed limiter for something else that has such keys
//	Managed           one that a keyed limiter forgets when somebody says so
//
// All four algorithms are one core: one waiter queue, one kind of lease, one
// idle clock, one block of statistics. An algorithm only knows how many permits
// there are, how to take them and give them back, and when there will be more.
//
// The invariant: permits are conserved. What a call took and did not keep, by a
// denial further down a chain, an error or the end of its context, is back when
// the call returns, and never more than the limit.
//
// # Time
//
// Permits come back by elapsed time, reckoned when somebody asks, to the
// nanosecond and without rounding: a limiter that nobody asks costs nothing. A
// timer runs only while somebody waits, and in a [Partitioned] while it has
// keys. All time goes through package time, so that testing/synctest governs
// it.
//
// # For those who know System.Threading.RateLimiting
//
//	RateLimiter                         Limiter
//	TokenBucketRateLimiter              TokenBucket
//	FixedWindowRateLimiter              FixedWindow
//	SlidingWindowRateLimiter            SlidingWindow
//	ConcurrencyLimiter                  Concurrency
//	AttemptAcquire                      TryAcquire
//	AcquireAsync, WaitAndAcquireAsync   Acquire with a context
//	RateLimitLease, IsAcquired          Lease, Lease.Acquired
//	Dispose of a lease                  Lease.Release
//	MetadataName.RetryAfter             Lease.RetryAfter
//	MetadataName.ReasonPhrase           Lease.Reason
//	permitCount = 1                     n, which is always said
//	GetStatistics                       Stats
//	TotalSuccessfulLeases and so on     Stats.Successful and so on
//	IdleDuration                        Idle; null is false
//	QueueLimit, QueueProcessingOrder    Queue.Limit, Queue.Order
//	AutoReplenishment = false           Manual: true
//	ReplenishingRateLimiter             Replenisher
//	TryReplenish                        Replenish
//	IsAutoReplenishing                  Auto
//	ReplenishmentPeriod                 Period
//	RateLimiter.CreateChained           Chain
//	PartitionedRateLimiter.Create       NewPartitioned
//	PartitionedRateLimiter              Selective
//	RateLimitPartition                  Partition
//	GetTokenBucketLimiter and so on     a Partition whose New calls NewTokenBucket
//	GetNoLimiter                        a Partition whose New returns Unlimited()
//	idle limit 10 s, heartbeat 100 ms   PartitionedOptions.IdleAfter, Sweep
//	PartitionedRateLimiter.CreateChained  ChainSelective
//	WithTranslatedKey                   Translate
//	ArgumentOutOfRangeException         PermitError
//	ObjectDisposedException             ErrClosed
//	OperationCanceledException          the context's error
//	Dispose, DisposeAsync               Close
//	a decorator class                   a struct that embeds a Limiter
//	AddRateLimiter, UseRateLimiter      package netx/httplimit
//
// What is different here, and why:
//
//   - A token bucket is credited all the time and not in a heap at the end of
//     each period, so that its RetryAfter is the time it takes and not a number
//     of periods, and a rate is what it says however seldom a timer fires.
//   - Fixed windows keep their boundaries, whenever Replenish is called. Long
//     gaps count for as many segments of a sliding window as have passed.
//   - A full bucket gains nothing: time while it is full is no credit later, by
//     hand either.
//   - RetryAfter is there on every denial of a limiter that time helps, the
//     sliding window and those who were evicted included. It does not overflow:
//     what takes longer than 292 years is [Never].
//   - Every denial says its reason.
//   - TryAcquire(0) is granted where TryAcquire(1) would be.
//   - A waiter that is cancelled leaves at once, makes room and holds up nobody.
//     The number of waiters is bounded even where they ask for nothing, and
//     Queue.MaxWait bounds their time.
//   - A chain gives rate permits back too, so that a denial by one member costs
//     nothing at the others. It passes Replenish on, and is idle only when no
//     member is in use. To let a key pass a whole chain, make the chain in New
//     and return Unlimited() instead for that key.
//   - A keyed limiter forgets a key only when its limiter has nothing out and
//     would start where it is; no call ever meets a limiter that was closed
//     under it; New that failed is tried again; the number of keys can be
//     bounded; the sweep looks at a bounded number of keys at a time, asks no
//     limiter under a lock that a call needs, has a period to choose, can be
//     had by hand and reports its errors; keys without a limit are not kept.
//   - Limiters in a [Partitioned] are not made manual: there is no timer to
//     save. Manual ones are replenished by the sweep.
package limiter
