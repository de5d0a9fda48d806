package serve

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/sink"
	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/netx"
)

// A Report is a line on standard output and the answer of /v1/report: the
// engine's report, and with it what each listener has counted.
type Report struct {
	engine.Report
	Listeners []netx.ListenerReport
}

func (p *process) report() Report {
	return Report{Report: p.engine.Report(), Listeners: p.gateway.Listeners()}
}

// WriteText writes the report for people.
func (r Report) WriteText(w io.Writer) error {
	if err := r.Report.WriteText(w); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "\nListener\tProtocol\tListen\tPackets\tForwarded\tDropped\tWould drop\tSessions\tConnections")
	for _, l := range r.Listeners {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\n", l.Name, l.Protocol, l.Listen,
			l.Packets, l.Forwarded, sum(l.Dropped), sum(l.WouldDrop), l.SessionsActive, l.ConnectionsActive)
	}
	return t.Flush()
}

func sum(of map[string]int64) (n int64) {
	for _, m := range of {
		n += m
	}
	return n
}

// linesRoom is how many report lines wait for whoever reads them: so many that
// the last one, at the end, is not left out because others came just before.
const linesRoom = 8

// lines writes report lines. A line that there is no room for is left out. write
// and close are for one goroutine.
type lines struct {
	out  io.WriteCloser
	log  *slog.Logger
	sink *sink.Sink

	failed  complaint // of the sink's goroutine
	stalled complaint
}

func newLines(out io.WriteCloser, log *slog.Logger) *lines {
	l := &lines{out: out, log: log}
	l.sink = sink.New(out, linesRoom, l.written)
	return l
}

func (l *lines) written(err error) {
	if err != nil && l.failed.due() {
		l.log.Warn("report lines cannot be written", "error", err)
	}
}

func (l *lines) write(r Report) {
	line, err := json.Marshal(r)
	if err != nil {
		l.log.Error("report", "error", err)
		return
	}
	if !l.sink.Put(append(line, '\n')) && l.stalled.due() {
		l.log.Warn("report lines are left out: nobody reads those before them")
	}
}

// A complaint is what is logged at most once a minute.
type complaint struct{ last time.Time }

func (c *complaint) due() bool {
	now := time.Now()
	if !c.last.IsZero() && now.Sub(c.last) < time.Minute {
		return false
	}
	c.last = now
	return true
}

// close lets the last line through, where somebody reads it.
func (l *lines) close() error {
	if !l.sink.Close() {
		return nil
	}
	return l.out.Close()
}

// reportFile opens the file that report lines go to. A named pipe that nobody
// reads is an error, where it would hold up the start.
func reportFile(path string, stdout io.Writer) (io.WriteCloser, error) {
	if path == "-" {
		return keepOpen{stdout}, nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY|syscall.O_NONBLOCK, 0o644)
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	return f, nil
}

// keepOpen is a writer that is not ours to close.
type keepOpen struct{ io.Writer }

func (keepOpen) Close() error { return nil }
