package engine_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// addresses are n distinct IPv4 endpoints in random order.
func addresses(n int) []netip.AddrPort {
	list := make([]netip.AddrPort, n)
	for i := range list {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], 10<<24+uint32(i))
		list[i] = netip.AddrPortFrom(netip.AddrFrom4(b), 7000)
	}
	rand.Shuffle(n, func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

func benchEngine(b *testing.B, c engine.Config) *engine.Engine {
	c.Load = engine.NoLoad
	e, err := engine.New(c)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, e.Close()) })
	return e
}

// limit is a policy of so many packets, with next to no refill.
func limit(capacity int64) policy.Policy {
	return policy.Policy{Packets: tokenbucket.Limit{Capacity: capacity, RefillPerSecond: 1e-6}}
}

// BenchmarkEvaluate is the table of the README: one decision, own clock reading
// and AddrPort included, over so many endpoints in random order. Run it with
// -cpu 1,2.
func BenchmarkEvaluate(b *testing.B) {
	soft := limit(1)
	soft.Escalation.Disabled = true
	locked := limit(1)
	locked.Escalation = policy.Escalation{MaxSoftViolations: 1, Lockout: time.Hour}
	for _, path := range []struct {
		name   string
		policy policy.Policy
		warm   int // packets of each endpoint beforehand
	}{
		{"allowed", limit(1<<31 - 1), 1},
		{"soft", soft, 2},
		{"locked", locked, 2},
	} {
		for _, n := range []int{1, 1_000, 100_000, 1_000_000} {
			b.Run(fmt.Sprintf("%s/endpoints=%d", path.name, n), func(b *testing.B) {
				e := benchEngine(b, engine.Config{Default: path.policy, MaxTrackedEndpoints: n})
				list := addresses(n)
				for range path.warm {
					for _, a := range list {
						e.Evaluate(a)
					}
				}
				evaluateAll(b, e, list)
			})
		}
	}
}

// BenchmarkEvaluateNew is the first packet of an endpoint, in a table with room
// and in one that is full.
func BenchmarkEvaluateNew(b *testing.B) {
	const n = 1_000_000
	list := addresses(n)
	b.Run("new", func(b *testing.B) {
		e := benchEngine(b, engine.Config{MaxTrackedEndpoints: n})
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if i == n {
				b.StopTimer()
				i, e = 0, benchEngine(b, engine.Config{MaxTrackedEndpoints: n})
				b.StartTimer()
			}
			e.Evaluate(list[i])
		}
	})
	for _, full := range []struct {
		name string
		cfg  engine.Config
	}{
		{"full/evict", engine.Config{}},
		{"full/overflow", engine.Config{Default: limit(1)}},
		{"full/deny", engine.Config{OnFull: engine.Deny}},
	} {
		b.Run(full.name, func(b *testing.B) {
			full.cfg.MaxTrackedEndpoints = 100_000
			e := benchEngine(b, full.cfg)
			for _, a := range list[:100_000] {
				e.Evaluate(a)
			}
			evaluateAll(b, e, list[100_000:])
		})
	}
}

func evaluateAll(b *testing.B, e *engine.Engine, list []netip.AddrPort) {
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for i := rand.IntN(len(list)); pb.Next(); i++ {
			if i >= len(list) {
				i = 0
			}
			e.Evaluate(list[i])
		}
	})
}

// BenchmarkMemory reports the heap that an endpoint costs, of those that were
// allowed and of those that were denied.
func BenchmarkMemory(b *testing.B) {
	const n = 1_000_000
	list := addresses(n)
	for _, packets := range []int{1, 2} {
		b.Run(fmt.Sprintf("packets=%d", packets), func(b *testing.B) {
			for b.Loop() {
				before := heap()
				e := benchEngine(b, engine.Config{Default: limit(1), MaxTrackedEndpoints: n})
				for range packets {
					for _, a := range list {
						e.Evaluate(a)
					}
				}
				b.ReportMetric(float64(heap()-before)/n, "B/endpoint")
				runtime.KeepAlive(e)
			}
		})
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkEvaluateBatch is BenchmarkEvaluate in batches of 64, a decision each.
func BenchmarkEvaluateBatch(b *testing.B) {
	locked := limit(1)
	locked.Escalation = policy.Escalation{MaxSoftViolations: 1, Lockout: time.Hour}
	for _, path := range []struct {
		name   string
		policy policy.Policy
		warm   int
	}{
		{"allowed", limit(1<<31 - 1), 1},
		{"locked", locked, 2},
	} {
		for _, n := range []int{1, 100_000, 1_000_000} {
			b.Run(fmt.Sprintf("%s/endpoints=%d", path.name, n), func(b *testing.B) {
				e := benchEngine(b, engine.Config{Default: path.policy, MaxTrackedEndpoints: n})
				list := addresses(n)
				for range path.warm {
					for _, a := range list {
						e.Evaluate(a)
					}
				}
				reqs := make([]engine.Request, 64)
				out := make([]policy.Decision, 64)
				i := 0
				b.ReportAllocs()
				for b.Loop() {
					for k := range reqs {
						if i == len(list) {
							i = 0
						}
						reqs[k].Endpoint = list[i]
						i++
					}
					e.EvaluateBatch(reqs, out)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/decision")
			})
		}
	}
}
