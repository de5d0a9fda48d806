package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The tests run the real program: this test binary, told by a variable to be it.
const beThrottled = "TEST_BINARY_IS_THROTTLED"

func TestMain(m *testing.M) {
	if os.Getenv(beThrottled) != "" {
		main()
	}
	os.Exit(m.Run())
}

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

func command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(cmd.Env, beThrottled+"=1", "PATH="+os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0")
	return cmd
}

// A result is what a program that has ended leaves.
type result struct {
	code           int
	stdout, stderr string
}

// run runs the program to its end.
func run(t *testing.T, env []string, args ...string) result {
	t.Helper()
	var out, err strings.Builder
	cmd := command(args...)
	cmd.Env = append(cmd.Env, env...)
	cmd.Stdout, cmd.Stderr = &out, &err
	require.NoError(t, cmd.Start())
	kill := time.AfterFunc(2*patience, func() { cmd.Process.Kill() })
	defer kill.Stop()
	cmd.Wait()
	return result{cmd.ProcessState.ExitCode(), out.String(), err.String()}
}

// A gateway is a running `throttled run`.
type gateway struct {
	t     *testing.T
	cmd   *exec.Cmd
	admin string            // address of its admin server
	addr  map[string]string // addresses of its listeners, by name
	exit  chan int

	mu      sync.Mutex
	logs    []map[string]any
	reports []map[string]any
}

// start runs the gateway and waits until it serves.
func start(t *testing.T, args ...string) *gateway {
	t.Helper()
	return launch(t, command(append([]string{"run"}, args...)...), nil)
}

// launch is start for a command whose standard output may be the test's own.
func launch(t *testing.T, cmd *exec.Cmd, stdout *os.File) *gateway {
	t.Helper()
	g := &gateway{t: t, cmd: cmd, addr: map[string]string{}, exit: make(chan int, 1)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	var readers sync.WaitGroup
	readers.Go(func() { g.collect(stderr, &g.logs) })
	if stdout == nil {
		pipe, err := cmd.StdoutPipe()
		require.NoError(t, err)
		readers.Go(func() { g.collect(pipe, &g.reports) })
	} else {
		cmd.Stdout = stdout
	}
	require.NoError(t, cmd.Start())
	go func() {
		readers.Wait()
		cmd.Wait()
		g.exit <- cmd.ProcessState.ExitCode()
	}()
	t.Cleanup(func() { cmd.Process.Kill() })
	g.admin = g.waitLog("admin server listening")["listen"].(string)
	for _, l := range g.logged("listening") {
		g.addr[l["name"].(string)] = l["listen"].(string)
	}
	return g
}

// collect reads JSON objects, one a line, into to.
func (g *gateway) collect(r io.Reader, to *[]map[string]any) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		object := map[string]any{}
		if err := json.Unmarshal(lines.Bytes(), &object); err != nil {
			object = map[string]any{"msg": "not JSON: " + lines.Text()}
		}
		g.mu.Lock()
		*to = append(*to, object)
		g.mu.Unlock()
	}
}

// logged gives the log lines with a message.
func (g *gateway) logged(message string) (found []map[string]any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range g.logs {
		if l["msg"] == message {
			found = append(found, l)
		}
	}
	return found
}

func (g *gateway) waitLog(message string) map[string]any {
	g.t.Helper()
	return g.waitLogs(message, 1)[0]
}

// waitLogs waits until there are n log lines with a message.
func (g *gateway) waitLogs(message string, n int) []map[string]any {
	g.t.Helper()
	require.Eventually(g.t, func() bool { return len(g.logged(message)) >= n }, patience, 5*time.Millisecond,
		"no %d log lines %q", n, message)
	return g.logged(message)
}

// lines gives the report lines so far.
func (g *gateway) lines() []map[string]any {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]map[string]any(nil), g.reports...)
}

// waitLines waits until there are n report lines, and gives the last.
func (g *gateway) waitLines(n int) map[string]any {
	g.t.Helper()
	require.Eventually(g.t, func() bool { return len(g.lines()) >= n }, patience, 5*time.Millisecond, "no %d report lines", n)
	lines := g.lines()
	return lines[len(lines)-1]
}

func (g *gateway) signal(s syscall.Signal) {
	g.t.Helper()
	require.NoError(g.t, g.cmd.Process.Signal(s))
}

// running fails the test where the gateway has ended.
func (g *gateway) running() {
	g.t.Helper()
	select {
	case code := <-g.exit:
		require.Fail(g.t, "the gateway has ended", "exit code %d", code)
	default:
	}
}

// ended waits for the end, which must be a good one within the time.
func (g *gateway) ended(within time.Duration) {
	g.t.Helper()
	select {
	case code := <-g.exit:
		assert.Equal(g.t, 0, code)
	case <-time.After(within):
		require.Fail(g.t, "the gateway has not ended", "within %v", within)
	}
}
