package netx

import (
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A socketDrops counts what the kernel drops at a listening socket. Paths that
// take the socket over from each other share it, so that each drop is counted by
// one of them.
type socketDrops struct {
	mu    sync.Mutex    // guards what follows
	fd    int           // -1 between two paths, and at the end
	count *atomic.Int64 // of the path that has the socket, or had it last
	seen  uint32        // what the kernel had counted; it wraps around
}

func newSocketDrops(fd int, count *atomic.Int64) *socketDrops {
	return &socketDrops{fd: fd, count: count}
}

// read counts what has been dropped since the last time.
func (d *socketDrops) read() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.update()
}

// pass gives the socket to a path that serves from here on. What was dropped up
// to here, by the filter of the path before it too, is counted by that one.
func (d *socketDrops) pass(fd int, count *atomic.Int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fd = fd
	d.update()
	d.count = count
}

// leave is for a path that is about to close its descriptor.
func (d *socketDrops) leave(fd int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fd == fd {
		d.update()
		d.fd = -1
	}
}

// update wants mu.
func (d *socketDrops) update() {
	if d.fd == -1 {
		return
	}
	if now, err := droppedAt(d.fd); err == nil {
		d.advance(now)
	}
}

func (d *socketDrops) advance(now uint32) {
	d.count.Add(int64(now - d.seen))
	d.seen = now
}

// droppedAt is how many datagrams the kernel has dropped at a socket, modulo
// 2^32: for want of room, for a wrong checksum, and what the socket's filter
// drops. Kernels before 4.12 do not say.
func droppedAt(fd int) (uint32, error) {
	const drops = 8 // SK_MEMINFO_DROPS
	var info [drops + 1]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := syscall.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0, os.NewSyscallError("getsockopt", errno)
	}
	return info[drops], nil
}
