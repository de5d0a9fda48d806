package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/seed-ee4278a0/throttled/policy/limiter"
)

func ExampleNewTokenBucket() {
	l, err := limiter.NewTokenBucket(limiter.TokenBucketOptions{
		TokenLimit:      2, // a burst of two,
		TokensPerPeriod: 1, // then one
		Period:          time.Hour,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	for range 3 {
		lease, err := l.TryAcquire(1)
		if err != nil {
			fmt.Println(err)
			return
		}
		retry, _ := lease.RetryAfter()
		fmt.Println(lease.Acquired(), lease.Reason(), retry.Round(time.Hour))
	}
	// Output:
	// true  0s
	// true  0s
	// false rate limit reached 1h0m0s
}

func ExampleNewFixedWindow() {
	l, err := limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 100, Window: time.Hour})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	lease, _ := l.TryAcquire(30) // a call may weigh more than others
	fmt.Println(lease.Acquired(), l.Stats().Available)
	// Output: true 70
}

func ExampleNewSlidingWindow() {
	_, err := limiter.NewSlidingWindow(limiter.SlidingWindowOptions{PermitLimit: 100, Segments: -1})
	fmt.Println(err)

	l, err := limiter.NewSlidingWindow(limiter.SlidingWindowOptions{
		PermitLimit: 100,
		Window:      time.Minute,
		Segments:    6,
	})
	fmt.Println(l.Period(), err)
	// Output:
	// limiter: Window: 0s is not positive
	// limiter: Segments: -1 is outside 1..1048576
	// 10s <nil>
}

func ExampleNewConcurrency() {
	l, err := limiter.NewConcurrency(limiter.ConcurrencyOptions{
		PermitLimit: 1,
		Queue:       limiter.Queue{Limit: 1, Order: limiter.OldestFirst, MaxWait: time.Minute},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	first, _ := l.TryAcquire(1)
	second, _ := l.TryAcquire(1)
	fmt.Println(first.Acquired(), second.Acquired(), second.Reason())

	go first.Release() // at some time
	third, err := l.Acquire(context.Background(), 1)
	fmt.Println(third.Acquired(), err)

	fmt.Println(l.Close())
	_, err = l.TryAcquire(1)
	fmt.Println(errors.Is(err, limiter.ErrClosed), errors.Is(err, net.ErrClosed))
	// Output:
	// true false concurrency limit reached
	// true <nil>
	// <nil>
	// true true
}

func ExampleUnlimited() {
	lease, err := limiter.Unlimited().TryAcquire(1_000_000)
	fmt.Println(lease.Acquired(), err)
	// Output: true <nil>
}

// What the first member granted is given back where the second one denies.
func ExampleChain() {
	perHour, err := limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 100, Window: time.Hour})
	if err != nil {
		fmt.Println(err)
		return
	}
	atOnce, err := limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	l, err := limiter.Chain(perHour, atOnce)
	if err != nil {
		fmt.Println(err)
		return
	}
	running, _ := l.TryAcquire(1)
	another, _ := l.TryAcquire(1)
	fmt.Println(running.Acquired(), another.Acquired(), another.Reason())
	fmt.Println(perHour.Stats().Available)
	running.Release()
	fmt.Println(perHour.Stats().Available, atOnce.Stats().Available)
	// Output:
	// true false concurrency limit reached
	// 99
	// 99 1
}

type request struct{ user, tenant string }

func ExampleNewPartitioned() {
	perUser, err := limiter.NewPartitioned(func(r request) limiter.Partition[string] {
		return limiter.Partition[string]{Key: r.user, New: func(user string) (limiter.Limiter, error) {
			if user == "admin" {
				return limiter.Unlimited(), nil
			}
			return limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Hour})
		}}
	}, limiter.PartitionedOptions{MaxPartitions: 10_000})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer perUser.Close()
	for _, user := range []string{"ann", "bob", "ann", "admin", "admin"} {
		lease, err := perUser.TryAcquire(request{user: user}, 1)
		fmt.Println(user, lease.Acquired(), err)
	}
	fmt.Println(perUser.Len(), "keys")
	// Output:
	// ann true <nil>
	// bob true <nil>
	// ann false <nil>
	// admin true <nil>
	// admin true <nil>
	// 2 keys
}

// Ten an hour for each user, and three at once for each tenant.
func ExampleChainSelective() {
	perUser, err := limiter.NewPartitioned(func(r request) limiter.Partition[string] {
		return limiter.Partition[string]{Key: r.user, New: func(string) (limiter.Limiter, error) {
			return limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 10, Window: time.Hour})
		}}
	}, limiter.PartitionedOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer perUser.Close()
	perTenant, err := limiter.NewPartitioned(func(r request) limiter.Partition[string] {
		return limiter.Partition[string]{Key: r.tenant, New: func(string) (limiter.Limiter, error) {
			return limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 3})
		}}
	}, limiter.PartitionedOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer perTenant.Close()
	both, err := limiter.ChainSelective[request](perUser, perTenant)
	if err != nil {
		fmt.Println(err)
		return
	}
	ann := request{user: "ann", tenant: "acme"}
	for range 3 {
		if _, err := both.TryAcquire(ann, 1); err != nil {
			fmt.Println(err)
		}
	}
	fourth, _ := both.TryAcquire(ann, 1)
	fmt.Println(fourth.Acquired(), fourth.Reason())
	stats, _ := perUser.Stats(ann)
	fmt.Println(stats.Available)
	// Output:
	// false concurrency limit reached
	// 7
}

func ExampleTranslate() {
	byName, err := limiter.NewPartitioned(func(name string) limiter.Partition[string] {
		return limiter.Partition[string]{Key: name, New: func(string) (limiter.Limiter, error) {
			return limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1})
		}}
	}, limiter.PartitionedOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer byName.Close()
	byRequest := limiter.Translate(byName, func(r request) string { return r.user }, true)
	held, _ := byName.TryAcquire("ann", 1)
	fmt.Println(held.Acquired())
	lease, _ := byRequest.TryAcquire(request{user: "ann"}, 1)
	fmt.Println(lease.Acquired())
	// Output:
	// true
	// false
}

func ExampleManaged() {
	inner, err := limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	session := limiter.Managed(inner)
	_, idle := session.Idle()
	fmt.Println(idle) // in use, though nothing is out
	session.Close()
	_, idle = session.Idle()
	fmt.Println(idle)
	// Output:
	// false
	// true
}

// A key lives as long as a session.
func ExampleManagedPartition() {
	sessions := map[string]*limiter.ManagedLifetime{}
	perSession, err := limiter.NewPartitioned(func(id string) limiter.Partition[string] {
		return limiter.ManagedPartition(id, func(string) (limiter.Limiter, error) {
			return limiter.NewTokenBucket(limiter.TokenBucketOptions{TokenLimit: 1, TokensPerPeriod: 1, Period: time.Hour})
		}, func(l *limiter.ManagedLifetime, id string) error {
			sessions[id] = l
			return nil
		})
	}, limiter.PartitionedOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer perSession.Close()
	for range 2 {
		lease, _ := perSession.TryAcquire("s1", 1)
		fmt.Println(lease.Acquired())
	}
	sessions["s1"].Close() // the end of the session
	lease, _ := perSession.TryAcquire("s1", 1)
	fmt.Println(lease.Acquired())
	// Output:
	// true
	// false
	// true
}

// logged is a limiter that says what it denies: one that is embedded in a
// struct is what a decorator is elsewhere.
type logged struct{ limiter.Limiter }

func (l logged) TryAcquire(n int) (limiter.Lease, error) {
	lease, err := l.Limiter.TryAcquire(n)
	if err == nil && !lease.Acquired() {
		fmt.Println("denied:", lease.Reason())
	}
	return lease, err
}

func ExampleLimiter_decorated() {
	inner, err := limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	l := logged{inner}
	for range 2 {
		if _, err := l.TryAcquire(1); err != nil {
			fmt.Println(err)
		}
	}
	// Output: denied: concurrency limit reached
}
