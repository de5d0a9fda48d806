package main

import (
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A drain that somebody asks for is the one of SIGTERM; a second changes nothing.
func TestDrainCommand(t *testing.T) {
	t.Parallel()
	c := newConfig(t, "")
	g := start(t, "-c", c.path, "--tcp", "127.0.0.1:0=echo", "--grace", "1h")
	tcp := dial(t, "tcp", g.addr["tcp:127.0.0.1:0"])
	echoes(t, tcp, "x")
	for range 3 {
		status, answer := g.post("/v1/drain")
		assert.Equal(t, 202, status)
		assert.Equal(t, map[string]any{"grace": "1h0m0s"}, answer)
		status, answer = get(t, g.admin, "/readyz")
		assert.Equal(t, 503, status)
		assert.Equal(t, map[string]any{"error": "draining"}, answer)
	}
	status, answer := g.post("/v1/reload")
	assert.Equal(t, 409, status)
	assert.Contains(t, answer["error"], "draining")
	g.signal(syscall.SIGTERM)
	echoes(t, tcp, "the first signal is no second drain")
	g.running()
	assert.Len(t, g.waitLogs("draining", 1), 1)
	require.NoError(t, tcp.Close())
	g.ended(patience)
	assert.Len(t, g.logged("drained"), 1)
}

// A hundred requests, signals and a drain at the same time.
func TestReloadAtTheSameTime(t *testing.T) {
	t.Parallel()
	c := newConfig(t, "")
	g := start(t, "-c", c.path)
	u := dial(t, "udp", g.addr["u"])
	echoes(t, u, "x")
	var (
		wg       sync.WaitGroup
		mu       sync.Mutex
		statuses = map[int]int{}
	)
	// The admin server holds few connections: whoever finds no room comes again.
	insist := func(path string) int {
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if answer, err := http.Post("http://"+g.admin+path, "", nil); err == nil {
				answer.Body.Close()
				return answer.StatusCode
			}
		}
		return 0
	}
	for i := range 100 {
		wg.Go(func() {
			if i%3 == 0 {
				assert.NoError(t, g.cmd.Process.Signal(syscall.SIGHUP))
			}
			status := insist("/v1/reload")
			mu.Lock()
			defer mu.Unlock()
			statuses[status]++
			if statuses[200] == 50 && statuses[202] == 0 {
				statuses[insist("/v1/drain")]++
			}
		})
	}
	wg.Wait()
	assert.GreaterOrEqual(t, statuses[200], 50)
	assert.Equal(t, 1, statuses[202])
	assert.Equal(t, 101, statuses[200]+statuses[202]+statuses[409], "%v", statuses)
	echoes(t, u, "the session goes on")
	g.signal(syscall.SIGINT)
	g.ended(patience)
}
