package replay

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteText writes the result for people.
func (r *Result) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	c := &r.Capture
	for _, warning := range r.Warnings {
		fmt.Fprintf(t, "warning: %s\n", warning)
	}
	fmt.Fprintf(t, "%s: %d packets", c.File, c.Packets)
	if !c.From.IsZero() {
		fmt.Fprintf(t, " in %v from %s UTC on", c.To.Sub(c.From).Round(time.Millisecond), c.From.Format("2006-01-02 15:04:05.000"))
	}
	fmt.Fprintln(t)
	if len(c.NotForListener) > 0 {
		fmt.Fprintf(t, "not for a listener: %s\n", counts(c.NotForListener))
	}
	if c.Fragmented > 0 {
		fmt.Fprintf(t, "datagrams in fragments: %d\n", c.Fragmented)
	}
	fmt.Fprintln(t, "CPU adaptation is taken to be off.")

	fmt.Fprintln(t, "\nListener\tProtocol\tListen\tCaptured\tPackets\tBytes\tForwarded\tDropped")
	for _, l := range r.Listeners {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\n",
			l.Name, l.Protocol, l.Listen, l.Captured, l.Packets, l.Bytes, l.Forwarded, cmp.Or(counts(l.Dropped), "0"))
		l.writeMore(t)
	}
	e := r.Endpoints
	fmt.Fprintf(t, "\nEndpoints: %d, denied something: %d, locked out: %d\n", e.Seen, e.Denied, e.LockedOut)
	r.writeEndpoints(t)
	if err := t.Flush(); err != nil {
		return err
	}
	return r.writeSuggested(w)
}

// writeMore writes what a listener may have beside, as far as there is anything.
func (l *Listener) writeMore(w io.Writer) {
	if len(l.WouldDrop) > 0 {
		fmt.Fprintf(w, "  let through by a dry run: %s\n", counts(l.WouldDrop))
	}
	more := map[string]int64{
		"SYNs sent again": l.Retransmitted, "open before the capture": l.OpenBefore, "paused": l.Paused,
		"closed over the byte limit": l.Closed, "late bytes": l.LateBytes,
	}
	maps.DeleteFunc(more, func(_ string, n int64) bool { return n == 0 })
	if len(more) > 0 {
		fmt.Fprintf(w, "  %s\n", counts(more))
	}
}

// clock writes a time as shortly as it can be told from others in the capture.
func (r *Result) clock(t time.Time) string {
	switch {
	case t.IsZero():
		return "-"
	case r.Capture.To.Sub(r.Capture.From) < 24*time.Hour:
		return t.Format("15:04:05.000")
	}
	return t.Format("2006-01-02 15:04:05.000")
}

func (r *Result) writeEndpoints(w io.Writer) {
	if len(r.Denied) > 0 {
		fmt.Fprintln(w, "\nDenied\tPolicy\tPackets\tPeak/s\tDenied\tFirst at\tLockouts\tFirst at\tLocked for")
	}
	for _, e := range r.Denied {
		fmt.Fprintf(w, "%s\t%s\t%d\t%.1f\t%d\t%s\t%d\t%s\t%s\n", e.Endpoint, e.Policy, e.Packets, e.PeakPerSecond, e.Denied,
			r.clock(e.FirstDenied), e.Lockouts, r.clock(e.FirstLockout), time.Duration(e.LockedFor*float64(time.Second)))
	}
	if len(r.Nearest) > 0 {
		fmt.Fprintln(w, "\nNearest to the limit\tPolicy\tPackets\tPeak/s\tTokens left\tAt")
	}
	for _, e := range r.Nearest {
		fmt.Fprintf(w, "%s\t%s\t%d\t%.1f\t%.1f %%\t%s\n", e.Endpoint, e.Policy, e.Packets, e.PeakPerSecond,
			e.LowestTokens, r.clock(e.LowestAt))
	}
}

// writeSuggested writes a piece of configuration.
func (r *Result) writeSuggested(w io.Writer) error {
	var b strings.Builder
	if len(r.Suggested) > 0 {
		b.WriteString("\n# The least that the 99.9th percentile of these endpoints keeps within; leave room above\n" +
			"# it. Other keys of the policies stay as they are.\npolicies:\n")
	}
	for _, s := range r.Suggested {
		fmt.Fprintf(&b, "  - name: %s # of %d endpoints %d would be denied something\n    capacity: %d\n    refill: %s\n",
			s.Policy, s.Endpoints, s.Beyond, s.Capacity, rate(s.Refill))
		if s.Initial {
			b.WriteString("    initial: full\n")
		}
		if s.Bytes != nil {
			fmt.Fprintf(&b, "    bytes: {capacity: %d, refill: %s}\n", s.Bytes.Capacity, rate(s.Bytes.Refill))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// rate writes a refill as the configuration has it.
func rate(perSecond float64) string {
	if perSecond < 1 {
		return strconv.FormatFloat(perSecond*60, 'f', -1, 64) + "/m"
	}
	return strconv.FormatFloat(perSecond, 'f', -1, 64) + "/s"
}

// counts writes what there is of each, the most first.
func counts(of map[string]int64) string {
	names := slices.SortedFunc(maps.Keys(of), func(a, b string) int {
		return cmp.Or(cmp.Compare(of[b], of[a]), cmp.Compare(a, b))
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%d %s", of[name], name)
	}
	return strings.Join(names, ", ")
}
