package httplimit_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/seed-ee4278a0/throttled/netx/httplimit"
	"github.com/seed-ee4278a0/throttled/policy/limiter"
)

// A noted limiter tells of the denials of the one inside, and passes on
// everything else by embedding it: J260, J261 and J262, since a lease is the one
// that the limiter inside made and Close is its Close. It embeds a
// limiter.Replenisher, so that a table goes on replenishing it where it is
// manual.
type noted struct {
	limiter.Replenisher
	host string
}

func (n noted) Acquire(ctx context.Context, permits int) (limiter.Lease, error) {
	lease, err := n.Replenisher.Acquire(ctx, permits)
	if err == nil && !lease.Acquired() {
		fmt.Printf("%s: %s\n", n.host, lease.Reason())
	}
	return lease, err
}

func newNoted(host string) (limiter.Limiter, error) {
	inner, err := limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Minute})
	return noted{inner, host}, err
}

// A decorator is a struct that embeds a limiter.
func Example_decorator() {
	byHost, err := limiter.NewPartitioned(func(r *http.Request) limiter.Partition[string] {
		return limiter.Partition[string]{Key: r.Host, New: newNoted}
	}, limiter.PartitionedOptions{MaxPartitions: 100})
	if err != nil {
		log.Fatal(err)
	}
	defer byHost.Close()
	limits, err := httplimit.New(httplimit.Options{Global: byHost})
	if err != nil {
		log.Fatal(err)
	}
	defer limits.Close()
	handler := limits.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))

	for _, url := range []string{"http://a.example/", "http://a.example/", "http://b.example/"} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, url, nil))
		fmt.Println(url, w.Code)
	}
	// Output:
	// http://a.example/ 200
	// a.example: rate limit reached
	// http://a.example/ 429
	// http://b.example/ 200
}
