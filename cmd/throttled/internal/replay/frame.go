package replay

import (
	"encoding/binary"
	"net/netip"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/pcap"
	"github.com/seed-ee4278a0/throttled/netx"
	"github.com/seed-ee4278a0/throttled/netx/proxyproto"
)

// A kind says what a captured packet is, as far as its headers tell.
type kind uint8

const (
	isSegment  kind = iota // of UDP or TCP, with its ports
	isFragment             // not the first one: it has no ports
	isOther                // neither UDP nor TCP
	isNotIP
	isBroken  // headers cut short or that contradict each other
	isUnknown // of a link type that is not read
)

// A segment is a UDP datagram or a TCP segment.
type segment struct {
	protocol netx.Protocol
	src, dst netip.AddrPort
	bytes    int    // of payload, as the headers say, whatever was kept of it
	payload  []byte // what was kept, which is good until the next packet
	first    bool   // the first fragment of several
	outgoing bool   // sent by the host that it was captured on
	flags    byte   // of TCP
	seq      uint32

	// Of a datagram, see unwrap.
	header   proxyproto.Header // who it is from, and where to
	heard    bool              // src is a proxy
	headless bool              // and has sent no header
	forged   bool              // src is none and has sent one
	passed   bool              // a dry run has let it pass, and counted that
}

// The flags of a TCP header.
const (
	flagFIN = 1
	flagSYN = 2
	flagRST = 4
	flagACK = 16
)

// parse reads the headers of a packet.
func (s *segment) parse(p pcap.Packet) kind {
	*s = segment{}
	b, wire := p.Data, p.Wire
	strip := func(n int) bool {
		if len(b) < n {
			return false
		}
		b, wire = b[n:], wire-n
		return true
	}
	etherType := 0 // the version in the IP header says it
	whole := true
	switch p.Link {
	case pcap.RawBSD, pcap.RawOther, pcap.Raw, pcap.IPv4, pcap.IPv6:
	case pcap.Null, pcap.Loop:
		whole = strip(4)
	case pcap.Ethernet:
		if whole = strip(14); whole {
			etherType = int(binary.BigEndian.Uint16(p.Data[12:]))
		}
	case pcap.SLL:
		if whole = strip(16); whole {
			s.outgoing = binary.BigEndian.Uint16(p.Data) == packetOutgoing
			etherType = int(binary.BigEndian.Uint16(p.Data[14:]))
		}
	case pcap.SLL2:
		if whole = strip(20); whole {
			s.outgoing = p.Data[10] == packetOutgoing
			etherType = int(binary.BigEndian.Uint16(p.Data))
		}
	default:
		return isUnknown
	}
	for whole && isVLAN(etherType) {
		if whole = strip(4); whole {
			etherType = int(binary.BigEndian.Uint16(p.Data[len(p.Data)-len(b)-2:]))
		}
	}
	switch {
	case !whole:
		return isBroken
	case etherType != 0 && etherType != etherIPv4 && etherType != etherIPv6:
		return isNotIP
	}
	return s.ip(b, wire, etherType)
}

// packetOutgoing is how Linux cooked captures mark what the host itself sent.
const packetOutgoing = 4

const (
	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd
)

// isVLAN knows the tags of 802.1Q, 802.1ad (QinQ) and what was used before it.
func isVLAN(etherType int) bool {
	return etherType == 0x8100 || etherType == 0x88a8 || etherType == 0x9100 || etherType == 0x9200
}

// ip reads an IP header and what follows it. The link layer may say which IP it
// is, and how many bytes there were on the wire.
func (s *segment) ip(b []byte, wire, etherType int) kind {
	if len(b) == 0 {
		return isBroken
	}
	switch version := b[0] >> 4; {
	case version == 4 && etherType != etherIPv6:
		return s.ipv4(b, wire)
	case version == 6 && etherType != etherIPv4:
		return s.ipv6(b, wire)
	case etherType == 0:
		return isNotIP
	}
	return isBroken
}

func (s *segment) ipv4(b []byte, wire int) kind {
	if len(b) < 20 {
		return isBroken
	}
	head, total := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
	if total == 0 { // left to the network card
		total = wire
	}
	if head < 20 || total < head {
		return isBroken
	}
	fragment := binary.BigEndian.Uint16(b[6:])
	s.src = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[12:])), 0)
	s.dst = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[16:])), 0)
	if fragment&0x1fff != 0 {
		return isFragment
	}
	s.first = fragment&0x2000 != 0
	if len(b) < head {
		return isBroken
	}
	return s.transport(b[9], b[head:], total-head)
}

// The next headers of IPv6 that are passed over.
const (
	hopByHop       = 0
	routing        = 43
	fragmentHeader = 44
	authentication = 51
	destination    = 60
	mobility       = 135
	hostIdentity   = 139
	shim           = 140
)

func (s *segment) ipv6(b []byte, wire int) kind {
	if len(b) < 40 {
		return isBroken
	}
	length := int(binary.BigEndian.Uint16(b[4:]))
	if length == 0 { // longer than it can say
		length = wire - 40
	}
	next := b[6]
	s.src = netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:])).Unmap(), 0)
	s.dst = netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[24:])).Unmap(), 0)
	for b = b[40:]; ; {
		size := 0
		if len(b) >= 8 {
			size = 8 + int(b[1])*8
		}
		switch next {
		case hopByHop, routing, destination, mobility, hostIdentity, shim:
		case authentication:
			if size > 0 {
				size = 8 + int(b[1])*4
			}
		case fragmentHeader:
			if size = min(size, 8); size == 8 {
				field := binary.BigEndian.Uint16(b[2:])
				if field&^7 != 0 {
					return isFragment
				}
				s.first = field&1 != 0
			}
		default:
			return s.transport(next, b, length)
		}
		if size == 0 || len(b) < size || length < size {
			return isBroken
		}
		next, b, length = b[0], b[size:], length-size
	}
}

// The protocols that listeners have.
const (
	protocolTCP = 6
	protocolUDP = 17
)

// transport reads a UDP or TCP header. length is that of the IP payload.
func (s *segment) transport(protocol byte, b []byte, length int) kind {
	switch protocol {
	case protocolUDP:
		s.protocol = netx.UDP
		return s.udp(b, length)
	case protocolTCP:
		s.protocol = netx.TCP
		return s.tcp(b, length)
	}
	return isOther
}

func (s *segment) ports(b []byte) {
	s.src = netip.AddrPortFrom(s.src.Addr(), binary.BigEndian.Uint16(b))
	s.dst = netip.AddrPortFrom(s.dst.Addr(), binary.BigEndian.Uint16(b[2:]))
}

// udp takes the length from the UDP header, which a first fragment has for the
// whole datagram.
func (s *segment) udp(b []byte, length int) kind {
	if len(b) < 8 {
		return isBroken
	}
	s.ports(b)
	datagram := int(binary.BigEndian.Uint16(b[4:]))
	if datagram == 0 && s.dst.Addr().Is6() { // longer than it can say
		datagram = length
	}
	if datagram < 8 || datagram > length && !s.first {
		return isBroken
	}
	s.bytes = datagram - 8
	s.payload = b[8:min(datagram, len(b))]
	return isSegment
}

func (s *segment) tcp(b []byte, length int) kind {
	if len(b) < 14 {
		return isBroken
	}
	s.ports(b)
	s.seq, s.flags = binary.BigEndian.Uint32(b[4:]), b[13]
	head := int(b[12]>>4) * 4
	if head < 20 || head > length {
		return isBroken
	}
	s.bytes = length - head
	s.payload = b[min(head, len(b)):min(length, len(b))]
	return isSegment
}
