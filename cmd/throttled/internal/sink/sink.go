// Package sink writes lines to where a reader may stall (a pipe, a terminal
// that was stopped), without stalling whoever has something to say.
package sink

import (
	"io"
	"time"
)

// patience is how long Close waits for what has not been read yet.
const patience = time.Second

// A Sink writes lines from a goroutine of its own, from New until Close. Its
// methods may be called from several goroutines.
type Sink struct {
	out     io.Writer
	lines   chan []byte
	quit    chan struct{}
	done    chan struct{}
	written func(error)
}

// New starts a sink that holds room lines beside the one that is being written.
// After each write it calls written, in its goroutine, with what came of it.
func New(out io.Writer, room int, written func(error)) *Sink {
	s := &Sink{
		out:     out,
		lines:   make(chan []byte, room),
		quit:    make(chan struct{}),
		done:    make(chan struct{}),
		written: written,
	}
	go s.run()
	return s
}

// Put gives the sink a line, which must not change any more. It never waits:
// it is false where there is no room for the line, which is then left out. What
// comes after Close may be left out, too.
func (s *Sink) Put(line []byte) bool {
	select {
	case s.lines <- line:
		return true
	default:
		return false
	}
}

// Empty says whether no line waits to be written.
func (s *Sink) Empty() bool { return len(s.lines) == 0 }

func (s *Sink) run() {
	defer close(s.done)
	for {
		select {
		case line := <-s.lines:
			s.write(line)
		case <-s.quit:
			s.rest()
			return
		}
	}
}

// rest writes what was put before the end.
func (s *Sink) rest() {
	for {
		select {
		case line := <-s.lines:
			s.write(line)
		default:
			return
		}
	}
}

func (s *Sink) write(line []byte) {
	_, err := s.out.Write(line)
	s.written(err)
}

// Close waits a second for the last line to get through, and says whether it
// did. A write that hangs longer ends with the process. It must be called once.
func (s *Sink) Close() bool {
	close(s.quit)
	select {
	case <-s.done:
		return true
	case <-time.After(patience):
		return false
	}
}
