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
	fmt.Fprintln(t, "\nListener\tProtocol\tListen\tPackets\tForwarded\tDropped\tSessions\tConnections")
	for _, l := range r.Listeners {
		var dropped int64
		for _, n := range l.Dropped {
			dropped += n
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\n", l.Name, l.Protocol, l.Listen,
			l.Packets, l.Forwarded, dropped, l.SessionsActive, l.ConnectionsActive)
	}
	return t.Flush()
}

// lines writes report lines from a goroutine of its own: who reads standard
// output may stall, and the gateway must not stall with them. A line that comes
// while an earlier one is not through is left out. write and close are for one
// goroutine.
type lines struct {
	out     io.WriteCloser
	log     *slog.Logger
	next    chan []byte
	done    chan struct{}
	stalled bool // and said so
}

func newLines(out io.WriteCloser, log *slog.Logger) *lines {
	l := &lines{out: out, log: log, next: make(chan []byte, 1), done: make(chan struct{})}
	go l.run()
	return l
}

// run writes until next is closed, and logs when writing begins to fail.
func (l *lines) run() {
	defer close(l.done)
	failing := false
	for line := range l.next {
		_, err := l.out.Write(line)
		if err != nil && !failing {
			l.log.Warn("report lines cannot be written", "error", err)
		}
		failing = err != nil
	}
}

func (l *lines) write(r Report) {
	line, err := json.Marshal(r)
	if err != nil {
		l.log.Error("report", "error", err)
		return
	}
	select {
	case l.next <- append(line, '\n'):
		l.stalled = false
	default:
		if !l.stalled {
			l.log.Warn("report lines are left out: nobody reads those before them")
		}
		l.stalled = true
	}
}

// close waits a second for the last line to get through. A write that hangs
// longer ends with the process.
func (l *lines) close() error {
	close(l.next)
	select {
	case <-l.done:
		return l.out.Close()
	case <-time.After(time.Second):
		return nil
	}
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
