package main

import (
	"fmt"
	"os"

	"github.com/seed-ee4278a0/throttled/bench/internal/lab"
	"github.com/seed-ee4278a0/throttled/bench/internal/plot"
	"github.com/seed-ee4278a0/throttled/bench/internal/result"
)

// drawSources draws what a packet costs against the number of clients.
func drawSources(l *lab.Lab, o options) error {
	if len(o.plot) == 0 {
		return nil
	}
	chart := plot.Chart{
		Title: "UDP: CPU time of the gateway for each packet and direction, saturated",
		X:     plot.Axis{Label: "clients (source address and port)", Log: true},
		Y:     plot.Axis{Label: "ns of CPU", FromZero: true},
	}
	o.slice /= 2
	for _, n := range o.plot {
		fmt.Fprintf(os.Stderr, "plot, %d sources\n", n)
		r := result.New() // not the one that is printed, which has the numbers to compare
		if err := forwarding(l, r, o, n, saturated); err != nil {
			return err
		}
		for _, line := range r.Figure(title(n, saturated)+": "+cpuName, "ns", nginxName).Lines {
			if line.Who != plainName { // out of proportion where it cannot keep up
				chart.Add(line.Who, float64(n), line.Samples)
			}
		}
	}
	return result.WriteFile(o.out, "udp-sources.svg", chart.SVG())
}
