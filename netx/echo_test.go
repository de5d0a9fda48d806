package netx

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ioTimeout ends a test that would hang; no test waits for it to pass.
const ioTimeout = 10 * time.Second

func newEcho(t *testing.T) *echoServer {
	t.Helper()
	s, err := startEcho()
	require.NoError(t, err)
	t.Cleanup(s.close)
	return s
}

func dialTCP(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, ioTimeout)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(ioTimeout)))
	return c.(*net.TCPConn)
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	src := rand.NewChaCha8([32]byte{1})
	src.Read(b)
	return b
}

func TestEchoUDP(t *testing.T) {
	s := newEcho(t)
	c, err := net.Dial("udp", s.udpAddr().String())
	require.NoError(t, err)
	defer c.Close()
	buf := make([]byte, MaxDatagram+1)
	for _, size := range []int{1, 0, MaxDatagram, 0, 1500} { // C76
		want := randomBytes(size)
		require.NoError(t, c.SetDeadline(time.Now().Add(ioTimeout)))
		_, err = c.Write(want)
		require.NoError(t, err)
		n, err := c.Read(buf)
		require.NoError(t, err, "%d bytes", size)
		require.True(t, bytes.Equal(want, buf[:n]), "%d bytes came back as %d", size, n)
	}
}

func TestEchoTCPHalfClose(t *testing.T) {
	s := newEcho(t)
	c := dialTCP(t, s.tcpAddr().String())
	want := randomBytes(1 << 20)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := c.Write(want)
		assert.NoError(t, err)
		assert.NoError(t, c.CloseWrite())
	})
	got, err := io.ReadAll(c)
	wg.Wait()
	require.NoError(t, err)
	assert.True(t, bytes.Equal(want, got), "%d bytes came back as %d", len(want), len(got))
}

func TestEchoCloseEndsEverything(t *testing.T) {
	s, err := startEcho()
	require.NoError(t, err)
	c := dialTCP(t, s.tcpAddr().String())
	_, err = c.Write([]byte("x"))
	require.NoError(t, err)
	_, err = io.ReadFull(c, make([]byte, 1))
	require.NoError(t, err)

	s.close()
	s.close()
	_, err = c.Read(make([]byte, 1))
	assert.Error(t, err, "the connection outlived close")
	buf := make([]byte, 1<<20)
	assert.NotContains(t, string(buf[:runtime.Stack(buf, true)]), "(*echoServer).serve")
}
