package main

import (
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A manager hears what a service manager would.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
	env  string // for whoever is to speak to it
}

func newManager(t *testing.T) *manager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return &manager{t, conn, "NOTIFY_SOCKET=" + path}
}

// hears waits for a message with a line and returns its lines by variable.
func (m *manager) hears(line string) map[string]string {
	m.t.Helper()
	buffer := make([]byte, 4096)
	require.NoError(m.t, m.conn.SetReadDeadline(time.Now().Add(patience)))
	for {
		n, err := m.conn.Read(buffer)
		require.NoError(m.t, err, "no message %s", line)
		message := string(buffer[:n])
		if !strings.Contains("\n"+message, "\n"+line) {
			continue
		}
		values := map[string]string{}
		for l := range strings.SplitSeq(message, "\n") {
			name, value, _ := strings.Cut(l, "=")
			values[name] = value
		}
		return values
	}
}

func TestServiceManager(t *testing.T) {
	t.Parallel()
	m := newManager(t)
	cmd := command("run", "--udp", "127.0.0.1:0=echo", "--tcp", "127.0.0.1:0=echo", "--admin", "127.0.0.1:0", "--grace", "77s")
	cmd.Env = append(cmd.Env, m.env, "WATCHDOG_USEC=100000")
	g := launch(t, cmd, nil)
	assert.Equal(t, "2 listeners, 0 sessions, 0 connections, 0 endpoints, 0 locked out", m.hears("READY=1")["STATUS"])

	tcp := dial(t, "tcp", g.addr["tcp:127.0.0.1:0"])
	echoes(t, tcp, "served")
	for m.hears("WATCHDOG=1")["STATUS"] != "2 listeners, 0 sessions, 1 connections, 1 endpoints, 0 locked out" {
	}

	g.signal(syscall.SIGTERM)
	m.hears("STOPPING=1")
	assert.Equal(t, "87000000", m.hears("EXTEND_TIMEOUT_USEC=")["EXTEND_TIMEOUT_USEC"])
	m.hears("WATCHDOG=1") // it is well while it drains
	require.NoError(t, tcp.Close())
	g.ended(patience)
}

// Nobody is told that a gateway is ready which is not.
func TestServiceManagerOfAFailure(t *testing.T) {
	t.Parallel()
	m := newManager(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	r := run(t, []string{m.env}, "run", "--tcp", taken.Addr().String()+"=echo", "--admin", "off")
	assert.Equal(t, 1, r.code, r.stderr)
	raw, err := m.conn.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) {
		_, _, err = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_DONTWAIT)
	}))
	assert.ErrorIs(t, err, unix.EAGAIN, "a message")
}

// A service manager that has stopped reading keeps no signal from being obeyed.
func TestServiceManagerThatDoesNotRead(t *testing.T) {
	t.Parallel()
	m := newManager(t)
	cmd := command(append([]string{"run"}, anyPort...)...)
	cmd.Env = append(cmd.Env, m.env, "WATCHDOG_USEC=2000")
	g := launch(t, cmd, nil)
	g.waitLog("the service manager cannot be reached")
	g.signal(syscall.SIGINT)
	g.ended(patience)
}
