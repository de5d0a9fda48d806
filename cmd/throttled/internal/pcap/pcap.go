// Package pcap reads captures of network traffic packet by packet: pcap files,
// with stamps of micro- or nanoseconds in either byte order, and pcapng files,
// each of them also packed with gzip. It knows how packets are kept and nothing
// of what is in them.
//
// The formats are those of draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng.
// No length that a file names is believed before its bytes have been read, and
// no packet is longer than maxPacket, so that a damaged file ends in an error and
// costs no memory.
package pcap

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// maxPacket is the longest packet that tcpdump and Wireshark write and read.
const maxPacket = 256 << 10

// NoTime is the time of a packet that was kept without one.
const NoTime = math.MinInt64

// ErrCut is matched by the error for a capture that ends within a packet.
var ErrCut = errors.New("the capture ends in the middle of it")

// A Packet is one packet of a capture.
type Packet struct {
	At   int64    // nanoseconds since 1970, UTC; NoTime where there is none
	Link LinkType // what Data begins with
	Wire int      // its length on the wire
	Data []byte   // what was kept of it; valid until the next packet is read
}

// An Error says where a capture cannot be read any further.
type Error struct {
	Packet int64 // number of the packet that could not be read, from 1 on
	Offset int64 // in bytes, where that begins; of the unpacked capture
	Err    error
}

func (e *Error) Error() string {
	return fmt.Sprintf("packet %d at offset %d: %v", e.Packet, e.Offset, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// A Reader reads the packets of a capture. It is for one goroutine at a time.
type Reader struct {
	in     *bufio.Reader
	order  binary.ByteOrder
	format format
	offset int64 // of the next byte
	start  int64 // where the packet or block begins that is being read
	read   int64 // packets
	head   [28]byte
	data   []byte
	err    error // what Next has ended with
}

// A format finds the next packet in the file.
type format interface{ next(*Reader) (Packet, error) }

// NewReader reads as far as it takes to know what r is.
func NewReader(r io.Reader) (*Reader, error) {
	rd := &Reader{in: bufio.NewReaderSize(r, 1<<16)}
	if magic, _ := rd.in.Peek(2); string(magic) == "\x1f\x8b" {
		unpacked, err := gzip.NewReader(rd.in)
		if err != nil {
			return nil, err
		}
		rd.in = bufio.NewReaderSize(unpacked, 1<<16)
	}
	err := rd.open()
	if err == io.EOF || errors.Is(err, ErrCut) {
		err = errors.New("too short for a capture")
	}
	return rd, err
}

func (r *Reader) open() error {
	magic, err := r.in.Peek(4)
	if err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(magic) == blockSection {
		r.format = &blocks{}
		return nil
	}
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		switch order.Uint32(magic) {
		case magicMicro:
			r.order = order
			return r.openRecords(1000)
		case magicNano:
			r.order = order
			return r.openRecords(1)
		}
	}
	return errors.New("neither a pcap nor a pcapng file")
}

// Next returns the next packet, or io.EOF after the last one; any other error is
// an *Error. After an error it returns the same again.
func (r *Reader) Next() (Packet, error) {
	if r.err != nil {
		return Packet{}, r.err
	}
	r.start = r.offset
	p, err := r.format.next(r)
	switch {
	case err == nil:
		r.read++
	case err == io.EOF:
		r.err = err
	default:
		r.err = &Error{r.read + 1, r.start, err}
	}
	return p, r.err
}

// fill reads all of b. io.EOF is for the end of a file where there may be one.
func (r *Reader) fill(b []byte, mayEnd bool) error {
	n, err := io.ReadFull(r.in, b)
	r.offset += int64(n)
	if err == io.EOF && mayEnd {
		return io.EOF
	}
	return cut(err)
}

// skip passes over n bytes.
func (r *Reader) skip(n int64) error {
	skipped, err := io.CopyN(io.Discard, r.in, n)
	r.offset += skipped
	return cut(err)
}

// take reads n bytes into the buffer of packets.
func (r *Reader) take(n uint32) ([]byte, error) {
	if n > maxPacket {
		return nil, fmt.Errorf("damaged: %d bytes in one packet", n)
	}
	if uint32(cap(r.data)) < n {
		r.data = make([]byte, max(n, 2048))
	}
	r.data = r.data[:n]
	return r.data, r.fill(r.data, false)
}

func cut(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return ErrCut
	}
	return err
}
