package serve

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// A writer that a test is in the way of.
type writer func() error

func (w writer) Write(p []byte) (int, error) { return len(p), w() }
func (writer) Close() error                  { return nil }

// What goes wrong with report lines is said now and then, however often it goes
// wrong and right again.
func TestComplaintsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		n := 0
		l := newLines(writer(func() (err error) {
			if n++; n%2 == 0 {
				err = errors.New("full")
			}
			return err
		}), slog.New(slog.NewTextHandler(&log, nil)))
		for range 1000 {
			l.write(Report{})
			synctest.Wait()
		}
		assert.Equal(t, 1, strings.Count(log.String(), "report lines cannot be written"))
		time.Sleep(time.Minute)
		for range 2 {
			l.write(Report{})
			synctest.Wait()
		}
		assert.Equal(t, 2, strings.Count(log.String(), "report lines cannot be written"))
		assert.NoError(t, l.close())
	})
}

func TestLinesAreLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		read := make(chan struct{})
		lines := 0
		l := newLines(writer(func() error { lines++; <-read; return nil }), slog.New(slog.NewTextHandler(&log, nil)))
		for range 100 { // the reader is slower than the lines come
			for range linesRoom {
				l.write(Report{})
			}
			read <- struct{}{}
		}
		assert.Equal(t, 1, strings.Count(log.String(), "report lines are left out"), "%s", log.String())
		close(read)
		synctest.Wait()
		before := lines
		for range linesRoom { // all at once, as at the end
			l.write(Report{})
		}
		assert.NoError(t, l.close())
		assert.Equal(t, before+linesRoom, lines)
	})
}
