package plot

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func wellFormed(t *testing.T, svg []byte) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(string(svg))); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else {
			require.NoError(t, err)
		}
	}
}

func TestSVGIsWellFormed(t *testing.T) {
	c := Chart{
		Title:  "a < b & c",
		X:      Axis{Label: "clients", Log: true},
		Y:      Axis{Label: "ns"},
		Series: []Series{{Name: "<ours>", Points: []Point{{10, 4, 3, 5}, {10_000, 8, 8, 8}}}, {Name: "peer", Points: []Point{{100, 6, 6, 6}}}},
	}
	svg := c.SVG()
	wellFormed(t, svg)
	for _, want := range []string{"a &lt; b &amp; c", "&lt;ours&gt;", "peer", "clients", ">ns<", ">10k<"} {
		assert.Contains(t, string(svg), want)
	}
	assert.NotContains(t, string(svg), "NaN")
}

func TestSVGWithoutPoints(t *testing.T) {
	svg := (&Chart{X: Axis{Log: true}, Series: []Series{{Name: "nothing"}}}).SVG()
	wellFormed(t, svg)
	assert.NotContains(t, string(svg), "NaN")
	assert.NotContains(t, string(svg), "Inf")
}

func TestScale(t *testing.T) {
	log := scale{axis: Axis{Log: true}, from: 0, to: 300, low: 10, high: 10_000}
	assert.InDelta(t, 0, log.at(10), 1e-9)
	assert.InDelta(t, 100, log.at(100), 1e-9)
	assert.InDelta(t, 300, log.at(10_000), 1e-9)
	assert.Equal(t, []float64{10, 30, 100, 300, 1000, 3000, 10_000}, log.ticks())

	down := scale{from: 400, to: 100, low: 0, high: 60}
	assert.InDelta(t, 400, down.at(0), 1e-9)
	assert.InDelta(t, 100, down.at(60), 1e-9)
	assert.Equal(t, []float64{0, 10, 20, 30, 40, 50, 60}, down.ticks())
	assert.False(t, math.Signbit(down.ticks()[0]), "shown as -0")
}

func TestScaleFits(t *testing.T) {
	for _, c := range []struct {
		axis             Axis
		values           []float64
		wantLow, wantTop float64
	}{
		{Axis{}, []float64{4100, 6900}, 4000, 7000},
		{Axis{FromZero: true}, []float64{55, 99}, 0, 100},
		{Axis{FromZero: true}, []float64{0}, 0, 1},
		{Axis{}, []float64{5}, 2, 10},
		{Axis{Log: true}, []float64{7}, 3.5, 14},
	} {
		s := scale{axis: c.axis, low: c.values[0], high: c.values[0]}
		for _, v := range c.values {
			s.include(v)
		}
		s.fit(true)
		assert.InDelta(t, c.wantLow, s.low, 1e-9, "%v", c)
		assert.InDelta(t, c.wantTop, s.high, 1e-9, "%v", c)
	}
}

func TestAnOutlierEndsAtTheFrame(t *testing.T) {
	c := Chart{Y: Axis{FromZero: true}, Series: []Series{{Points: []Point{{1, 80, 70, 9000}, {2, 60, 50, 65}}}}}
	_, y := c.scales()
	assert.InDelta(t, 100, y.high, 1e-9)
	assert.Contains(t, string(c.SVG()), " 84.0\" stroke=\"#0072b2\"", "the top of the frame")
}

func TestAddKeepsOrder(t *testing.T) {
	var c Chart
	c.Add("a", 3, []float64{5, 1, 2})
	c.Add("b", 1, []float64{7})
	c.Add("a", 1, []float64{4})
	assert.Equal(t, []Series{
		{Name: "a", Points: []Point{{1, 4, 4, 4}, {3, 2, 1, 5}}},
		{Name: "b", Points: []Point{{1, 7, 7, 7}}},
	}, c.Series)
}

func TestShort(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.25: "0.25", 9000: "9000", 10_000: "10k", 600_000: "600k", 1_500_000: "1.5M"} {
		assert.Equal(t, want, short(v))
	}
}
