package cli

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/sink"
)

// logRoom is how many log lines wait for whoever reads them.
const logRoom = 512

// newLog logs text to a terminal and JSON to everything else. It waits for no
// reader, as what logs may hold a lock or be the packet path: lines that there
// is no room for are counted, and the count is logged when there is room again.
// flush lets the last lines through.
func newLog(f *os.File) (log *slog.Logger, flush func()) {
	return logTo(f, isTerminal(f))
}

func logTo(out io.Writer, terminal bool) (log *slog.Logger, flush func()) {
	w := &logWriter{}
	if terminal {
		w.log = slog.New(slog.NewTextHandler(w, nil))
	} else {
		w.log = slog.New(slog.NewJSONHandler(w, nil))
	}
	w.sink = sink.New(out, logRoom, w.written)
	return w.log, func() { w.sink.Close() }
}

// A logWriter is what the log's handler writes to, a line at a time.
type logWriter struct {
	log  *slog.Logger
	sink *sink.Sink
	lost atomic.Int64 // lines since they were last spoken of
}

func (w *logWriter) Write(line []byte) (int, error) {
	if !w.sink.Put(bytes.Clone(line)) {
		w.lost.Add(1)
	}
	return len(line), nil
}

// written runs after each write. Once all that waited is through there is room
// to say what is missing.
func (w *logWriter) written(error) {
	if !w.sink.Empty() {
		return
	}
	if n := w.lost.Swap(0); n > 0 {
		w.log.Warn("log lines were left out: nobody read those before them", "lines", n)
	}
}
