package shard

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// A batch decides as its packets one by one do, in their order: new endpoints,
// one that is there twice, rules that are not, packets to be left out, and a
// table that fills meanwhile.
func TestDecideAll(t *testing.T) {
	rules := func() []*policy.Rule {
		return []*policy.Rule{
			soft(t, 2, 10),
			nil,
			compile(t, policy.Policy{
				Packets:    tokenbucket.Limit{Capacity: 3, RefillPerSecond: 5},
				Bytes:      &tokenbucket.Limit{Capacity: 500, RefillPerSecond: 100},
				Escalation: policy.Escalation{MaxSoftViolations: 2, Lockout: time.Second, Growth: 2},
			}),
		}
	}
	for _, onFull := range []OnFull{EvictIdle, Deny, Allow} {
		c := Config{Shards: 4, Limit: 150, OnFull: onFull}
		single, batch := newTable(c, rules()...), newTable(c, rules()...)
		r := rand.New(rand.NewPCG(5, uint64(onFull)))
		skipped := policy.Decision{Credit: 12345}
		for step := range 500 {
			at := after(time.Duration(step) * 10 * time.Millisecond)
			asks := make([]Ask, r.IntN(40))
			out := make([]policy.Decision, len(asks))
			for i := range asks {
				asks[i] = Ask{Key: under(host(r.IntN(300)), r.IntN(4)), Bytes: r.Int64N(200), Skip: r.IntN(8) == 0}
				out[i] = skipped
			}
			unknown := batch.DecideAll(asks, at, out)
			for i, a := range asks {
				want, ok := skipped, true
				if !a.Skip {
					want, ok = single.Decide(a.Key, at, a.Bytes)
				}
				if !ok {
					want.Reason = policy.HardLockout
					unknown--
				}
				require.Equal(t, want, out[i], "step %d, packet %d", step, i)
			}
			require.Zero(t, unknown)
		}
		assert.Equal(t, single.Stats(), batch.Stats())
		assert.Equal(t, 150, batch.Len())
	}
}

// Batches in several goroutines, while endpoints come and go and shards grow,
// keep to the rule: of each endpoint as many packets pass as it has tokens.
func TestDecideAllMeanwhile(t *testing.T) {
	const workers, batches, size, hosts, tokens = 4, 300, 16, 2000, 5
	table := newTable(Config{Shards: 4}, soft(t, tokens, 1e-6), soft(t, 1, 1e9))
	var wg sync.WaitGroup
	done := make(chan struct{})
	passed := make([]int, workers)
	for w := range workers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(6, uint64(w)))
			for range batches {
				asks, out := make([]Ask, size), make([]policy.Decision, size)
				for i := range asks {
					asks[i].Key = host(r.IntN(hosts))
				}
				table.DecideAll(asks, after(0), out)
				for _, d := range out {
					if d.Allowed {
						passed[w]++
					}
				}
			}
		})
	}
	go func() { // others come and are swept
		defer close(done)
		for i := range 4000 {
			at := after(time.Duration(i) * time.Second)
			table.Decide(under(host(i), 1), at, 0)
			table.Sweep(i%4, 0, 10_000, at, time.Second)
		}
	}()
	wg.Wait()
	<-done
	sum := 0
	for _, n := range passed {
		sum += n
	}
	counts := make([]int, hosts)
	for w := range workers {
		r := rand.New(rand.NewPCG(6, uint64(w)))
		for range batches * size {
			counts[r.IntN(hosts)]++
		}
	}
	want := 0
	for _, n := range counts {
		want += min(n, tokens)
	}
	assert.Equal(t, want, sum)
	assert.Greater(t, table.Stats().Cleaned, int64(3900))
}
