package admin

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const patience = 10 * time.Second

// speak connects and sends the beginning of a request, or all of it.
func speak(t *testing.T, s *Server, text string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	_, _ = c.Write([]byte(text)) // fails where it was turned away already
	return c
}

func (w *crowd) size() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.members)
}

// Whoever opens connections and never ends a request neither takes more
// descriptors than there are for this nor keeps others from being answered.
func TestManyWhoSayNothing(t *testing.T) {
	s := serve(t, Config{Listen: "127.0.0.1:0"})
	var open []net.Conn
	for i := range 10 * maxConnections {
		text := "GET /livez HTTP/1.1\r\nHost: localhost\r\nX-"
		if i%2 == 0 {
			text = ""
		}
		open = append(open, speak(t, s, text))
		require.LessOrEqual(t, s.crowd.size(), maxConnections)
	}
	assert.Equal(t, 200, ask(t, s, "GET", "/livez", nil).status)
	for _, c := range open[:8*maxConnections] {
		_, err := c.Read(make([]byte, 1))
		require.Error(t, err, "it has no place any more")
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	}
	for _, c := range open {
		c.Close()
	}
	require.Eventually(t, func() bool { return s.crowd.size() == 0 }, patience, time.Millisecond)
}

// A request that is being answered is not cut off.
func TestTheBusyKeepTheirPlace(t *testing.T) {
	asked, answer := make(chan struct{}, maxConnections), make(chan struct{})
	s := serve(t, Config{Listen: "127.0.0.1:0", Report: func() any {
		asked <- struct{}{}
		<-answer
		return map[string]int{}
	}})
	const request = "GET /v1/report HTTP/1.0\r\nHost: localhost\r\n\r\n"
	var busy []net.Conn
	for range maxConnections {
		busy = append(busy, speak(t, s, request))
		<-asked
	}
	_, err := io.ReadAll(speak(t, s, request))
	assert.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	close(answer)
	for _, c := range busy {
		got, err := io.ReadAll(c)
		require.NoError(t, err)
		assert.Contains(t, string(got), "200 OK")
	}
}
