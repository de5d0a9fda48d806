package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/config"
)

// listen binds ip:port or unix:PATH.
func listen(addr string) (net.Listener, error) {
	path, isUnix := strings.CutPrefix(addr, config.UnixPrefix)
	if !isUnix {
		return net.Listen("tcp", addr)
	}
	return listenUnix(path)
}

// A unixListener removes its socket when it is closed, but not what has come
// into its place.
type unixListener struct {
	net.Listener
	path   string
	socket os.FileInfo
}

func listenUnix(path string) (net.Listener, error) {
	if err := removeStale(path); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	err = os.Chmod(path, 0o600)
	socket, err2 := os.Lstat(path)
	if err := errors.Join(err, err2); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	l.SetUnlinkOnClose(false)
	return &unixListener{l, path, socket}, nil
}

func (l *unixListener) Close() error {
	if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.socket) {
		os.Remove(l.path)
	}
	return l.Listener.Close()
}

// removeStale removes the socket that a killed process has left behind. One
// that somebody answers on, and any other file, stays.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("listen unix %s: a file that is no socket is in the way", path)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		c.Close()
		return fmt.Errorf("listen unix %s: address already in use", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) { // it may have more to do than it can
		return err
	}
	return os.Remove(path)
}

// ParseAddress refuses what a Client cannot connect to. Other than a server's
// address it may have a host name.
func ParseAddress(s string) (string, error) {
	if path, isUnix := strings.CutPrefix(s, config.UnixPrefix); isUnix && path != "" {
		return s, nil
	}
	if _, port, err := net.SplitHostPort(s); err != nil || port == "" {
		return "", fmt.Errorf("%q is not an address; allowed: host:port or unix:PATH", s)
	}
	return s, nil
}

// dial connects to an admin server, for a Client.
func dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	if path, isUnix := strings.CutPrefix(addr, config.UnixPrefix); isUnix {
		return d.DialContext(ctx, "unix", path)
	}
	return d.DialContext(ctx, "tcp", addr)
}
