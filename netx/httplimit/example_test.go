package httplimit_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ee4278a0/throttled/netx/httplimit"
	"github.com/seed-ee4278a0/throttled/policy/limiter"
)

// user is who a request is from. Here it is a header that nobody but the
// server's own authentication can have set.
func user(r *http.Request) string { return r.Header.Get("User") }

// byUser returns a table with a limiter for each user.
func byUser(factory func(user string) (limiter.Limiter, error)) limiter.Selective[*http.Request] {
	table, err := limiter.NewPartitioned(func(r *http.Request) limiter.Partition[string] {
		return limiter.Partition[string]{Key: user(r), New: factory}
	}, limiter.PartitionedOptions{MaxPartitions: 100_000})
	if err != nil {
		log.Fatal(err)
	}
	return table
}

// tenAMinute and threeAtOnce make the limiter of one user.
func tenAMinute(string) (limiter.Limiter, error) {
	return limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 10, Window: time.Minute})
}

func threeAtOnce(string) (limiter.Limiter, error) {
	return limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 3})
}

func hello(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "hello") }

func ask(h http.Handler, path, user string) int {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("User", user)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// A route on which each user has 10 requests a minute and 3 at once.
func Example() {
	both, err := limiter.ChainSelective(byUser(tenAMinute), byUser(threeAtOnce))
	if err != nil {
		log.Fatal(err)
	}
	limits, err := httplimit.New(httplimit.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer limits.Close()
	if err := limits.AddPolicy("search", httplimit.Policy{Limiter: both}); err != nil {
		log.Fatal(err)
	}
	search, err := limits.Require("search", http.HandlerFunc(hello))
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /search", search)
	mux.HandleFunc("GET /", hello)
	handler := limits.Wrap(mux)

	var codes []int
	for range 11 {
		codes = append(codes, ask(handler, "/search", "ann"))
	}
	fmt.Println(codes)
	fmt.Println("another user:", ask(handler, "/search", "bob"))
	fmt.Println("another route:", ask(handler, "/", "ann"))
	// Output:
	// [200 200 200 200 200 200 200 200 200 200 429]
	// another user: 200
	// another route: 200
}

// One limit for everybody together and one for each address, over all routes
// but one, with metrics and an answer of one's own.
func ExampleNew() {
	whole := func(struct{}) (limiter.Limiter, error) {
		return limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1000})
	}
	everybody, err := limiter.NewPartitioned(func(*http.Request) limiter.Partition[struct{}] {
		return limiter.Partition[struct{}]{New: whole}
	}, limiter.PartitionedOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer everybody.Close()
	two := func(string) (limiter.Limiter, error) {
		return limiter.NewTokenBucket(limiter.TokenBucketOptions{TokenLimit: 2, TokensPerPeriod: 1, Period: time.Minute})
	}
	address, err := limiter.NewPartitioned(func(r *http.Request) limiter.Partition[string] {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		return limiter.Partition[string]{Key: host, New: two}
	}, limiter.PartitionedOptions{MaxPartitions: 100_000})
	if err != nil {
		log.Fatal(err)
	}
	defer address.Close()
	global, err := limiter.ChainSelective[*http.Request](address, everybody)
	if err != nil {
		log.Fatal(err)
	}
	limits, err := httplimit.New(httplimit.Options{
		Global:     global,
		Registerer: prometheus.NewRegistry(), // in a program, the one that /metrics serves
		OnRejected: func(w http.ResponseWriter, _ *http.Request, lease limiter.Lease) {
			_, _ = fmt.Fprintf(w, "%s, try again in %s s", lease.Reason(), w.Header().Get("Retry-After"))
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer limits.Close()
	mux := http.NewServeMux()
	mux.HandleFunc("/", hello)
	mux.Handle("/healthz", httplimit.Disable(http.HandlerFunc(hello)))
	handler := limits.Wrap(mux)

	for _, path := range []string{"/", "/", "/", "/healthz"} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		fmt.Printf("%s %d %q\n", path, w.Code, w.Body)
	}
	// Output:
	// / 200 "hello\n"
	// / 200 "hello\n"
	// / 429 "rate limit reached, try again in 60 s"
	// /healthz 200 "hello\n"
}

// A policy of one route that needs no name.
func ExampleLimits_RequirePolicy() {
	limits, err := httplimit.New(httplimit.Options{StatusCode: http.StatusServiceUnavailable})
	if err != nil {
		log.Fatal(err)
	}
	defer limits.Close()
	slow, err := limits.RequirePolicy(httplimit.Policy{
		Limiter: byUser(func(string) (limiter.Limiter, error) {
			return limiter.NewSlidingWindow(limiter.SlidingWindowOptions{PermitLimit: 1, Window: time.Hour, Segments: 60})
		}),
		OnRejected: func(w http.ResponseWriter, _ *http.Request, _ limiter.Lease) {
			http.Error(w, "once an hour", http.StatusTooManyRequests)
		},
	}, http.HandlerFunc(hello))
	if err != nil {
		log.Fatal(err)
	}
	handler := limits.Wrap(slow)

	fmt.Println(ask(handler, "/", "ann"), ask(handler, "/", "ann"), ask(handler, "/", "bob"))
	// Output:
	// 200 429 200
}

// One request at a time, and nobody waits.
func ExampleConcurrencyLimiter() {
	var handler http.Handler
	handler, err := httplimit.ConcurrencyLimiter(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Println("a second one meanwhile:", ask(handler, "/", "bob"))
	}), httplimit.ConcurrencyLimiterOptions{MaxConcurrentRequests: 1})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the first one:", ask(handler, "/", "ann"))
	// Output:
	// a second one meanwhile: 503
	// the first one: 200
}

// A noted limiter tells of the denials of the one inside, and passes on
// everything else by embedding it: J260, J261 and J262, since a lease is the one
// that the limiter inside made and Close is its Close. It embeds a
// limiter.Replenisher, so that a table goes on replenishing it where it is
// manual.
type noted struct {
	limiter.Replenisher
	user string
}

func (n noted) Acquire(ctx context.Context, permits int) (limiter.Lease, error) {
	lease, err := n.Replenisher.Acquire(ctx, permits)
	if err == nil && !lease.Acquired() {
		fmt.Printf("%s: %s\n", n.user, lease.Reason())
	}
	return lease, err
}

// A decorator is a struct that embeds a limiter.
func Example_decorator() {
	limits, err := httplimit.New(httplimit.Options{Global: byUser(func(user string) (limiter.Limiter, error) {
		inner, err := limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Minute})
		return noted{inner, user}, err
	})})
	if err != nil {
		log.Fatal(err)
	}
	defer limits.Close()
	handler := limits.Wrap(http.HandlerFunc(hello))

	fmt.Println(ask(handler, "/", "ann"), ask(handler, "/", "ann"), ask(handler, "/", "bob"))
	// Output:
	// ann: rate limit reached
	// 200 429 200
}
