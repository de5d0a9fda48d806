package netx

import (
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A pktinfo is the control message with the address that a datagram was sent
// to, or is to be sent from: an Inet4Pktinfo or an Inet6Pktinfo.
type pktinfo struct {
	unix.Cmsghdr
	data [unix.SizeofInet6Pktinfo]byte
}

// askPktinfo makes the kernel say where to each datagram was sent.
func askPktinfo(fd int, listen netip.Addr) error {
	level, opt := unix.IPPROTO_IP, unix.IP_PKTINFO
	if listen.Is6() {
		level, opt = unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO
	}
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, level, opt, 1))
}

// local is the address that an answer leaves from; none where the kernel did
// not say, or where it was one of many hosts that the datagram was sent to.
func (p *pktinfo) local(controlLen int, z zoneNames) netip.Addr {
	var a netip.Addr
	switch {
	case controlLen < unix.SizeofCmsghdr:
		return netip.Addr{}
	case p.Level == unix.IPPROTO_IP && p.Type == unix.IP_PKTINFO:
		// The kernel has put an address of the host here where the datagram
		// went to a broadcast address.
		a = netip.AddrFrom4((*unix.Inet4Pktinfo)(unsafe.Pointer(&p.data)).Spec_dst)
	case p.Level == unix.IPPROTO_IPV6 && p.Type == unix.IPV6_PKTINFO:
		info := (*unix.Inet6Pktinfo)(unsafe.Pointer(&p.data))
		a = netip.AddrFrom16(info.Addr)
		if a.IsLinkLocalUnicast() { // which is no address without its interface
			a = a.WithZone(z.name(info.Ifindex))
		}
	}
	if a.IsUnspecified() || a.IsMulticast() {
		return netip.Addr{}
	}
	return a
}

// set makes it the message that lets a datagram leave from an address, and says
// how long it is.
func (p *pktinfo) set(local netip.Addr) int {
	switch {
	case local.Is4():
		p.Level, p.Type = unix.IPPROTO_IP, unix.IP_PKTINFO
		(*unix.Inet4Pktinfo)(unsafe.Pointer(&p.data)).Spec_dst = local.As4()
		p.SetLen(unix.CmsgLen(unix.SizeofInet4Pktinfo))
		return unix.CmsgSpace(unix.SizeofInet4Pktinfo)
	case local.Is6():
		p.Level, p.Type = unix.IPPROTO_IPV6, unix.IPV6_PKTINFO
		*(*unix.Inet6Pktinfo)(unsafe.Pointer(&p.data)) = unix.Inet6Pktinfo{
			Addr: local.As16(), Ifindex: zoneID(local.Zone()),
		}
		p.SetLen(unix.CmsgLen(unix.SizeofInet6Pktinfo))
		return unix.CmsgSpace(unix.SizeofInet6Pktinfo)
	}
	return 0
}

// A destination is where the answers of a session go to, and where they come
// from, in the form that the kernel wants.
type destination struct {
	addr    unix.RawSockaddrInet6 // or a RawSockaddrInet4 in the same place
	addrLen uint32
	info    pktinfo
	infoLen int // 0 where the socket's own address will do
}

func (d *destination) set(f flow) {
	a, port := f.peer.Addr(), ntohs(f.peer.Port())
	if a.Is4() {
		*(*unix.RawSockaddrInet4)(unsafe.Pointer(&d.addr)) = unix.RawSockaddrInet4{
			Family: unix.AF_INET, Port: port, Addr: a.As4(),
		}
		d.addrLen = unix.SizeofSockaddrInet4
	} else {
		d.addr = unix.RawSockaddrInet6{
			Family: unix.AF_INET6, Port: port, Addr: a.As16(), Scope_id: zoneID(a.Zone()),
		}
		d.addrLen = unix.SizeofSockaddrInet6
	}
	d.infoLen = d.info.set(f.local)
}
