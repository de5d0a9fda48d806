package main

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/juju/ratelimit"
	sethvargo "github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"
	"golang.zx2c4.com/wireguard/ratelimiter"
)

// plenty is a budget that no measurement uses up.
const plenty = 1 << 30

const (
	floorName = "floor"
	batchName = "throttled, batches of 64"
	xTimeName = "x/time/rate + RWMutex map"
)

// A contender builds a table.
type contender struct {
	name string
	peer bool // another library: it has no lockouts and no full table
	make func(k *keys, p path) table
}

// A table decides on keys from..to-1 and says how many it allowed. Several
// goroutines may ask it.
type table struct {
	decide func(from, to int) int
	end    func()
}

// each makes a table of what decides on one key.
func each(decide func(i int) bool, end func()) table {
	return table{end: end, decide: func(from, to int) (allowed int) {
		for i := from; i < to; i++ {
			if decide(i) {
				allowed++
			}
		}
		return allowed
	}}
}

var contenders = []contender{
	{name: floorName, make: newFloorSubject},
	{name: "throttled", make: newSingle},
	{name: batchName, make: newBatches},
	{name: "sethvargo/go-limiter (fixed window)", peer: true, make: newSethvargo},
	{name: wireguardName, peer: true, make: newWireguard},
	{name: "juju/ratelimit + RWMutex map", peer: true, make: newJuju},
	{name: "throttled/throttled v2 (GCRA)", peer: true, make: newGCRA},
	{name: xTimeName, peer: true, make: newXTime},
	{name: "ulule/limiter (fixed window)", peer: true, make: newUlule},
}

// wireguard's limiter is fixed to 20 a second after 5 at once and forgets who was
// silent for a second: it is measured where others deny, but allows what falls to
// an endpoint meanwhile, and not at a million keys, where that is everything.
const (
	wireguardName = "wireguard ratelimiter"
	wireguardKeys = 100_000
)

func nothing() {}

func newFloorSubject(k *keys, p path) table {
	f := newFloor(2 * len(k.endpoints)) // newcomers find room too
	return each(func(i int) bool { return f.allow(k.endpoints[i], p.capacity) }, nothing)
}

// guarded is a map that many read and that grows now and then.
type guarded[L any] struct {
	mu   sync.RWMutex
	m    map[netip.AddrPort]L
	make func() L
}

func (g *guarded[L]) get(ep netip.AddrPort) L {
	g.mu.RLock()
	l, ok := g.m[ep]
	g.mu.RUnlock()
	if ok {
		return l
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if l, ok = g.m[ep]; !ok {
		l = g.make()
		g.m[ep] = l
	}
	return l
}

func newXTime(k *keys, p path) table {
	g := guarded[*rate.Limiter]{m: make(map[netip.AddrPort]*rate.Limiter), make: func() *rate.Limiter {
		return rate.NewLimiter(1e-6, int(p.capacity))
	}}
	return each(func(i int) bool { return g.get(k.endpoints[i]).Allow() }, nothing)
}

func newJuju(k *keys, p path) table {
	g := guarded[*ratelimit.Bucket]{m: make(map[netip.AddrPort]*ratelimit.Bucket), make: func() *ratelimit.Bucket {
		return ratelimit.NewBucket(time.Hour, p.capacity)
	}}
	return each(func(i int) bool { return g.get(k.endpoints[i]).TakeAvailable(1) == 1 }, nothing)
}

func newSethvargo(k *keys, p path) table {
	ctx := context.Background()
	var s sethvargo.Store = must(memorystore.New(&memorystore.Config{Tokens: uint64(p.capacity), Interval: time.Hour}))
	return each(func(i int) bool {
		_, _, _, ok, err := s.Take(ctx, k.names[i])
		return ok && err == nil
	}, func() { check(s.Close(ctx)) })
}

func newGCRA(k *keys, p path) table {
	ctx := context.Background()
	quota := throttled.RateQuota{MaxRate: throttled.PerDay(1)}
	if p.capacity > 1 {
		quota = throttled.RateQuota{MaxRate: throttled.PerSec(int(time.Second)), MaxBurst: int(p.capacity - 1)}
	}
	l := must(throttled.NewGCRARateLimiterCtx(must(memstore.NewCtx(0)), quota))
	return each(func(i int) bool {
		limited, _, err := l.RateLimitCtx(ctx, k.names[i], 1)
		return !limited && err == nil
	}, nothing)
}

func newUlule(k *keys, p path) table {
	ctx := context.Background()
	l := ulule.New(memory.NewStore(), ulule.Rate{Period: time.Hour, Limit: p.capacity})
	return each(func(i int) bool {
		state, err := l.Get(ctx, k.names[i])
		return !state.Reached && err == nil
	}, nothing)
}

func newWireguard(k *keys, p path) table {
	var r ratelimiter.Ratelimiter
	r.Init()
	return each(func(i int) bool { return r.Allow(k.endpoints[i].Addr()) }, r.Close)
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
