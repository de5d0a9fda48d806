package netx

import (
	"net"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mmsghdr is the kernel's struct mmsghdr. What it points to is of Go types, so
// the garbage collector sees it; the kernel keeps none of it after the call.
type mmsghdr struct {
	unix.Msghdr
	n uint32 // bytes received or sent
}

// slotSize is the room for a datagram, and a little more: at a distance of a
// power of two the beginnings of all slots would fall into the same few lines
// of the processor's caches.
const slotSize = readBuffer + 17*64

// An inbox receives datagrams, many with one system call. It takes 4 MiB of
// address space, of which small datagrams touch a page each.
type inbox struct {
	hdrs    [batchSize]mmsghdr
	iovs    [batchSize]unix.Iovec
	names   [batchSize]unix.RawSockaddrInet6
	infos   [batchSize]pktinfo
	buffers []byte
}

func newInbox() *inbox {
	b := &inbox{buffers: make([]byte, batchSize*slotSize)}
	for i := range b.hdrs {
		b.iovs[i].Base = &b.buffers[i*slotSize]
		b.iovs[i].SetLen(readBuffer)
		h := &b.hdrs[i]
		h.Iov = &b.iovs[i]
		h.SetIovlen(1)
		h.Name = (*byte)(unsafe.Pointer(&b.names[i]))
		h.Control = (*byte)(unsafe.Pointer(&b.infos[i]))
	}
	return b
}

// receive fills slots from..to as far as there are datagrams, and says how many.
func (b *inbox) receive(fd, from, to int) (int, error) {
	for i := from; i < to; i++ { // the kernel has written the real lengths here
		b.hdrs[i].Namelen = unix.SizeofSockaddrInet6
		b.hdrs[i].SetControllen(int(unsafe.Sizeof(pktinfo{})))
	}
	// MSG_TRUNC gives the length of a datagram that has been cut.
	return mmsg(unix.SYS_RECVMMSG, fd, b.hdrs[from:to], unix.MSG_DONTWAIT|unix.MSG_TRUNC)
}

// payload is what slot i holds, and how long the datagram was.
func (b *inbox) payload(i int) (p []byte, size int) {
	size = int(b.hdrs[i].n)
	at := i * slotSize
	return b.buffers[at : at+min(size, readBuffer)], size
}

// An outbox collects datagrams and sends them with one system call.
type outbox struct {
	hdrs [batchSize]mmsghdr
	iovs [batchSize][2]unix.Iovec
	n    int
}

// add puts a datagram behind the others: a header, if there is one, and p. It goes
// where the socket is connected to if to is nil.
func (b *outbox) add(header, p []byte, to *destination) {
	h, parts := &b.hdrs[b.n], b.iovs[b.n][:]
	if len(header) == 0 {
		parts = parts[1:]
	} else {
		parts[0].Base = unsafe.SliceData(header)
		parts[0].SetLen(len(header))
	}
	payload := &parts[len(parts)-1]
	payload.Base = unsafe.SliceData(p)
	payload.SetLen(len(p))
	*h = mmsghdr{}
	h.Iov = &parts[0]
	h.SetIovlen(len(parts))
	if to != nil {
		h.Name = (*byte)(unsafe.Pointer(&to.addr))
		h.Namelen = to.addrLen
		if to.infoLen > 0 {
			h.Control = (*byte)(unsafe.Pointer(&to.info))
			h.SetControllen(to.infoLen)
		}
	}
	b.n++
}

// flush sends all of it, each datagram once, and reports those that could not
// be sent at once. It returns what was sent.
func (b *outbox) flush(fd int, failed func(error)) (datagrams, bytes int) {
	for at := 0; at < b.n; {
		n, err := mmsg(unix.SYS_SENDMMSG, fd, b.hdrs[at:b.n], unix.MSG_DONTWAIT)
		for i := range n {
			bytes += int(b.hdrs[at+i].n)
		}
		datagrams += n
		if err != nil {
			failed(err)
			n = 1
		}
		at += n
	}
	b.n = 0
	return datagrams, bytes
}

// mmsg is recvmmsg or sendmmsg. An error is about the first message; the kernel
// keeps one about a later message to itself.
//
// As it never waits it is a raw system call: the others tell the scheduler,
// which on a single core gives the core away where one takes 20 µs.
func mmsg(call uintptr, fd int, hdrs []mmsghdr, flags int) (int, error) {
	for {
		n, _, errno := syscall.RawSyscall6(call, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(hdrs))),
			uintptr(len(hdrs)), uintptr(flags), 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

// zoneNames finds the names of interfaces, which only link-local addresses
// have, without asking the kernel for each datagram.
type zoneNames map[uint32]string

func (z zoneNames) name(index uint32) string {
	name, ok := z[index]
	if !ok {
		if ifi, err := net.InterfaceByIndex(int(index)); err == nil {
			name = ifi.Name
			z[index] = name
		}
	}
	return name
}

// addrPort reads what the kernel has written.
func (z zoneNames) addrPort(sa *unix.RawSockaddrInet6) netip.AddrPort {
	// The port is at the same place in both families, in network order.
	port := ntohs(sa.Port)
	if sa.Family == unix.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(sa)).Addr), port)
	}
	a := netip.AddrFrom16(sa.Addr)
	if sa.Scope_id != 0 {
		a = a.WithZone(z.name(sa.Scope_id))
	}
	return netip.AddrPortFrom(a.Unmap(), port)
}

// ntohs is htons as well.
func ntohs(n uint16) uint16 {
	b := (*[2]byte)(unsafe.Pointer(&n))
	return uint16(b[0])<<8 | uint16(b[1])
}
