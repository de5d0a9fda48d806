// Package result collects what a bench command measures and tells it as
// markdown tables and as JSON.
package result

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/seed-ee4278a0/throttled/bench/internal/stat"
)

// A Report is all that one run has measured, in the order in which it began to.
type Report struct {
	Command string    `json:"command"`
	Machine string    `json:"machine"`
	Notes   []string  `json:"notes,omitempty"` // what a reader of the figures has to know
	Figures []*Figure `json:"figures"`
}

// A Figure is one thing measured of several in turn, round by round.
type Figure struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Base  string  `json:"base"` // the line that the others are divided by
	Lines []*Line `json:"lines"`
}

// A Line is what was measured of one of them, a sample for each round.
type Line struct {
	Who     string    `json:"who"`
	Samples []float64 `json:"samples"`
}

// New is an empty report of this run on this machine.
func New() *Report {
	return &Report{
		Command: strings.Join(append([]string{filepath.Base(os.Args[0])}, os.Args[1:]...), " "),
		Machine: fmt.Sprintf("%s/%s, %d cores, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version()),
	}
}

// Note adds a remark, once.
func (r *Report) Note(format string, args ...any) {
	note := fmt.Sprintf(format, args...)
	for _, n := range r.Notes {
		if n == note {
			return
		}
	}
	r.Notes = append(r.Notes, note)
}

// Missing notes what is left out, and says it at once.
func (r *Report) Missing(what error) {
	fmt.Fprintln(os.Stderr, what)
	r.Note("left out: %v", what)
}

// Figure returns the figure of that name, which it makes where there is none.
func (r *Report) Figure(name, unit, base string) *Figure {
	for _, f := range r.Figures {
		if f.Name == name {
			return f
		}
	}
	f := &Figure{Name: name, Unit: unit, Base: base}
	r.Figures = append(r.Figures, f)
	return f
}

// Add adds the sample of another round.
func (f *Figure) Add(who string, sample float64) {
	l := f.line(who)
	if l == nil {
		l = &Line{Who: who}
		f.Lines = append(f.Lines, l)
	}
	l.Samples = append(l.Samples, sample)
}

// Median is that of a line, and whether there is such a line.
func (f *Figure) Median(who string) (float64, bool) {
	l := f.line(who)
	if l == nil {
		return 0, false
	}
	return stat.Summarize(l.Samples).Median, true
}

func (f *Figure) line(who string) *Line {
	for _, l := range f.Lines {
		if l.Who == who {
			return l
		}
	}
	return nil
}

// ratio is that of a line to the base, round by round; ok is false where they
// have no round in common.
func (f *Figure) ratio(l *Line) (s stat.Summary, ok bool) {
	base := f.line(f.Base)
	if base == nil {
		return s, false
	}
	ratios := stat.Ratios(l.Samples, base.Samples)
	return stat.Summarize(ratios), len(ratios) > 0
}

// Markdown writes a table for each figure. A ratio is the median of those of the
// rounds.
func (r *Report) Markdown(w io.Writer) error {
	var b strings.Builder
	for _, f := range r.Figures {
		f.table(&b)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "- %s\n", n)
	}
	fmt.Fprintf(&b, "- %s, `%s`\n", r.Machine, r.Command)
	_, err := io.WriteString(w, b.String())
	return err
}

func (f *Figure) table(b *strings.Builder) {
	fmt.Fprintf(b, "**%s, %s**\n\n", f.Name, f.Unit)
	compared := f.line(f.Base) != nil && len(f.Lines) > 1
	if compared {
		fmt.Fprintf(b, "| | median | min–max | ÷ %s | min–max |\n|---|--:|--:|--:|--:|\n", f.Base)
	} else {
		b.WriteString("| | median | min–max |\n|---|--:|--:|\n")
	}
	for _, l := range f.Lines {
		s := stat.Summarize(l.Samples)
		fmt.Fprintf(b, "| %s | %s | %s–%s |", l.Who, number(s.Median), number(s.Min), number(s.Max))
		if !compared {
			b.WriteByte('\n')
			continue
		}
		if q, ok := f.ratio(l); ok && l.Who != f.Base {
			fmt.Fprintf(b, " %.2f | %.2f–%.2f |\n", q.Median, q.Min, q.Max)
		} else {
			b.WriteString(" | |\n")
		}
	}
	b.WriteByte('\n')
}

// number shows three digits or more, and no more than are of use.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100 || a == math.Trunc(a):
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 0.1:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.2g", v)
	}
}

// MarshalJSON adds the summaries of the line's samples, and of their ratios
// where the figure has a base.
func (f *Figure) MarshalJSON() ([]byte, error) {
	type line struct {
		*Line
		Value stat.Summary  `json:"value"`
		Ratio *stat.Summary `json:"ratio,omitempty"`
	}
	lines := make([]line, len(f.Lines))
	for i, l := range f.Lines {
		lines[i] = line{Line: l, Value: stat.Summarize(l.Samples)}
		if q, ok := f.ratio(l); ok {
			lines[i].Ratio = &q
		}
	}
	return json.Marshal(struct {
		Name  string `json:"name"`
		Unit  string `json:"unit"`
		Base  string `json:"base"`
		Lines []line `json:"lines"`
	}{f.Name, f.Unit, f.Base, lines})
}

// Publish prints the tables, and writes the report as NAME.json into dir, which
// it makes; "" keeps it from the disk.
func (r *Report) Publish(dir, name string) error {
	if err := r.Markdown(os.Stdout); err != nil {
		return err
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("result: %w", err)
	}
	return WriteFile(dir, name+".json", append(data, '\n'))
}

// WriteFile writes a file of results into dir, which it makes; with dir "" it
// does nothing.
func WriteFile(dir, name string, data []byte) error {
	if dir == "" {
		return nil
	}
	err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name), data, 0o644))
	if err != nil {
		return fmt.Errorf("result: %w", err)
	}
	return nil
}
