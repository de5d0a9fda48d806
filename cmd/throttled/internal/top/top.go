// Package top shows a running gateway as a table in a terminal: what passes and
// what is dropped at each listener, and the endpoints that are held back most.
// All it knows it asks of the admin server.
package top

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/admin"
)

// ErrNoTerminal is the error of Run where there is none to draw on.
var ErrNoTerminal = errors.New("standard input and output are no terminal; --once prints the table once")

// resizePoll is how often the size of the terminal is looked at.
const resizePoll = 200 * time.Millisecond

// The escape sequences: an own screen, so that what was in the terminal is there
// again afterwards, and drawing over the last picture, so that nothing flickers.
const (
	enter    = "\x1b[?1049h\x1b[?25l"
	leave    = "\x1b[?25h\x1b[?1049l"
	home     = "\x1b[H"
	restLine = "\x1b[K"
	rest     = "\x1b[J"
)

// Once prints the table as plain text.
func Once(c admin.Client, w io.Writer) error {
	p, err := ask(c, time.Second)
	if err != nil {
		return err
	}
	for _, line := range p.lines() {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

// Run draws the table again at each interval until q or Ctrl-C is pressed or ctx
// is done, and leaves the terminal as it was.
func Run(ctx context.Context, c admin.Client, every time.Duration, in, out *os.File) error {
	if !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) {
		return ErrNoTerminal
	}
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return fmt.Errorf("top: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &screen{out: out, every: every}
	_, err = io.WriteString(out, enter)
	if err == nil {
		err = s.loop(ctx, asking(ctx, c, every), quitKey(in))
	}
	_, leaveErr := io.WriteString(out, leave)
	return errors.Join(err, leaveErr, term.Restore(int(in.Fd()), before))
}

// quitKey is closed when a key asks for the end, or no more can come.
func quitKey(in io.Reader) <-chan struct{} {
	quit := make(chan struct{})
	go func() { // it ends with the process at the latest, as a read cannot be called off
		defer close(quit)
		var key [1]byte
		for {
			n, err := in.Read(key[:])
			if err != nil {
				return
			}
			if n == 1 && bytes.IndexByte([]byte{'q', 'Q', 3, 4}, key[0]) >= 0 { // 3 and 4 are Ctrl-C and Ctrl-D
				return
			}
		}
	}()
	return quit
}

// An outcome is what came of asking the gateway.
type outcome struct {
	picture *picture
	err     error
}

// asking asks at once and at each interval, beside the loop: a gateway that does
// not answer must not keep keys waiting.
func asking(ctx context.Context, c admin.Client, every time.Duration) <-chan outcome {
	outcomes := make(chan outcome)
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			p, err := ask(c, every)
			select {
			case outcomes <- outcome{p, err}:
			case <-ctx.Done():
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return outcomes
}

// A screen is the terminal while it shows the table.
type screen struct {
	out           *os.File
	every         time.Duration
	last          outcome
	width, height int
}

func (s *screen) loop(ctx context.Context, outcomes <-chan outcome, quit <-chan struct{}) error {
	resize := time.NewTicker(resizePoll)
	defer resize.Stop()
	for {
		var err error
		select {
		case <-quit:
			return nil
		case <-ctx.Done():
			return nil
		case s.last = <-outcomes:
			s.measure()
			err = s.draw()
		case <-resize.C:
			if s.measure() {
				err = s.draw()
			}
		}
		if err != nil {
			return err
		}
	}
}

// measure says whether the terminal has changed its size.
func (s *screen) measure() bool {
	width, height, err := term.GetSize(int(s.out.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	changed := width != s.width || height != s.height
	s.width, s.height = width, height
	return changed
}

func (s *screen) draw() error {
	var lines []string
	switch {
	case s.last.err != nil:
		lines = []string{s.last.err.Error(), "", fmt.Sprintf("Trying again every %v.  q quits", s.every)}
	case s.last.picture != nil:
		lines = append(s.last.picture.lines(), "", "q quits")
	default:
		lines = []string{"asking the gateway", "", "q quits"}
	}
	if len(lines) > s.height { // the way out stays in sight
		lines = append(lines[:s.height-1:s.height-1], lines[len(lines)-1])
	}
	var b bytes.Buffer
	b.WriteString(home)
	for i, line := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(cut(line, s.width) + restLine)
	}
	b.WriteString(rest)
	_, err := s.out.Write(b.Bytes())
	return err
}

// cut shortens a line to the width of the terminal.
func cut(line string, width int) string {
	if r := []rune(line); len(r) > width {
		return string(r[:width])
	}
	return line
}
