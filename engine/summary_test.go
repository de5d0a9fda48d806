package engine_test

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed-ee4278a0/throttled/engine"
)

// A Summary says what the Report says.
func TestSummary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, engine.Config{MaxTrackedEndpoints: 5000})
		for i := range uint32(6000) {
			var a [4]byte
			binary.BigEndian.PutUint32(a[:], 10<<24+i)
			packets := 1
			if i%50 == 0 {
				packets = 80
			}
			for range packets {
				e.Evaluate(netip.AddrPortFrom(netip.AddrFrom4(a), 1))
			}
		}
		check := func(blocked bool) {
			s, r := e.Summary(), e.Report()
			assert.Equal(t, engine.Summary{
				TrackedEndpoints: r.TrackedEndpoints, PeakTrackedEndpoints: r.PeakTrackedEndpoints,
				HardBlockedCount: r.HardBlockedCount, Lockouts: r.Lockouts, Evicted: r.Evicted, RefillRatio: r.RefillRatio,
			}, s)
			assert.Equal(t, blocked, s.HardBlockedCount > 0)
			assert.Positive(t, s.Lockouts)
		}
		check(true)
		time.Sleep(10 * time.Minute)
		check(false)
	})
}
