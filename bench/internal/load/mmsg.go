package load

import (
	"encoding/binary"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// batch is how many datagrams go through one system call.
const batch = 64

// mmsghdr is struct mmsghdr, which x/sys does not have.
type mmsghdr struct {
	unix.Msghdr
	n uint32 // bytes received
}

const controlLen = unix.SizeofCmsghdr + (unix.SizeofInet4Pktinfo+7)&^7

// messages is what sendmmsg and recvmmsg work on. It points into itself, so it
// stays where it is.
type messages struct {
	headers [batch]mmsghdr
	vectors [batch]unix.Iovec
	names   [batch]unix.RawSockaddrInet4
	control [batch][controlLen]byte
	data    [batch][maxPayload]byte
}

// prepare fills in what is the same for every datagram to a target.
func (m *messages) prepare(payload int, target netip.AddrPort) {
	m.receivable()
	for i := range m.headers {
		m.vectors[i].SetLen(payload)
		m.names[i].Family = unix.AF_INET
		m.names[i].Addr = target.Addr().As4()
		binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&m.names[i].Port))[:], target.Port())
		c := (*unix.Cmsghdr)(unsafe.Pointer(&m.control[i]))
		c.Level, c.Type = unix.IPPROTO_IP, unix.IP_PKTINFO
		c.SetLen(unix.CmsgLen(unix.SizeofInet4Pktinfo))
		m.headers[i].Control = &m.control[i][0]
		m.headers[i].SetControllen(controlLen)
	}
}

// receivable makes room in every message.
func (m *messages) receivable() {
	for i := range m.headers {
		m.vectors[i].Base = &m.data[i][0]
		m.vectors[i].SetLen(maxPayload)
		h := &m.headers[i]
		h.Name, h.Namelen = (*byte)(unsafe.Pointer(&m.names[i])), unix.SizeofSockaddrInet4
		h.Iov = &m.vectors[i]
		h.SetIovlen(1)
	}
}

// from sets the source address of a datagram.
func (m *messages) from(i int, source netip.Addr) {
	info := (*unix.Inet4Pktinfo)(unsafe.Pointer(&m.control[i][unix.SizeofCmsghdr]))
	info.Spec_dst = source.As4()
}

// answer gives the first n messages back to whoever sent them.
func (m *messages) answer(n int) {
	for i := range n {
		m.vectors[i].SetLen(int(m.headers[i].n))
	}
}

// send returns how many of the first n the kernel took, which may be none.
func (m *messages) send(fd, n int) (int, error) { return m.call(unix.SYS_SENDMMSG, fd, n) }

// receive returns how many there were, which may be none.
func (m *messages) receive(fd int) (int, error) { return m.call(unix.SYS_RECVMMSG, fd, batch) }

func (m *messages) call(trap uintptr, fd, n int) (int, error) {
	got, _, errno := unix.Syscall6(trap, uintptr(fd), uintptr(unsafe.Pointer(&m.headers)), uintptr(n), unix.MSG_DONTWAIT, 0, 0)
	switch errno {
	case 0:
		return int(got), nil
	case unix.EAGAIN, unix.EINTR, unix.ENOBUFS:
		return 0, nil
	default:
		return 0, errno
	}
}

// wait returns when one of the sockets can be read, or after a time.
func wait(fds []unix.PollFd, d time.Duration) error {
	timeout := unix.NsecToTimespec(int64(max(d, 0)))
	if _, err := unix.Ppoll(fds, &timeout, nil); err != nil && err != unix.EINTR {
		return err
	}
	return nil
}
