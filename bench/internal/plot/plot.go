// Package plot draws lines with markers and ranges as SVG.
package plot

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"

	"github.com/seed-ee4278a0/throttled/bench/internal/stat"
)

// A Chart is drawn with one line for each series.
type Chart struct {
	Title  string
	X, Y   Axis
	Series []Series
}

// An Axis says what it shows, and its unit.
type Axis struct {
	Label    string
	Log      bool // values have to be positive
	FromZero bool // else from near the least value; not with Log
}

// A Series is one line.
type Series struct {
	Name   string
	Points []Point
}

// A Point is a value at X, with the range that was seen around it.
type Point struct{ X, Y, Min, Max float64 }

// Add adds the median and the range of samples at x to a series, which it makes
// where there is none of that name and keeps in the order of x.
func (c *Chart) Add(name string, x float64, samples []float64) {
	i := slices.IndexFunc(c.Series, func(s Series) bool { return s.Name == name })
	if i < 0 {
		i = len(c.Series)
		c.Series = append(c.Series, Series{Name: name})
	}
	s := stat.Summarize(samples)
	points := append(c.Series[i].Points, Point{x, s.Median, s.Min, s.Max})
	slices.SortStableFunc(points, func(a, b Point) int { return cmp.Compare(a.X, b.X) })
	c.Series[i].Points = points
}

const (
	width, height            = 760.0, 460.0
	left, right, top, bottom = 78.0, 24.0, 84.0, 58.0
)

// Colours that people who see few of them can tell apart (Okabe and Ito).
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"}

// outlier is how far above the highest point a range can go; beyond that it ends
// at the frame.
const outlier = 1.25

// SVG draws the chart. Without points it is an empty frame.
func (c *Chart) SVG() []byte {
	x, y := c.scales()
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%g" height="%g" font-family="DejaVu Sans, Verdana, sans-serif" font-size="13" fill="#222">`+"\n",
		width, height, width, height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#fff"/>`+"\n")
	text(&b, width/2, 26, "middle", ` font-size="16" font-weight="bold"`, c.Title)
	c.legend(&b)
	for _, v := range x.ticks() {
		line(&b, x.at(v), top, x.at(v), height-bottom, "#e4e4e4")
		text(&b, x.at(v), height-bottom+19, "middle", "", short(v))
	}
	for _, v := range y.ticks() {
		line(&b, left, y.at(v), width-right, y.at(v), "#e4e4e4")
		text(&b, left-8, y.at(v)+4.5, "end", "", short(v))
	}
	line(&b, left, height-bottom, width-right, height-bottom, "#555")
	line(&b, left, top, left, height-bottom, "#555")
	text(&b, (left+width-right)/2, height-14, "middle", "", c.X.Label)
	text(&b, 18, (top+height-bottom)/2, "middle", fmt.Sprintf(` transform="rotate(-90 18 %g)"`, (top+height-bottom)/2), c.Y.Label)
	for i, s := range c.Series {
		s.draw(&b, i, x, y)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func (c *Chart) scales() (x, y scale) {
	x = scale{axis: c.X, from: left, to: width - right, low: math.Inf(1), high: math.Inf(-1)}
	y = scale{axis: c.Y, from: height - bottom, to: top, low: math.Inf(1), high: math.Inf(-1)}
	for _, s := range c.Series {
		for _, p := range s.Points {
			x.include(p.X)
			y.include(p.Y)
			y.include(p.Min)
		}
	}
	for top, i := y.high, 0; i < len(c.Series); i++ {
		for _, p := range c.Series[i].Points {
			y.include(min(p.Max, top*outlier))
		}
	}
	x.fit(false)
	y.fit(true)
	return x, y
}

// legend names the series from left to right above the frame. The widths are
// those of a common font, near enough.
func (c *Chart) legend(b *bytes.Buffer) {
	const mark, glyph, gap, row = 30.0, 7.6, 22.0, 19.0
	at, y := left, 50.0
	for i, s := range c.Series {
		w := mark + glyph*float64(len([]rune(s.Name))) + gap
		if at+w-gap > width && at > left {
			at, y = left, y+row
		}
		fmt.Fprintf(b, `<path d="M%.1f %.1fh22" stroke="%s" stroke-width="2.5"/>`+"\n", at, y-4, colours[i%len(colours)])
		marker(b, i, at+11, y-4)
		text(b, at+mark, y, "start", "", s.Name)
		at += w
	}
}

func (s *Series) draw(b *bytes.Buffer, i int, x, y scale) {
	colour := colours[i%len(colours)]
	var path bytes.Buffer
	for j, p := range s.Points {
		command := "L"
		if j == 0 {
			command = "M"
		}
		fmt.Fprintf(&path, "%s%.1f %.1f", command, x.at(p.X), y.at(p.Y))
		if p.Max > p.Min {
			line(b, x.at(p.X), y.at(p.Min), x.at(p.X), y.at(min(p.Max, y.high)), colour)
		}
	}
	fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s" stroke-width="2.5"/>`+"\n", path.String(), colour)
	for _, p := range s.Points {
		marker(b, i, x.at(p.X), y.at(p.Y))
	}
}

// marker tells the series apart without their colour.
func marker(b *bytes.Buffer, i int, x, y float64) {
	colour := colours[i%len(colours)]
	switch i % 3 {
	case 0:
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="4.5" fill="%s"/>`+"\n", x, y, colour)
	case 1:
		fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="8" height="8" fill="%s"/>`+"\n", x-4, y-4, colour)
	default:
		fmt.Fprintf(b, `<path d="M%.1f %.1fl5 9h-10z" fill="%s"/>`+"\n", x, y-5.5, colour)
	}
}

func line(b *bytes.Buffer, x1, y1, x2, y2 float64, colour string) {
	fmt.Fprintf(b, `<path d="M%.1f %.1fL%.1f %.1f" stroke="%s"/>`+"\n", x1, y1, x2, y2, colour)
}

func text(b *bytes.Buffer, x, y float64, anchor, attributes, s string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>`+"\n", x, y, anchor, attributes, html.EscapeString(s))
}

// short writes thousands as k and millions as M.
func short(v float64) string {
	format := func(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }
	switch a := math.Abs(v); {
	case a >= 1e6:
		return format(v/1e6) + "M"
	case a >= 1e4:
		return format(v/1e3) + "k"
	default:
		return format(v)
	}
}
