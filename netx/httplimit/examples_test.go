package httplimit_test

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/seed-ee4278a0/throttled/netx/httplimit"
	"github.com/seed-ee4278a0/throttled/policy/limiter"
)

// One limit for each address over all routes, with an answer of one's own.
func ExampleNew() {
	two := func(string) (limiter.Limiter, error) {
		return limiter.NewTokenBucket(limiter.TokenBucketOptions{TokenLimit: 2, TokensPerPeriod: 1, Period: time.Minute})
	}
	byAddress, err := limiter.NewPartitioned(func(r *http.Request) limiter.Partition[string] {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		return limiter.Partition[string]{Key: host, New: two}
	}, limiter.PartitionedOptions{MaxPartitions: 100_000})
	if err != nil {
		log.Fatal(err)
	}
	defer byAddress.Close()
	limits, err := httplimit.New(httplimit.Options{
		Global: byAddress,
		OnRejected: func(w http.ResponseWriter, _ *http.Request, lease limiter.Lease) {
			_, _ = fmt.Fprintf(w, "%s, try again in %s s", lease.Reason(), w.Header().Get("Retry-After"))
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer limits.Close()
	handler := limits.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "hello") }))

	for range 3 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 200 hello
	// 200 hello
	// 429 rate limit reached, try again in 60 s
}

// A policy of one route that needs no name.
func ExampleLimits_RequirePolicy() {
	hourly := func(string) (limiter.Limiter, error) {
		return limiter.NewSlidingWindow(limiter.SlidingWindowOptions{PermitLimit: 1, Window: time.Hour, Segments: 60})
	}
	byUser, err := limiter.NewPartitioned(func(r *http.Request) limiter.Partition[string] {
		return limiter.Partition[string]{Key: r.Header.Get("User"), New: hourly}
	}, limiter.PartitionedOptions{MaxPartitions: 100_000})
	if err != nil {
		log.Fatal(err)
	}
	defer byUser.Close()
	limits, err := httplimit.New(httplimit.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer limits.Close()
	export, err := limits.RequirePolicy(httplimit.Policy{
		Limiter: byUser,
		OnRejected: func(w http.ResponseWriter, _ *http.Request, _ limiter.Lease) {
			http.Error(w, "once an hour", http.StatusTooManyRequests)
		},
	}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "all of it") }))
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /export", export)
	handler := limits.Wrap(mux)

	for _, user := range []string{"ann", "ann", "bob"} {
		r := httptest.NewRequest(http.MethodGet, "/export", nil)
		r.Header.Set("User", user)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Print(user, ": ", w.Code, " ", w.Body)
	}
	// Output:
	// ann: 200 all of it
	// ann: 429 once an hour
	// bob: 200 all of it
}

// One request at a time, and nobody waits.
func ExampleConcurrencyLimiter() {
	var handler http.Handler
	ask := func() int {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		return w.Code
	}
	first := true
	page := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if first {
			first = false
			fmt.Println("a second one meanwhile:", ask())
		}
	})
	handler, err := httplimit.ConcurrencyLimiter(page, httplimit.ConcurrencyLimiterOptions{MaxConcurrentRequests: 1})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the first one:", ask())
	fmt.Println("one after it:", ask())
	// Output:
	// a second one meanwhile: 503
	// the first one: 200
	// one after it: 200
}
