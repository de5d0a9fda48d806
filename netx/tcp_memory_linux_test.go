package netx

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A client that has read fast and then reads nothing more, while the upstream
// goes on sending, costs at most 1 MiB, in the kernel and in the process. Nor
// does it keep a pipe from the others. C97
func TestTCPStuckClientIsCheap(t *testing.T) {
	const clients, first, most = 16, 4 << 20, 1 << 20
	block := make([]byte, 1<<20)
	upstream := upstreamTCP(t, func(c *net.TCPConn) {
		for range 100 {
			if _, err := c.Write(block); err != nil {
				return
			}
		}
		assert.Fail(t, "all of it went somewhere")
	})
	g, report := startTCP(t, upstream, TCPOptions{})
	before := processBytes()
	for range clients {
		c := dialTCP(t, g.Addrs()[0].String())
		_, err := io.CopyN(io.Discard, c, first)
		require.NoError(t, err)
	}
	kernel := func() int { return socketBytes(t, g.Addrs()[0], netip.MustParseAddrPort(upstream)) }
	held, since := 0, time.Now()
	require.Eventually(t, func() bool {
		if n := kernel(); n != held {
			held, since = n, time.Now()
		}
		return time.Since(since) > 300*time.Millisecond
	}, settled, 10*time.Millisecond, "the senders are not held up")

	process := processBytes() - before
	t.Logf("each: %d bytes in the kernel, %d in the process", held/clients, process/clients)
	assert.EqualValues(t, clients, report().ConnectionsActive)
	assert.Greater(t, held, clients*64<<10, "the sockets were not found")
	assert.Less(t, held+process, clients*most)
	ps := g.server(0).(*tcpServer).pipes
	assert.EqualValues(t, ps.made.Load(), len(ps.free), "pipes are held by those that are stuck")
	assert.Positive(t, ps.made.Load())
}

// processBytes is what the heap and the stacks of this process hold.
func processBytes() int {
	runtime.GC()
	runtime.GC() // for what a sync.Pool had kept from the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}

// socketBytes is what the kernel holds for the connections of a listener of
// this process and for those to its upstream, both ways.
func socketBytes(t *testing.T, listen, upstream netip.AddrPort) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		require.NoError(t, err)
		local, err := unix.Getsockname(fd)
		if err != nil {
			continue // no socket
		}
		peer, err := unix.Getpeername(fd)
		if err == nil && (addrPortOf(local) == listen || addrPortOf(peer) == upstream) {
			n += memoryOf(t, fd)
		}
	}
	return n
}

func memoryOf(t *testing.T, fd int) int {
	t.Helper()
	var info struct{ RmemAlloc, Rcvbuf, WmemAlloc, Sndbuf, FwdAlloc, WmemQueued, Optmem, Backlog, Drops uint32 }
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	require.Zero(t, errno, fmt.Sprint(errno))
	return int(info.RmemAlloc + max(info.WmemQueued, info.WmemAlloc) + info.FwdAlloc + info.Backlog)
}
