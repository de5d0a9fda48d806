package main

import (
	"fmt"
	"os"
	"time"

	"github.com/seed-ee4278a0/throttled/bench/internal/plot"
	"github.com/seed-ee4278a0/throttled/bench/internal/result"
	"github.com/seed-ee4278a0/throttled/bench/internal/stat"
)

// compare plays all scenes in turn, each without a flood and with one.
func compare(r *result.Report, scenes []*scene, o options) error {
	still, flood := "no flood", fmt.Sprintf("flood of %d/s", o.rate)
	for round := range o.rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, o.rounds)
		for _, s := range scenes {
			for _, way := range []struct {
				name string
				rate int
			}{{still, 0}, {flood, o.rate}} {
				p, err := s.play(o.slice, way.rate)
				if err != nil {
					return err
				}
				r.Figure("honest requests answered, "+way.name, "%", perPacket).Add(s.Name, p.answered())
				r.Figure("gateway CPU, "+s.Name, "% of a core", still).Add(way.name, p.ofCore())
				r.Figure("honest RTT p50, "+way.name, "µs", perPacket).Add(s.Name, micros(p.trips.RTT.Quantile(0.5)))
				r.Figure("honest RTT p99, "+way.name, "µs", perPacket).Add(s.Name, micros(p.trips.RTT.Quantile(0.99)))
				if way.rate > 0 {
					r.Figure("flood as sent", "1000/s", "").Add(s.Name, p.rate())
					r.Figure("CPU of a flood packet at its sender", "ns", perPacket).
						Add(s.Name, float64(p.flooded.CPU)/float64(max(p.flooded.Sent, 1)))
				}
			}
		}
	}
	return nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// drawRates draws the honest answers against the flood that there was.
func drawRates(scenes []*scene, o options) error {
	if len(o.plot) == 0 {
		return nil
	}
	chart := plot.Chart{
		Title: fmt.Sprintf("UDP: %d honest clients beside a flood of locked-out sources", o.honest),
		X:     plot.Axis{Label: "flood as sent, 1000 datagrams/s", FromZero: true},
		Y:     plot.Axis{Label: "honest requests answered, %", FromZero: true},
	}
	for _, rate := range append(result.Numbers{0}, o.plot...) {
		fmt.Fprintf(os.Stderr, "plot, flood of %d/s\n", rate)
		answered, sent := make([][]float64, len(scenes)), make([][]float64, len(scenes))
		for range o.rounds {
			for i, s := range scenes {
				p, err := s.play(o.slice/2, rate)
				if err != nil {
					return err
				}
				answered[i] = append(answered[i], p.answered())
				sent[i] = append(sent[i], p.rate())
			}
		}
		for i, s := range scenes {
			chart.Add(s.Name, stat.Summarize(sent[i]).Median, answered[i])
		}
	}
	return result.WriteFile(o.out, "flood-rates.svg", chart.SVG())
}
