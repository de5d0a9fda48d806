package main

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestSIGTERMDrains(t *testing.T) {
	t.Parallel()
	g := startAnyPort(t)
	tcp := dial(t, "tcp", g.addr["tcp:127.0.0.1:0"])
	echoes(t, tcp, "before")
	status, _ := get(t, g.admin, "/readyz")
	assert.Equal(t, 200, status)

	g.signal(syscall.SIGTERM)
	assert.Equal(t, 1.0, g.waitLog("draining")["connections"])
	require.Eventually(t, func() bool {
		status, _ = get(t, g.admin, "/readyz")
		return status == 503
	}, patience, 10*time.Millisecond)
	status, _ = get(t, g.admin, "/livez")
	assert.Equal(t, 200, status)
	echoes(t, tcp, "what was there goes on")

	udp := dial(t, "udp", g.addr["udp:127.0.0.1:0"])
	_, err := udp.Write([]byte("too late"))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, report := get(t, g.admin, "/v1/report")
		l := report["Listeners"].([]any)[0].(map[string]any)
		return l["Dropped"].(map[string]any)["draining"] == 1.0 && l["SessionsActive"] == 0.0
	}, patience, 10*time.Millisecond)
	g.running()

	require.NoError(t, tcp.Close())
	g.ended(patience)
	assert.Len(t, g.logged("drained"), 1)
	g.waitLines(1)
}

func TestSIGTERMWaitsNoLongerThanTheGrace(t *testing.T) {
	t.Parallel()
	g := startAnyPort(t, "--grace", "200ms")
	tcp := dial(t, "tcp", g.addr["tcp:127.0.0.1:0"])
	echoes(t, tcp, "never closed")
	g.signal(syscall.SIGTERM)
	g.ended(patience)
	assert.Equal(t, 1.0, g.waitLog("grace is over")["connections"])
}

func TestSecondSignalEndsTheWait(t *testing.T) {
	t.Parallel()
	for _, second := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		g := startAnyPort(t, "--grace", "1h")
		echoes(t, dial(t, "tcp", g.addr["tcp:127.0.0.1:0"]), "never closed")
		g.signal(syscall.SIGTERM)
		g.waitLog("draining")
		g.running()
		g.signal(second)
		g.ended(patience)
	}
}

func TestSIGINTEndsAtOnce(t *testing.T) {
	t.Parallel()
	g := startAnyPort(t, "--grace", "1h")
	echoes(t, dial(t, "tcp", g.addr["tcp:127.0.0.1:0"]), "never closed")
	echoes(t, dial(t, "udp", g.addr["udp:127.0.0.1:0"]), "never idle")
	g.signal(syscall.SIGINT)
	g.ended(patience)
	last := g.waitLines(1)
	assert.Equal(t, 2.0, last["Evaluated"])
}

func TestSIGHUPDoesNotEndIt(t *testing.T) {
	t.Parallel()
	g := startAnyPort(t)
	g.signal(syscall.SIGHUP)
	g.waitLog("the configuration is not reloaded, what ran goes on")
	echoes(t, dial(t, "udp", g.addr["udp:127.0.0.1:0"]), "it goes on")
	g.signal(syscall.SIGINT)
	g.ended(patience)
}

// Nobody reads standard output any more: said once, and the gateway goes on.
func TestClosedStandardOutput(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, r.Close())
	defer w.Close()
	g := launch(t, command(append([]string{"run", "--report-every", "5ms"}, anyPort...)...), w)
	g.waitLog("report lines cannot be written")
	udp := dial(t, "udp", g.addr["udp:127.0.0.1:0"])
	for range 20 {
		echoes(t, udp, "it goes on")
	}
	g.signal(syscall.SIGUSR1)
	g.signal(syscall.SIGINT)
	g.ended(patience)
	assert.Len(t, g.logged("report lines cannot be written"), 1)
}

// Whoever reads standard output has stopped: the gateway neither stalls nor
// hangs at its end.
func TestStalledStandardOutput(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	g := launch(t, command(append([]string{"run", "--report-every", "1ms"}, anyPort...)...), w)
	g.waitLog("report lines are left out: nobody reads those before them")
	echoes(t, dial(t, "udp", g.addr["udp:127.0.0.1:0"]), "it goes on")
	g.signal(syscall.SIGINT)
	g.ended(patience)
}

// Whoever reads standard error has stopped, in the middle of something to log.
func TestStalledStandardError(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	room, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 4096)
	require.NoError(t, err)
	cmd := command(append([]string{"run"}, anyPort...)...)
	cmd.Stderr = w
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill() })
	exit := make(chan error, 1)
	go func() { exit <- cmd.Wait() }()
	unread := func() int {
		n, err := unix.IoctlGetInt(int(r.Fd()), unix.TIOCINQ)
		require.NoError(t, err)
		return n
	}
	require.Eventually(t, func() bool { return unread() > 0 }, patience, time.Millisecond)
	require.Eventually(t, func() bool {
		require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
		return unread() > room-300 // a line more does not fit
	}, patience, time.Millisecond)
	for range 10 {
		require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	}
	deadline := time.After(patience)
	for { // also while it waits for its last lines to be read
		_ = cmd.Process.Signal(syscall.SIGINT) // it may have ended
		select {
		case err := <-exit:
			assert.NoError(t, err)
			return
		case <-deadline:
			require.Fail(t, "the gateway has not ended")
		case <-time.After(time.Millisecond):
		}
	}
}
