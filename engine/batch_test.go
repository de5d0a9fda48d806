package engine_test

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// The same 100,000 packets, in batches and one by one: floods and honest
// endpoints of both families, several policies, bans, exemptions, and what
// cannot be decided on. Every decision and every count is the same.
func TestBatchDecidesLikeSingleCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(4, 2))
		batched, single := mixedEngine(t), mixedEngine(t)
		bytes, ok := batched.Policy("bytes")
		require.True(t, ok)
		var (
			reqs [batchSize]engine.Request
			out  [batchSize]policy.Decision
			one  [1]policy.Decision
		)
		for done := 0; done < 100_000; {
			n := 1 + r.IntN(len(reqs))
			for i := range reqs[:n] {
				reqs[i] = mixedRequest(r, bytes)
			}
			batched.EvaluateBatch(reqs[:n], out[:n])
			for i, req := range reqs[:n] {
				if req.Bytes == 0 && req.Policy != bytes {
					one[0] = single.EvaluatePolicy(req.Endpoint, req.Policy)
				} else {
					single.EvaluateBatch(reqs[i:i+1], one[:])
				}
				if one[0] != out[i] {
					require.Equal(t, one[0], out[i], "packet %d, %d of its batch: %+v", done+i, i, req)
				}
			}
			done += n
			time.Sleep(time.Duration(r.ExpFloat64() * float64(3*time.Millisecond)))
		}
		want, rep := single.Report(), batched.Report()
		want.Top, rep.Top = nil, nil // its order, among equals, is that of the hash
		require.Equal(t, want, rep)
		for what, n := range map[string]int64{
			"allowed": rep.Allowed, "throttled": rep.SoftThrottled, "locked": rep.HardLocked,
			"lockouts": rep.Lockouts, "invalid": rep.Invalid,
		} {
			require.Greater(t, n, int64(100), what)
		}
	})
}

const batchSize = 64 // of a batch

// mixedEngine has room for all, so that the seed of its hash decides nothing.
func mixedEngine(t *testing.T) *engine.Engine {
	t.Helper()
	short := policy.Escalation{MaxSoftViolations: 4, Window: time.Second, Lockout: 100 * time.Millisecond, Growth: 1.5, MaxLockout: time.Second}
	e := newEngine(t, engine.Config{
		Default: policy.Policy{
			Packets: tokenbucket.Limit{Capacity: 8, RefillPerSecond: 50}, Escalation: short,
		},
		Policies: []policy.Policy{{
			Name:       "bytes",
			Packets:    tokenbucket.Limit{Capacity: 20, RefillPerSecond: 100},
			Bytes:      &tokenbucket.Limit{Capacity: 4000, RefillPerSecond: 20_000},
			Escalation: short,
		}},
	})
	require.NoError(t, e.Ban(netip.MustParsePrefix("198.51.100.0/28"), time.Second, "for a while"))
	require.NoError(t, e.Ban(netip.MustParsePrefix("2001:db8:bad::/48"), 0, "for ever"))
	require.NoError(t, e.Exempt(netip.MustParsePrefix("198.51.100.8/32")))
	return e
}

func mixedRequest(r *rand.Rand, bytes engine.PolicyID) engine.Request {
	req := engine.Request{Bytes: r.IntN(1500) * r.IntN(2), Policy: bytes * engine.PolicyID(r.IntN(2))}
	port := uint16(1 + r.IntN(3))
	switch k := r.IntN(100); {
	case k < 50: // floods
		req.Endpoint = netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(r.IntN(4))}), port)
	case k < 75: // many, each seldom
		req.Endpoint = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(r.IntN(8)), byte(r.IntN(256))}), port)
	case k < 85:
		a := [16]byte{0x20, 0x01, 0x0d, 0xb8, 7: byte(r.IntN(30)), 15: byte(r.IntN(256))}
		req.Endpoint = netip.AddrPortFrom(netip.AddrFrom16(a), port)
	case k < 90:
		a := [16]byte{0x20, 0x01, 0x0d, 0xb8, 0x0b, 0xad, 15: byte(r.IntN(256))}
		req.Endpoint = netip.AddrPortFrom(netip.AddrFrom16(a), port)
	case k < 95:
		req.Endpoint = netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 100, byte(r.IntN(20))}), port)
	case k < 97:
		req.Policy = 99
		req.Endpoint = client
	case k < 98:
		req.Bytes = -1
		req.Endpoint = client
	} // else no address
	return req
}
