package replay

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/config"
)

const crowded = `
engine: {max_endpoints: 1000000}
policies:
  - {name: default, capacity: 5, refill: 1/s, initial: 2, bytes: {capacity: 2KiB, refill: 1KiB/s}, lockout: {base: 1s}}
  - {name: second, capacity: 1, refill: 1/h, lockout: off}
listeners:
  - {name: game, protocol: udp, listen: 0.0.0.0:27015, upstream: echo}
  - {name: web, protocol: tcp, listen: 0.0.0.0:80, upstream: echo}
  - {name: query, protocol: udp, listen: 0.0.0.0:27020, upstream: echo, policy: second}
`

// crowd is traffic of n endpoints over a minute, some of which send a lot.
func crowd(t testing.TB, n int, seed uint64) []stamped {
	random := rand.New(rand.NewPCG(seed, 1))
	var packets []stamped
	for i := range n {
		from := fmt.Sprintf("10.%d.%d.%d:%d", random.IntN(2), i>>8, i&255, 1024+i)
		to := []string{v4server, v4server, "192.0.2.1:80", "192.0.2.1:27020"}[i%4]
		seq, size, pause := uint32(i), 10+random.IntN(500), random.ExpFloat64()*30
		for at := random.Float64() * 60; at < 60; at += random.ExpFloat64() * pause {
			p := stamped{at: time.Duration(at * 1e9)}
			switch {
			case i%4 != 2:
				p.data = datagram(t, from, to, size)
			case seq == uint32(i):
				p.data = stream(t, from, to, "S", seq, 0)
				seq++
			default:
				p.data = stream(t, from, to, "A", seq, size)
				seq += uint32(size)
			}
			if packets = append(packets, p); pause < 0.02 {
				pause = 0.02
			}
		}
	}
	return packets
}

// Under what is suggested, one endpoint in a thousand is denied something, and no
// more; under one token less, more are.
func TestSuggestionKeepsItsWord(t *testing.T) {
	all := int64(0)
	for seed, n := range []int{4, 900, 4100} {
		path := inFile(t, "crowd.pcap", sorted(t, layers.LinkTypeRaw, crowd(t, n, uint64(seed))))
		r, err := Run(Options{Config: parsed(t, crowded), Capture: path, Suggest: true})
		require.NoError(t, err)
		requireSums(t, r)
		var text bytes.Buffer
		require.NoError(t, r.writeSuggested(&text))
		for _, s := range r.Suggested {
			assert.LessOrEqual(t, s.Beyond, s.Endpoints/1000)
			all += s.Beyond
		}

		// As it is written, in the place of the policies that there were.
		with := func(policies string) *Result {
			_, listeners, _ := strings.Cut(crowded, "listeners:")
			file := inFile(t, "suggested.yaml", []byte("engine: {max_endpoints: 1000000}\n"+policies+"listeners:"+listeners))
			c, err := config.Load(file)
			require.NoError(t, err, policies)
			r, err := Run(Options{Config: c, Capture: path})
			require.NoError(t, err)
			return r
		}
		then := with(text.String())
		beyond := map[string]int64{}
		for _, e := range then.Denied {
			beyond[e.Policy]++
		}
		// Of the connections over the byte budget none is denied, they are paused.
		for _, l := range then.Listeners {
			beyond["default"] += l.Paused
		}
		for _, s := range r.Suggested {
			assert.Equal(t, s.Beyond, beyond[s.Policy], s.Policy)
		}
		assert.Equal(t, r.Endpoints.Seen, then.Endpoints.Seen)

		second := r.Suggested[len(r.Suggested)-1]
		if second.Policy != "second" || second.Capacity == 1 {
			continue
		}
		less := strings.Replace(text.String(), fmt.Sprintf("capacity: %d\n    refill: %s\n", second.Capacity, rate(second.Refill)),
			fmt.Sprintf("capacity: %d\n    refill: %s\n", second.Capacity-1, rate(second.Refill)), 1)
		require.NotEqual(t, text.String(), less)
		tight := int64(0)
		for _, e := range with(less).Denied {
			if e.Policy == "second" {
				tight++
			}
		}
		assert.Greater(t, tight, second.Beyond, "a smaller capacity would have done")
	}
	assert.Greater(t, all, int64(3), "somebody is left out")
}

func TestRoundUp(t *testing.T) {
	for rate, want := range map[float64]float64{
		0: 0.25, 0.1: 0.25, 0.25: 0.25, 0.26: 0.5, 0.75: 0.75, 0.76: 1, 1: 1, 1.01: 2, 59.9: 60, 1e12: 1e9, math.Inf(1): 1e9,
	} {
		assert.Equal(t, want, roundUp(rate), rate)
	}
	assert.Equal(t, "15/m", rate(0.25))
	assert.Equal(t, "60/s", rate(60))
	assert.Equal(t, "1000000000/s", rate(1e9))
}

func TestPercentile(t *testing.T) {
	var all []int
	for i := range 2500 {
		all = append(all, 2499-i)
	}
	assert.Equal(t, 2497, percentile(all), "two of 2500 are left out")
	assert.Equal(t, 999, percentile(all[2500-1000:])+1, "one of 1000")
	assert.Equal(t, 998, percentile(all[2500-999:]), "none of 999")
}
