// Package httplimit limits the requests of a net/http server: one limiter for
// all of them, and policies for the routes that are marked with one. It stands
// above policy/limiter, which does the counting, and knows nothing of the
// gateway and its engine.
//
//	limits, err := httplimit.New(httplimit.Options{Global: everybody})
//	...
//	err = limits.AddPolicy("search", httplimit.Policy{Limiter: perUser})
//	...
//	search, err := limits.Require("search", searchHandler)
//	...
//	mux := http.NewServeMux()
//	mux.Handle("GET /search", search)
//	mux.Handle("GET /healthz", httplimit.Disable(healthz))
//	server := http.Server{Handler: limits.Wrap(mux)}
//
// The invariant: a request is attempted once and either holds permits of
// everything that limits it, for as long as its handler runs, or has cost
// nobody anything.
//
// # Which limits apply
//
// A mark is a handler around a handler: [Limits.Require] and
// [Limits.RequirePolicy] name the policy of a route, [Disable] takes it out of
// all limiting. [Limits.Wrap] is the middleware that looks for them: on the
// handler it is given, and where that is a [*http.ServeMux] on the handler that
// matches the request, through muxes within muxes. Of several policies the
// innermost applies, the one closest to the handler; Disable wins wherever it
// stands.
//
// A mark has to be the outermost of what is registered with the mux. Behind
// other middleware nobody can see it, and so that a limit is never passed by in
// silence such a request is answered 500 with a text that says why. What stands
// before a handler therefore goes into its mark. A mux with marks of its own
// behind something else gets a Wrap of its own, and the whole is disabled for
// the one outside, so that the global limiter is asked once:
//
//	limits.Require("search", http.StripPrefix("/api", search))
//	mux.Handle("/api/", httplimit.Disable(http.StripPrefix("/api", limits.Wrap(api))))
//
// With other routers, wrap each marked handler on its own.
//
// # A request
//
// The policy of the route is asked first and the global limiter last, so that
// nobody holds a global permit while waiting for one of a route. Where either
// denies, everything is given back, permits of rate limiters too.
//
//	granted       the handler runs; what is held is released when it returns or panics
//	denied        Retry-After where the limiter knows it, then OnRejected or an empty 429
//	client gone   nothing is written, no hook is called
//	out of time   503, no hook: the deadline of the request passed while it waited
//	limiter error the request does not pass: 503 where the limiter is closed, else 500
//
// A queue lets clients hang instead of telling them to come back, so the zero
// value of [limiter.Queue] has none. Where requests have bodies give it a
// MaxWait: over HTTP/1 a server cannot tell that a client has gone before the
// body has been read.
//
// Who a request belongs to is for the limiter to say, see
// [limiter.NewPartitioned]; a limit for all together is one with a single key,
// as in the example. A header that any client can set is no identity:
// take X-Forwarded-For from a proxy of your own only, and give tables whose
// keys clients choose a cap, MaxPartitions.
//
// # Metrics
//
// With a Registerer there are these, each from its first event on. The policy
// is a name given to AddPolicy, and "" for unnamed policies and for requests
// that only the global limiter applies to.
//
//	throttled_http_active_requests{policy}                 gauge: requests that hold their permits
//	throttled_http_queued_requests{policy}                 gauge: requests that wait for some
//	throttled_http_request_duration_seconds{policy}        histogram: how long permits were held
//	throttled_http_queue_duration_seconds{policy,result}   histogram: how long requests waited, of those that did
//	throttled_http_requests_total{policy,result}           counter: counted when the result is known
//
// The result is acquired, endpoint_limiter or global_limiter for what that
// limiter denied or failed to answer, or request_canceled. Requests that
// nothing limits are not counted.
//
// # For those who know ASP.NET Core
//
//	AddRateLimiter, RateLimiterOptions   New, Options
//	GlobalLimiter                        Options.Global
//	RejectionStatusCode (503)            Options.StatusCode (429)
//	OnRejected                           Options.OnRejected, Policy.OnRejected; an unnamed policy falls back too
//	AddPolicy, AddFixedWindowLimiter ... AddPolicy with any limiter.Selective, chains too
//	UseRateLimiter                       Wrap
//	RequireRateLimiting("name")          Require
//	RequireRateLimiting(policy)          RequirePolicy
//	DisableRateLimiting                  Disable
//	RateLimitPartition.Get...Limiter     limiter.Partition
//	UseConcurrencyLimiter,               ConcurrencyLimiter, with an Order
//	AddQueuePolicy, AddStackPolicy
//	aspnetcore.rate_limiting.*           throttled_http_*
//
// Different on purpose: a request is attempted once, where a denial there
// counts twice; the route is asked before the global limiter, so where both
// would deny it is the route's denial; what a denied request took from rate
// limiters comes back.
package httplimit
