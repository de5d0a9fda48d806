package pcap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
)

// The types of the pcapng blocks that are read; the others are passed over.
const (
	blockSection   = 0x0a0d0d0a
	blockInterface = 1
	blockPacket    = 2 // obsolete
	blockSimple    = 3
	blockEnhanced  = 6
)

// byteOrderMagic is how a section says in which order its bytes are.
const byteOrderMagic = 0x1a2b3c4d

// maxInterfaces bounds what a damaged file can cost.
const maxInterfaces = 1 << 16

// blocks is the format of pcapng: sections, each with interfaces and packets.
type blocks struct{ interfaces []device }

// A device is an interface that packets were captured on.
type device struct {
	link      LinkType
	snap      uint32 // the most that was kept of a packet; 0 = all
	perSecond uint64 // units of a stamp
	shift     int64  // seconds to add to a stamp
}

// A block is what is left to read of one, its second length included.
type block struct {
	kind   uint32
	length uint32
	left   int64
}

func (f *blocks) next(r *Reader) (Packet, error) {
	for {
		r.start = r.offset
		b, err := f.begin(r)
		if err != nil {
			return Packet{}, err
		}
		var p Packet
		isPacket := false
		switch b.kind {
		case blockSection:
			err = f.section(r, &b)
		case blockInterface:
			err = f.describe(r, &b)
		case blockEnhanced, blockPacket:
			isPacket = true
			p, err = f.packet(r, &b)
		case blockSimple:
			isPacket = true
			p, err = f.simple(r, &b)
		}
		if err == nil {
			err = r.end(&b)
		}
		if err != nil || isPacket {
			return p, err
		}
	}
}

// begin reads the type and the length of a block, and of a section the order of
// its bytes first.
func (f *blocks) begin(r *Reader) (b block, err error) {
	head := r.head[:8]
	if err := r.fill(head, true); err != nil {
		return b, err
	}
	used := int64(8)
	if binary.LittleEndian.Uint32(head) == blockSection {
		if err := r.fill(r.head[8:12], false); err != nil {
			return b, err
		}
		switch uint32(byteOrderMagic) {
		case binary.LittleEndian.Uint32(r.head[8:]):
			r.order = binary.LittleEndian
		case binary.BigEndian.Uint32(r.head[8:]):
			r.order = binary.BigEndian
		default:
			return b, errors.New("damaged: a section without its byte order")
		}
		used = 12
	}
	if r.order == nil {
		return b, errors.New("damaged: no section begins here")
	}
	b.kind, b.length = r.order.Uint32(head), r.order.Uint32(head[4:])
	b.left = int64(b.length) - used
	if b.length%4 != 0 || b.left < 4 {
		return b, fmt.Errorf("damaged: a block of %d bytes", b.length)
	}
	return b, nil
}

// want reads n bytes that the block must have before its second length.
func (r *Reader) want(b *block, n int) ([]byte, error) {
	head := r.head[:n]
	if b.left < int64(n)+4 {
		return head, fmt.Errorf("damaged: block type %d with %d bytes is too short", b.kind, b.length)
	}
	b.left -= int64(n)
	return head, r.fill(head, false)
}

// end passes over the rest of the block and compares its two lengths.
func (r *Reader) end(b *block) error {
	if err := r.skip(b.left - 4); err != nil {
		return err
	}
	if err := r.fill(r.head[:4], false); err != nil {
		return err
	}
	if again := r.order.Uint32(r.head[:]); again != b.length {
		return fmt.Errorf("damaged: a block of %d bytes ends as one of %d", b.length, again)
	}
	return nil
}

func (f *blocks) section(r *Reader, b *block) error {
	head, err := r.want(b, 12)
	if err != nil {
		return err
	}
	if major := r.order.Uint16(head); major != 1 {
		return fmt.Errorf("pcapng version %d, not 1", major)
	}
	f.interfaces = f.interfaces[:0]
	return nil
}

// The options of an interface that are read.
const (
	optionEnd        = 0
	optionResolution = 9
	optionShift      = 14
)

func (f *blocks) describe(r *Reader, b *block) error {
	head, err := r.want(b, 8)
	if err != nil {
		return err
	}
	if len(f.interfaces) == maxInterfaces {
		return fmt.Errorf("more than %d interfaces", maxInterfaces)
	}
	d := device{link: LinkType(r.order.Uint16(head)), snap: r.order.Uint32(head[4:]), perSecond: 1e6}
	for b.left >= 8 {
		if head, err = r.want(b, 4); err != nil {
			return err
		}
		code, length := r.order.Uint16(head), int64(r.order.Uint16(head[2:]))
		padded := (length + 3) &^ 3
		switch {
		case code == optionEnd:
			f.interfaces = append(f.interfaces, d)
			return nil
		case b.left < padded+4:
			return fmt.Errorf("damaged: an option of %d bytes reaches out of its block", length)
		case code == optionResolution && length == 1:
			head, err = r.want(b, 4)
			d.perSecond = unitsOf(head[0])
			if d.perSecond == 0 {
				return fmt.Errorf("time resolution %#x is finer than what is read", head[0])
			}
		case code == optionShift && length == 8:
			head, err = r.want(b, 8)
			d.shift = int64(r.order.Uint64(head))
		default:
			b.left -= padded
			err = r.skip(padded)
		}
		if err != nil {
			return err
		}
	}
	f.interfaces = append(f.interfaces, d)
	return nil
}

// unitsOf is how many units of a stamp there are in a second, 0 where they do not
// fit: a negative power of 10, or of 2 with the highest bit set.
func unitsOf(resolution byte) uint64 {
	power := resolution & 0x7f
	if resolution >= 0x80 {
		return 1 << power // 0 from 64 on
	}
	if power > 19 {
		return 0
	}
	units := uint64(1)
	for range power {
		units *= 10
	}
	return units
}

// time is a stamp in nanoseconds since 1970, NoTime where that does not fit.
func (d *device) time(stamp uint64) int64 {
	const most = math.MaxInt64/1_000_000_000 - 1
	seconds, rest := stamp/d.perSecond, stamp%d.perSecond
	if seconds > most || d.shift > most || d.shift < -most {
		return NoTime
	}
	whole := int64(seconds) + d.shift
	if whole > most || whole < -most {
		return NoTime
	}
	hi, lo := bits.Mul64(rest, 1e9)
	nanos, _ := bits.Div64(hi, lo, d.perSecond)
	return whole*1e9 + int64(nanos)
}

func (f *blocks) device(i uint32) (*device, error) {
	if int64(i) >= int64(len(f.interfaces)) {
		return nil, fmt.Errorf("damaged: interface %d of %d", i, len(f.interfaces))
	}
	return &f.interfaces[i], nil
}

func (f *blocks) packet(r *Reader, b *block) (Packet, error) {
	head, err := r.want(b, 20)
	if err != nil {
		return Packet{}, err
	}
	number := r.order.Uint32(head)
	if b.kind == blockPacket {
		number = uint32(r.order.Uint16(head))
	}
	d, err := f.device(number)
	if err != nil {
		return Packet{}, err
	}
	stamp := uint64(r.order.Uint32(head[4:]))<<32 | uint64(r.order.Uint32(head[8:]))
	kept, wire := r.order.Uint32(head[12:]), r.order.Uint32(head[16:])
	return r.packetData(b, Packet{At: d.time(stamp), Link: d.link, Wire: int(min(wire, maxWire))}, kept)
}

// simple reads a packet that has neither a time nor an interface of its own.
func (f *blocks) simple(r *Reader, b *block) (Packet, error) {
	head, err := r.want(b, 4)
	if err != nil {
		return Packet{}, err
	}
	d, err := f.device(0)
	if err != nil {
		return Packet{}, err
	}
	wire := r.order.Uint32(head)
	kept := uint32(min(int64(wire), b.left-4))
	if d.snap != 0 {
		kept = min(kept, d.snap)
	}
	return r.packetData(b, Packet{At: NoTime, Link: d.link, Wire: int(min(wire, maxWire))}, kept)
}

func (r *Reader) packetData(b *block, p Packet, kept uint32) (_ Packet, err error) {
	if int64(kept) > b.left-4 {
		return p, fmt.Errorf("damaged: a packet of %d bytes in a block of %d", kept, b.length)
	}
	b.left -= int64(kept)
	p.Data, err = r.take(kept)
	return p, err
}
