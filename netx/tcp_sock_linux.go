package netx

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// await waits until there is something to read and says how much there is. At
// the end of the stream it returns io.EOF. It reads nothing.
func await(raw syscall.RawConn) (n int, err error) {
	waitErr := raw.Read(func(fd uintptr) bool {
		n, err = unread(int(fd))
		return err != unix.EAGAIN
	})
	if waitErr != nil {
		return 0, waitErr
	}
	return n, err
}

// unread is how many bytes can be read from a socket: EAGAIN where there are
// none yet, io.EOF where there will be none.
func unread(fd int) (int, error) {
	n, err := unix.IoctlGetInt(fd, unix.SIOCINQ)
	if err != nil || n > 0 {
		return n, os.NewSyscallError("ioctl", err)
	}
	// None, or an end, or an error: only a read can tell.
	var one [1]byte
	for {
		n, _, err = unix.Recvfrom(fd, one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return 0, err
		case err != nil:
			return 0, os.NewSyscallError("recvfrom", err)
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// hasUnread says whether a read would not wait.
func hasUnread(c *net.TCPConn) bool {
	ready := false
	control(c, func(fd int) {
		_, err := unread(fd)
		ready = err != unix.EAGAIN
	})
	return ready
}

// hasGone says whether the peer has reset the connection or died; broken, that
// a read or write may have been told so already. It takes no error from the
// socket: a read would then see an end where the connection broke off.
func hasGone(c *net.TCPConn, broken bool) (gone bool) {
	control(c, func(fd int) {
		p := [1]unix.PollFd{{Fd: int32(fd)}}
		if n, err := unix.Poll(p[:], 0); err == nil && n == 1 {
			gone = p[0].Revents&unix.POLLERR != 0 || broken && p[0].Revents&unix.POLLHUP != 0
		}
	})
	return gone
}

// departed waits until the peer has left: it has reset the connection, or shut
// it down with nothing before that; asked says that there was something, and has
// been read. One that has shut its
// side down behind a request may be waiting for the answer; whether it is can
// only be known from the reset that answers a write. It reads nothing. An error
// is that of the deadline, or of a connection that was closed.
func departed(raw syscall.RawConn, asked bool) error {
	return raw.Read(func(fd uintptr) bool { return hasLeft(int(fd), asked) })
}

func hasLeft(fd int, asked bool) bool {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	switch {
	case err != nil || info.State == unix.BPF_TCP_CLOSE:
		return err == nil
	case info.State != unix.BPF_TCP_CLOSE_WAIT || asked:
		return false
	}
	n, err := unix.IoctlGetInt(fd, unix.SIOCINQ)
	return err == nil && n == 0
}

// sendState says whether the peer has yet to acknowledge something, and how
// many bytes it has acknowledged.
func sendState(c *net.TCPConn) (pending bool, acked uint64) {
	control(c, func(fd int) {
		if info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			pending = info.State != unix.BPF_TCP_CLOSE && (info.Unacked > 0 || info.Notsent_bytes > 0)
			acked = info.Bytes_acked
		}
	})
	return pending, acked
}

func control(c *net.TCPConn, f func(fd int)) {
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}

// muteClose makes the close of a connection send nothing. That takes
// CAP_NET_ADMIN. Without it a reset is sent with a time to live that ends it
// at the first router, and an error returned so that the close sends no more
// than this reset.
func muteClose(c *net.TCPConn) (err error) {
	control(c, func(fd int) {
		if err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_REPAIR, 1); err != nil {
			_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TTL, 1)
			_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, 1)
		}
	})
	return os.NewSyscallError("setsockopt", err)
}

// set must be called before the handshake, which settles how large the window
// can get.
func (b socketBuffers) set(raw syscall.RawConn) error {
	return errors.Join(setSocket(raw, unix.SO_RCVBUF, b.read), setSocket(raw, unix.SO_SNDBUF, b.write))
}

func setSocket(raw syscall.RawConn, option, value int) (err error) {
	failed := raw.Control(func(fd uintptr) {
		err = os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, option, value))
	})
	return errors.Join(failed, err)
}

func outOfDescriptors(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)
}
