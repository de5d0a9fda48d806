package pcap

import (
	"fmt"
)

// The magic numbers of pcap files, in the byte order of whoever wrote them.
const (
	magicMicro = 0xa1b2c3d4
	magicNano  = 0xa1b23c4d
)

// records is the format of pcap: a head, and records of one link type.
type records struct {
	link LinkType
	unit int64 // nanoseconds of the finer part of a stamp
}

func (r *Reader) openRecords(unit int64) error {
	head := r.head[:24]
	if err := r.fill(head, false); err != nil {
		return err
	}
	if major := r.order.Uint16(head[4:]); major != 2 {
		return fmt.Errorf("pcap version %d, not 2", major)
	}
	// The upper half of the last word is about frame check sequences.
	link := LinkType(r.order.Uint32(head[20:]))
	if !link.Known() {
		return fmt.Errorf("link type %v is none of %s", link, KnownLinkTypes)
	}
	r.format = &records{link, unit}
	return nil
}

func (f *records) next(r *Reader) (Packet, error) {
	head := r.head[:16]
	if err := r.fill(head, true); err != nil {
		return Packet{}, err
	}
	p := Packet{
		At:   int64(r.order.Uint32(head))*1e9 + int64(r.order.Uint32(head[4:]))*f.unit,
		Link: f.link,
		Wire: int(min(r.order.Uint32(head[12:]), maxWire)),
	}
	var err error
	p.Data, err = r.take(r.order.Uint32(head[8:]))
	return p, err
}

// maxWire keeps the length of a packet in an int everywhere.
const maxWire = 1<<31 - 1

// A LinkType says what a packet begins with, by its number in the registry of
// the pcap formats.
type LinkType uint16

// The link types that are known here.
const (
	Null     LinkType = 0   // BSD loopback
	Ethernet LinkType = 1   // with VLAN tags or without
	RawBSD   LinkType = 12  // IP
	RawOther LinkType = 14  // IP
	Raw      LinkType = 101 // IP
	Loop     LinkType = 108 // OpenBSD loopback
	SLL      LinkType = 113 // Linux cooked
	IPv4     LinkType = 228
	IPv6     LinkType = 229
	SLL2     LinkType = 276 // Linux cooked, version 2
)

// KnownLinkTypes is for messages.
const KnownLinkTypes = "Ethernet, Linux cooked (SLL, SLL2), raw IP, loopback"

// Known says whether it is one of those above.
func (l LinkType) Known() bool {
	switch l {
	case Null, Ethernet, RawBSD, RawOther, Raw, Loop, SLL, IPv4, IPv6, SLL2:
		return true
	}
	return false
}
