package admin

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A socket whose owner does not keep up with those who connect is not one that was
// left behind.
func TestBusySocketStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	defer syscall.Close(fd)
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}))
	require.NoError(t, syscall.Listen(fd, 0))
	for range 100 {
		c, err := net.Dial("unix", path)
		if err != nil {
			break
		}
		defer c.Close()
	}
	_, err = net.Dial("unix", path)
	require.ErrorIs(t, err, syscall.EAGAIN)
	_, err = listenUnix(path)
	require.ErrorIs(t, err, syscall.EAGAIN)
	_, err = os.Lstat(path)
	assert.NoError(t, err)
}
