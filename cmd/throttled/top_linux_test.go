package main

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A terminal is a pseudoterminal with a program on it.
type terminal struct {
	t    *testing.T
	user *os.File // what a person types into and looks at
	line *os.File // what the program has as its input and output
	was  unix.Termios
	cmd  *exec.Cmd
	exit chan int

	mu   sync.Mutex
	seen strings.Builder
}

// onTerminal runs the program on a terminal of 100 columns and 40 lines.
func onTerminal(t *testing.T, args ...string) *terminal {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(int(user.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(user.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	line, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	term := &terminal{t: t, user: user, line: line, exit: make(chan int, 1)}
	term.resize(100, 40)
	term.was = term.mode()
	term.cmd = command(args...)
	term.cmd.Stdin, term.cmd.Stdout, term.cmd.Stderr = line, line, line
	term.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: syscall.SIGKILL}
	go term.look()
	require.NoError(t, term.cmd.Start())
	go func() { term.cmd.Wait(); term.exit <- term.cmd.ProcessState.ExitCode() }()
	t.Cleanup(func() { term.cmd.Process.Kill(); user.Close(); line.Close() })
	return term
}

func (term *terminal) look() {
	buf := make([]byte, 4096)
	for {
		n, err := term.user.Read(buf)
		if err != nil {
			return
		}
		term.mu.Lock()
		term.seen.Write(buf[:n])
		term.mu.Unlock()
	}
}

// text is all that was written so far.
func (term *terminal) text() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.seen.String()
}

// frame is the last picture that is complete, a line each.
func (term *terminal) frame() []string {
	frames := strings.Split(term.text(), "\x1b[H")
	last := ""
	for _, f := range frames {
		if picture, _, ok := strings.Cut(f, "\x1b[J"); ok {
			last = picture
		}
	}
	return strings.Split(strings.ReplaceAll(last, "\x1b[K", ""), "\r\n")
}

// waitFrame waits until the picture has a line that matches.
func (term *terminal) waitFrame(pattern string) {
	term.t.Helper()
	re := regexp.MustCompile("(?m)" + pattern)
	require.Eventually(term.t, func() bool { return re.MatchString(strings.Join(term.frame(), "\n")) },
		patience, 10*time.Millisecond, "no %q in %q", pattern, term.frame())
}

func (term *terminal) resize(columns, rows uint16) {
	term.t.Helper()
	require.NoError(term.t, unix.IoctlSetWinsize(int(term.user.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows}))
}

func (term *terminal) press(key string) {
	term.t.Helper()
	_, err := term.user.WriteString(key)
	require.NoError(term.t, err)
}

func (term *terminal) mode() unix.Termios {
	term.t.Helper()
	mode, err := unix.IoctlGetTermios(int(term.line.Fd()), unix.TCGETS)
	require.NoError(term.t, err)
	return *mode
}

// flooded is a gateway that a client has sent too much to.
func flooded(t *testing.T, args ...string) *gateway {
	t.Helper()
	g := startAnyPort(t, args...)
	udp := dial(t, "udp", g.addr["udp:127.0.0.1:0"])
	for range 100 {
		_, err := udp.Write([]byte("flood"))
		require.NoError(t, err)
	}
	return g
}

func TestTop(t *testing.T) {
	t.Parallel()
	g := flooded(t)
	for name, end := range map[string]func(*terminal){
		"q":       func(term *terminal) { term.press("xq") },
		"Ctrl-C":  func(term *terminal) { term.press("\x03") },
		"SIGTERM": func(term *terminal) { term.cmd.Process.Signal(syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			term := onTerminal(t, "top", "--admin", g.admin, "--every", "50ms")
			term.waitFrame(`^udp:127\.0\.0\.1:0 +udp +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+ +1 `)
			term.waitFrame(`^127\.0\.0\.1 +default +\d+ +\d+ +[\d.]+s +\d+$`)
			assert.NotEqual(t, term.was, term.mode(), "keys are read one by one")

			term.resize(30, 5)
			require.Eventually(t, func() bool { return len(term.frame()) == 5 }, patience, 10*time.Millisecond)
			for _, line := range term.frame() {
				assert.LessOrEqual(t, len(line), 30)
			}
			assert.Equal(t, "q quits", term.frame()[4])

			end(term)
			select {
			case code := <-term.exit:
				assert.Equal(t, 0, code)
			case <-time.After(patience):
				require.Fail(t, "it does not end")
			}
			assert.Equal(t, term.was, term.mode(), "the terminal is as it was")
			require.Eventually(t, func() bool { return strings.HasSuffix(term.text(), "\x1b[?25h\x1b[?1049l") },
				patience, 10*time.Millisecond, "the cursor and the old screen are back")
		})
	}
}

func TestTopWaitsForTheGateway(t *testing.T) {
	t.Parallel()
	g := startAnyPort(t)
	term := onTerminal(t, "top", "--admin", g.admin, "--every", "50ms")
	term.waitFrame(`^LISTENER `)
	g.signal(syscall.SIGINT)
	g.ended(patience)
	term.waitFrame(`^admin: no gateway answers at ` + g.admin)
	term.waitFrame(`^Trying again every 50ms\.  q quits$`)
	start(t, "--udp", "127.0.0.1:0=echo", "--admin", g.admin)
	term.waitFrame(`^LISTENER `)
	term.press("q")
	assert.Equal(t, 0, <-term.exit)
}

func TestTopOnce(t *testing.T) {
	t.Parallel()
	g := flooded(t)
	var got result
	require.Eventually(t, func() bool {
		got = run(t, []string{"THROTTLED_ADMIN=" + g.admin}, "top", "--once")
		return regexp.MustCompile(`(?m)^127\.0\.0\.1 +default `).MatchString(got.stdout)
	}, patience, 10*time.Millisecond)
	assert.Equal(t, 0, got.code)
	assert.Empty(t, got.stderr)
	assert.NotContains(t, got.stdout, "\x1b")
	assert.NotContains(t, got.stdout, "q quits")
	assert.Regexp(t, `(?m)^LISTENER +PROTO +IN/s `, got.stdout)

	piped := run(t, nil, "top", "--admin", g.admin)
	assert.Equal(t, 2, piped.code)
	assert.Contains(t, piped.stderr, "--once")
	gone := run(t, nil, "top", "--once", "--admin", "127.0.0.1:1")
	assert.Equal(t, 1, gone.code)
	assert.Contains(t, gone.stderr, "no gateway answers at 127.0.0.1:1")
}
