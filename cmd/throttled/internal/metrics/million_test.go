//go:build !race

// It takes the race detector a minute to see that one goroutine is alone.
package metrics

import (
	"encoding/binary"
	"log/slog"
	"net/netip"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
)

// The series are those of the listeners, whoever sends, and no label tells who
// that was. C108.
func TestAMillionSources(t *testing.T) {
	e, err := engine.New(engine.Config{Load: engine.NoLoad, MaxTrackedEndpoints: 1 << 20})
	require.NoError(t, err)
	defer e.Close()
	s := source()
	s.Engine = e.Summary
	h := NewHandler(s, slog.New(slog.DiscardHandler))
	before := samples(scrape(t, h))
	for i := range 1_000_000 {
		e.Evaluate(sender(i))
	}
	after := samples(scrape(t, h))
	assert.Contains(t, after, "throttled_endpoints 1e+06")
	assert.Len(t, after, len(before))
	label := regexp.MustCompile(`\{.*\}`)
	for i := range before {
		assert.Equal(t, label.FindString(before[i]), label.FindString(after[i]))
		assert.NotRegexp(t, `\d+\.\d+\.\d+\.\d+|::`, label.FindString(after[i]))
	}
}

func sender(i int) netip.AddrPort {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], uint32(10<<24+i))
	return netip.AddrPortFrom(netip.AddrFrom4(a), 1)
}
