package netx

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A socket that the kernel has given the upstream's own port would answer
// itself, and keep the upstream from that port.
func TestUDPSessionDoesNotTalkToItself(t *testing.T) {
	lock, err := lockAddr(UDP, loopback(0))
	require.NoError(t, err)
	lock.release()
	var made []int
	connect := func() (fd int, err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		if len(made) == 0 {
			require.NoError(t, unix.Bind(fd, sockaddr(lock.addr)))
		}
		require.NoError(t, unix.Connect(fd, sockaddr(lock.addr)))
		made = append(made, fd)
		return fd, nil
	}
	fd, err := notToItself(connect)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.Len(t, made, 2)
	assert.Equal(t, made[1], fd)
	manualUpstream(t, lock.addr.String()) // the port is free again
	fd2, err := notToItself(connect)
	require.NoError(t, err)
	defer unix.Close(fd2)
	assert.Len(t, made, 3)
}
