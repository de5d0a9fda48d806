package netx

import (
	"io"
	"sync/atomic"
)

// A shared is a listening socket that a server takes over from another. The
// last one to close it does so.
type shared[T io.Closer] struct {
	socket T
	users  atomic.Int32
}

func newShared[T io.Closer](socket T) *shared[T] {
	return (&shared[T]{socket: socket}).share()
}

func (s *shared[T]) share() *shared[T] {
	s.users.Add(1)
	return s
}

func (s *shared[T]) close() {
	if s.users.Add(-1) == 0 {
		_ = s.socket.Close()
	}
}
