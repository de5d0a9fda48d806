package httplimit_test

import (
	"fmt"
	"log"
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

// forEachUser is a limiter of requests in which each user has one.
func forEachUser(factory func(user string) (limiter.Limiter, error)) limiter.Selective[*http.Request] {
	table, err := limiter.NewPartitioned(func(r *http.Request) limiter.Partition[string] {
		return limiter.Partition[string]{Key: user(r), New: factory}
	}, limiter.PartitionedOptions{MaxPartitions: 100_000})
	if err != nil {
		log.Fatal(err)
	}
	return table
}

// forAll is a limiter of requests with one for all of them together.
func forAll(factory func(struct{}) (limiter.Limiter, error)) limiter.Selective[*http.Request] {
	table, err := limiter.NewPartitioned(func(*http.Request) limiter.Partition[struct{}] {
		return limiter.Partition[struct{}]{New: factory}
	}, limiter.PartitionedOptions{})
	if err != nil {
		log.Fatal(err)
	}
	return table
}

func tenAMinute(string) (limiter.Limiter, error) {
	return limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 10, Window: time.Minute})
}

func threeAtOnce(string) (limiter.Limiter, error) {
	return limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 3})
}

func thousandAtOnce(struct{}) (limiter.Limiter, error) {
	return limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1000})
}

func hello(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "hello") }

// A server on which each user has 10 searches a minute and 3 at once, with a
// limit for all requests together, a route that nothing limits, and metrics.
func Example() {
	perUser, err := limiter.ChainSelective(forEachUser(tenAMinute), forEachUser(threeAtOnce))
	if err != nil {
		log.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	limits, err := httplimit.New(httplimit.Options{Global: forAll(thousandAtOnce), Registerer: registry})
	if err != nil {
		log.Fatal(err)
	}
	if err := limits.AddPolicy("search", httplimit.Policy{Limiter: perUser}); err != nil {
		log.Fatal(err)
	}
	search, err := limits.Require("search", http.HandlerFunc(hello))
	if err != nil {
		log.Fatal(err)
	}

	mux := http.NewServeMux()
	mux.Handle("GET /search", search)
	mux.HandleFunc("GET /", hello)
	mux.Handle("GET /health", httplimit.Disable(http.HandlerFunc(hello)))
	// With promhttp of the same module:
	//	mux.Handle("GET /metrics", httplimit.Disable(promhttp.HandlerFor(registry, promhttp.HandlerOpts{})))
	server := http.Server{Handler: limits.Wrap(mux)} // and then server.ListenAndServe()

	ask := func(path, user string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("User", user)
		w := httptest.NewRecorder()
		server.Handler.ServeHTTP(w, r)
		return w
	}
	for range 10 {
		ask("/search", "ann")
	}
	eleventh := ask("/search", "ann")
	fmt.Println("the eleventh:", eleventh.Code, "Retry-After:", eleventh.Header().Get("Retry-After"))
	fmt.Println("another user:", ask("/search", "bob").Code)
	fmt.Println("another route:", ask("/", "ann").Code)
	fmt.Println("not limited:", ask("/health", "ann").Code)
	families, err := registry.Gather()
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range families {
		fmt.Println(f.GetName())
	}
	// Output:
	// the eleventh: 429 Retry-After: 60
	// another user: 200
	// another route: 200
	// not limited: 200
	// throttled_http_active_requests
	// throttled_http_request_duration_seconds
	// throttled_http_requests_total
}
