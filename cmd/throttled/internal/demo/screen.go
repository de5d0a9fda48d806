package demo

import (
	"fmt"
	"io"
	"time"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/serve"
	"github.com/seed-ee4278a0/throttled/policy"
)

// The colours of a Screen.
const (
	plain  = "0"
	bold   = "1"
	red    = "31"
	green  = "32"
	yellow = "33"
)

// A Screen prints the demo, a line at a time.
type Screen struct {
	out    io.Writer
	colour bool
	last   moment // as of the last row
	seen   moment // as of the last look
}

// NewScreen prints to out, in colour if that is wanted.
func NewScreen(out io.Writer, colour bool) *Screen {
	return &Screen{out: out, colour: colour}
}

func (s *Screen) print(colour, format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if s.colour && colour != plain {
		line = "\x1b[" + colour + "m" + line + "\x1b[0m"
	}
	fmt.Fprintln(s.out, line)
}

func (s *Screen) introduce(p policy.Policy) {
	e := p.Escalation
	s.print(plain, "An echo server stands behind a gateway, and two clients talk to it:")
	s.print(plain, "  honest   %-10v %5d packets a second", honestAddr, honestRate)
	s.print(plain, "  flooder  %-10v %5d packets a second, from second %.0f on", floodAddr, floodRate, floodAfter.Seconds())
	s.print(plain, "Each address may send %d packets at once and %.0f a second; what is beyond is",
		p.Packets.Capacity, p.Packets.RefillPerSecond)
	s.print(plain, "throttled. After %d violations, counted at most every %v, it is locked out for %v.",
		e.MaxSoftViolations, e.Spacing, e.Lockout)
	s.print(plain, "")
	s.print(bold, "        | honest          | flooder")
	s.print(bold, " second |  sent  answered |   sent  answered  throttled  locked out")
}

// row shows what the last second has brought.
func (s *Screen) row(at time.Duration, m moment) {
	l := s.last
	s.last = m
	colour := green
	switch {
	case m.lockedOut > l.lockedOut:
		colour = red
	case m.throttled > l.throttled:
		colour = yellow
	}
	s.print(colour, " %6.0f | %5d  %8d | %6d  %8d  %9d  %10d", at.Seconds(),
		m.honestSent-l.honestSent, m.honestAnswered-l.honestAnswered,
		m.floodSent-l.floodSent, m.floodAnswered-l.floodAnswered,
		m.throttled-l.throttled, m.lockedOut-l.lockedOut)
}

// look tells when the flooder's state changes.
func (s *Screen) look(at time.Duration, m moment) {
	l := s.seen
	s.seen = m
	switch {
	case l.lock == 0 && m.lock > 0:
		s.event(at, "the flooder is locked out for %v: nothing of it reaches the server", rule().Escalation.Lockout)
	case l.lock > 0 && m.lock == 0:
		s.event(at, "the lockout is over, the flooder's tokens are back")
	case m.lock == 0 && l.throttled == 0 && m.throttled > 0:
		s.event(at, "the flooder has used up its tokens and is throttled")
	}
}

func (s *Screen) event(at time.Duration, format string, args ...any) {
	s.print(bold, "  %5.1f | "+format, append([]any{at.Seconds()}, args...)...)
}

// conclude sums up and shows the report.
func (s *Screen) conclude(m moment, r serve.Report) error {
	s.print(plain, "")
	s.print(green, "honest:  %d sent, %d answered, %d denied", m.honestSent, m.honestAnswered, m.honestDenied)
	s.print(red, "flooder: %d sent, %d answered, %d throttled, %d while locked out",
		m.floodSent, m.floodAnswered, m.throttled, m.lockedOut)
	s.print(plain, "")
	return r.WriteText(s.out)
}
