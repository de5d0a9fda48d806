package top

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/admin"
	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/history"
	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/serve"
)

// A picture is a gateway at a moment: its report, and what happened at its
// listeners between two samples.
type picture struct {
	address     string
	report      serve.Report
	first, last history.Sample // without listeners where there is but one sample yet
}

// ask gets a picture whose rates are those of the last interval.
func ask(c admin.Client, interval time.Duration) (*picture, error) {
	p := &picture{address: c.Address}
	var h history.Answer
	last := 1 + int(math.Ceil(max(interval, history.Every).Seconds()/history.Every.Seconds()))
	for path, to := range map[string]any{"/v1/report": &p.report, "/v1/history?last=" + strconv.Itoa(last): &h} {
		body, err := c.Get(path)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(body, to); err != nil {
			return nil, fmt.Errorf("top: %s: %w", c.Address, err)
		}
	}
	if n := len(h.Samples); n > 1 {
		p.first, p.last = h.Samples[0], h.Samples[n-1]
	}
	return p, nil
}

// lines are the picture as text.
func (p *picture) lines() []string {
	r := &p.report
	lines := []string{
		fmt.Sprintf("throttled at %s   %s UTC   refill %.0f %% of its rate", p.address, r.UtcNow.UTC().Format(time.DateTime), 100*r.RefillRatio),
		fmt.Sprintf("endpoints %d (most %d, room for %d)   locked out %d   warned %d",
			r.TrackedEndpoints, r.PeakTrackedEndpoints, r.MaxTrackedEndpoints, r.HardBlockedCount, r.SoftWarningCount),
		"",
	}
	lines = append(lines, table("llrrrrrrl", p.listeners())...)
	lines = append(lines, "")
	if len(r.Top) == 0 {
		return append(lines, "No endpoint was ever denied.")
	}
	return append(lines, table("llrrrr", p.endpoints())...)
}

func (p *picture) listeners() [][]string {
	rows := [][]string{{"LISTENER", "PROTO", "IN/s", "OUT/s", "kB/s IN", "kB/s OUT", "OPEN", "DROPPED/s", "REASONS/s"}}
	for _, l := range p.report.Listeners {
		row := []string{l.Name, l.Protocol, "-", "-", "-", "-", strconv.FormatInt(l.SessionsActive+l.ConnectionsActive, 10), "-", ""}
		was, is := listener(p.first, l.Name), listener(p.last, l.Name)
		if was != nil && is != nil {
			row[2], row[3] = figure(p.rate(was.Packets, is.Packets)), figure(p.rate(was.Replies, is.Replies))
			row[4], row[5] = figure(p.rate(was.Bytes, is.Bytes)/1000), figure(p.rate(was.ReplyBytes, is.ReplyBytes)/1000)
			row[7], row[8] = p.drops(was, is)
		}
		rows = append(rows, row)
	}
	return rows
}

func listener(s history.Sample, name string) *history.Listener {
	for i := range s.Listeners {
		if s.Listeners[i].Name == name {
			return &s.Listeners[i]
		}
	}
	return nil
}

// rate is the difference for each second. A counter that was started again
// counts from 0.
func (p *picture) rate(was, is int64) float64 {
	if is < was {
		was = 0
	}
	seconds := float64(p.last.Seq-p.first.Seq) * history.Every.Seconds()
	return float64(is-was) / max(seconds, history.Every.Seconds())
}

// drops are the sum, and the reasons with the most first; behind them those of
// what a dry run has let through.
func (p *picture) drops(was, is *history.Listener) (sum, reasons string) {
	all, reasons := p.byReason(was.Dropped, is.Dropped)
	if n, would := p.byReason(was.WouldDrop, is.WouldDrop); n > 0 {
		reasons = strings.TrimPrefix(reasons+"; dry run: "+would, "; ")
	}
	return figure(all), reasons
}

func (p *picture) byReason(was, is map[string]int64) (all float64, reasons string) {
	type drop struct {
		reason string
		rate   float64
	}
	var drops []drop
	for reason, n := range is {
		if rate := p.rate(was[reason], n); rate > 0 {
			drops = append(drops, drop{reason, rate})
			all += rate
		}
	}
	slices.SortFunc(drops, func(a, b drop) int {
		return cmp.Or(cmp.Compare(b.rate, a.rate), strings.Compare(a.reason, b.reason))
	})
	words := make([]string, len(drops))
	for i, d := range drops {
		words[i] = d.reason + " " + figure(d.rate)
	}
	return all, strings.Join(words, ", ")
}

func (p *picture) endpoints() [][]string {
	rows := [][]string{{"ENDPOINT", "POLICY", "TOKENS", "VIOLATIONS", "LOCKED FOR", "DENIED"}}
	for _, e := range p.report.Top {
		locked := "-"
		if e.LockedForMs > 0 {
			locked = (time.Duration(e.LockedForMs) * time.Millisecond).Round(time.Second / 10).String()
		}
		policy := e.Policy
		if e.DryRun {
			policy += " (dry run)"
		}
		rows = append(rows, []string{e.Endpoint, policy, strconv.FormatInt(e.Tokens, 10), strconv.Itoa(e.SoftViolations),
			locked, strconv.FormatInt(e.Denied, 10)})
	}
	return rows
}

// figure writes a rate with as many digits as it takes to tell it from none.
func figure(x float64) string {
	if x > 0 && x < 10 {
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return strconv.FormatFloat(math.Round(x), 'f', 0, 64)
}

// table aligns rows; align has l or r for each column.
func table(align string, rows [][]string) (lines []string) {
	widths := make([]int, len(align))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	for _, row := range rows {
		var b strings.Builder
		for i, cell := range row {
			width := widths[i]
			if align[i] == 'l' {
				width = -width
			}
			fmt.Fprintf(&b, "%*s  ", width, printable(cell))
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
	}
	return lines
}

// printable keeps what a gateway sends from being a command to the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
