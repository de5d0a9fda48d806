//go:build !linux

package netx

import (
	"errors"
	"net"
	"syscall"
)

// The gateway serves on Linux only; these keep the package whole elsewhere.

func await(syscall.RawConn) (int, error)                    { return 0, errors.ErrUnsupported }
func departed(syscall.RawConn) error                        { return errors.ErrUnsupported }
func hasUnread(*net.TCPConn) bool                           { return false }
func hasGone(*net.TCPConn, bool) bool                       { return false }
func sendState(*net.TCPConn) (pending bool, acked uint64)   { return false, 0 }
func muteClose(*net.TCPConn) error                          { return errors.ErrUnsupported }
func outOfDescriptors(error) bool                           { return false }
func prepareListener(string, string, syscall.RawConn) error { return nil }
