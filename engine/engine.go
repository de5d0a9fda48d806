package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/shard"
)

// OnFull says what happens to a new endpoint when the table is full.
type OnFull = shard.OnFull

// The ways to behave when full.
const (
	EvictIdle = shard.EvictIdle // the place of one with nothing to remember, else a shared bucket
	Deny      = shard.Deny      // a lockout
	Allow     = shard.Allow     // passes untracked
)

// What the zero fields of a Config mean, and their ranges.
const (
	DefaultShards              = 256
	DefaultMaxTrackedEndpoints = 100_000
	DefaultStaleAfter          = 180 * time.Second
	DefaultCleanupInterval     = 45 * time.Second
	DefaultIPv4Prefix          = 32
	DefaultIPv6Prefix          = 64
	MaxShards                  = 1 << 16
	MaxEndpoints               = 1<<31 - 1
)

// ErrClosed is what a closed engine answers to whoever wants to change it. It
// matches net.ErrClosed.
var ErrClosed = fmt.Errorf("engine: %w", net.ErrClosed)

// Config is what an engine is made of. The zero value is a working one: 64
// packets at once and 32 a second for each IPv4 address and each IPv6 /64.
type Config struct {
	Default  policy.Policy   // what Evaluate applies; without a name it is called "default"
	Policies []policy.Policy // named ones, for EvaluatePolicy

	Shards              int // a power of two, 1..65536; 0 = 256
	MaxTrackedEndpoints int // (endpoint, policy) pairs in the whole table, 1..2^31-1; 0 = 100,000
	OnFull              OnFull

	// StaleAfter is how long an endpoint that has nothing to be remembered by
	// must have been idle to be forgotten; 0 = 180 s. It is counted on the
	// refill clock, from when the bucket is full again.
	StaleAfter time.Duration
	// CleanupInterval is the time between sweeps; 0 = 45 s.
	CleanupInterval time.Duration

	IPv4Prefix int  // bits of an IPv4 address that make an endpoint, 1..32; 0 = 32
	IPv6Prefix int  // bits of an IPv6 address that make an endpoint, 1..128; 0 = 64
	KeyByPort  bool // every port of an address is an endpoint of its own

	Load   LoadSource   // nil = CPULoad(0.60, 0.90, 0.25)
	Logger *slog.Logger // nil = discard
}

// An Engine throttles endpoints. Its methods are safe for concurrent use.
type Engine struct {
	cfg     Config
	base    time.Time
	set     *int64 // of a Replay: its clock; else nil
	table   *shard.Table
	refill  refillClock
	lists   atomic.Pointer[lists]
	names   atomic.Pointer[names]
	zones   zones
	masks   masks
	invalid atomic.Int64
	closed  atomic.Bool

	mu      sync.Mutex // serialises changes of lists and policies, and guards what follows
	watches []*watch

	stop chan struct{}
	done sync.WaitGroup
}

// New returns a running engine. An error names every field of the Config that
// is out of its range.
func New(c Config) (*Engine, error) {
	e, err := build(c, time.Now())
	if err == nil {
		e.done.Go(e.janitor)
	}
	return e, err
}

// build returns an engine without its goroutine.
func build(c Config, base time.Time) (*Engine, error) {
	err := c.setDefaults()
	policies, policyErr := compile(nil, c.Default, c.Policies)
	if err := errors.Join(err, policyErr); err != nil {
		return nil, err
	}
	e := &Engine{cfg: c, base: base, masks: newMasks(c), stop: make(chan struct{})}
	e.names.Store(policies)
	e.table = shard.New(shard.Config{
		Shards: c.Shards,
		Limit:  c.MaxTrackedEndpoints,
		OnFull: c.OnFull,
		Seed:   rand.Uint64(),
		Rules:  policies.rules,
	})
	e.refill.start(c.Load.Ratio())
	return e, nil
}

func (c *Config) setDefaults() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("engine: "+format, args...))
		}
	}
	setDefault(&c.Shards, DefaultShards)
	setDefault(&c.MaxTrackedEndpoints, DefaultMaxTrackedEndpoints)
	setDefault(&c.StaleAfter, DefaultStaleAfter)
	setDefault(&c.CleanupInterval, DefaultCleanupInterval)
	setDefault(&c.IPv4Prefix, DefaultIPv4Prefix)
	setDefault(&c.IPv6Prefix, DefaultIPv6Prefix)
	setDefault(&c.Logger, slog.New(slog.DiscardHandler))
	check(c.Shards > 0 && c.Shards <= MaxShards && bits.OnesCount(uint(c.Shards)) == 1,
		"Shards: %d is not a power of two in 1..%d", c.Shards, MaxShards)
	check(c.MaxTrackedEndpoints > 0 && c.MaxTrackedEndpoints <= MaxEndpoints,
		"MaxTrackedEndpoints: %d is outside 1..%d", c.MaxTrackedEndpoints, MaxEndpoints)
	check(c.OnFull <= Allow, "OnFull: %d is none of EvictIdle, Deny, Allow", c.OnFull)
	check(c.StaleAfter > 0, "StaleAfter: %v is not positive", c.StaleAfter)
	check(c.CleanupInterval > 0, "CleanupInterval: %v is not positive", c.CleanupInterval)
	check(c.IPv4Prefix > 0 && c.IPv4Prefix <= 32, "IPv4Prefix: %d is outside 1..32", c.IPv4Prefix)
	check(c.IPv6Prefix > 0 && c.IPv6Prefix <= 128, "IPv6Prefix: %d is outside 1..128", c.IPv6Prefix)
	if c.Load == nil {
		c.Load = defaultLoad()
	}
	if l, ok := c.Load.(*cpuLoad); ok {
		l.logTo(c.Logger)
	}
	return errors.Join(errs...)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// now reads both clocks. The segment converts waits on the refill clock.
func (e *Engine) now() (policy.Instant, *segment) {
	now := e.elapsed()
	s := e.refill.load()
	return policy.Instant{Now: now, Refill: s.at(now)}, s
}

// elapsed reads the engine's clock.
func (e *Engine) elapsed() int64 {
	if e.set != nil {
		return *e.set
	}
	return int64(time.Since(e.base))
}

// time is the moment that the engine's clock shows.
func (e *Engine) time() time.Time {
	if e.set != nil {
		return e.base.Add(time.Duration(*e.set))
	}
	return time.Now()
}

// Close ends the engine's goroutine. From then on every packet is denied with
// a HardLockout without RetryAfter and nothing is counted. Calling it again
// does nothing.
func (e *Engine) Close() error {
	if !e.closed.Swap(true) {
		close(e.stop)
	}
	e.done.Wait()
	return nil
}
