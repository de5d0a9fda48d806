//go:build !linux

package netx

import (
	"errors"
	"net"
	"syscall"
)

// Without these a relay works but knows less: it hears of a client that has gone
// from a read or write alone, does not see whether what it wrote has arrived
// before it passes a reset on, and holds a buffer while it waits.

func await(syscall.RawConn) (int, error)                  { return 0, errors.ErrUnsupported }
func departed(syscall.RawConn, bool) error                { return errors.ErrUnsupported }
func hasUnread(*net.TCPConn) bool                         { return false }
func hasGone(*net.TCPConn, bool) bool                     { return false }
func sendState(*net.TCPConn) (pending bool, acked uint64) { return false, 0 }
func muteClose(*net.TCPConn) error                        { return errors.ErrUnsupported }
func outOfDescriptors(error) bool                         { return false }
func (socketBuffers) set(syscall.RawConn) error           { return nil }
