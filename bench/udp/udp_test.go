package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed-ee4278a0/throttled/bench/internal/load"
	"github.com/seed-ee4278a0/throttled/bench/internal/result"
)

func TestARoundTripIsTwoPackets(t *testing.T) {
	assert.InDelta(t, 5000, perPacket(time.Second, 100_000), 1e-9)
}

func TestReport(t *testing.T) {
	r := result.New()
	trips := &load.Result{Sent: 200, Answered: 100, Elapsed: time.Second}
	trips.RTT.Add(50 * time.Microsecond)
	report(r, title(100, paced), nginxName, paced, trips, time.Millisecond)
	report(r, title(100, paced), "nobody answers", paced, &load.Result{Sent: 1}, 0)
	for name, want := range map[string]float64{
		"CPU of a packet and direction": 5000, "answered": 50, "RTT p50": 50, "RTT p99": 50,
	} {
		got, ok := r.Figure("100 sources, paced: "+name, "", "").Median(nginxName)
		assert.True(t, ok, name)
		assert.InEpsilon(t, want, got, 1.0/64, name)
	}
	assert.Equal(t, []string{"100 sources, paced: no answer through nobody answers"}, r.Notes)
}
