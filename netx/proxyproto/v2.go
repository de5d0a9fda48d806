package proxyproto

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"
)

// A header of version 2 is the signature, a byte with version and command, one
// with family and transport, two with the length of what follows: the addresses
// and ports, and the TLVs (type, length, value).
const (
	fixedSize = len(signatureV2) + 4

	version2     = 2
	commandLocal = 0
	commandProxy = 1

	familyUnspec = 0
	familyINET   = 1
	familyINET6  = 2
	familyUNIX   = 3

	sizeINET  = 2*4 + 2*2
	sizeINET6 = 2*16 + 2*2
	sizeUNIX  = 2 * 108

	tlvCRC32C = 3
)

func parseV2(b []byte, t Transport) (h Header, n int, err error) {
	if len(b) < fixedSize {
		return h, 0, ErrIncomplete
	}
	command, family, transport := b[12]&15, b[13]>>4, b[13]&15
	n = fixedSize + int(binary.BigEndian.Uint16(b[14:]))
	switch {
	case b[12]>>4 != version2 || command > commandProxy:
		return h, 0, ErrMalformed
	case n > MaxSize:
		return h, 0, ErrTooLong
	case len(b) < n:
		return h, 0, ErrIncomplete
	case command == commandLocal: // the rest has no meaning then
		return h, n, nil
	case family > familyUNIX || transport > uint8(Datagram):
		return h, 0, ErrMalformed
	case family == familyUnspec:
		return h, n, nil
	}
	addrs := fixedSize + [...]int{0, sizeINET, sizeINET6, sizeUNIX}[family]
	if err := checkTLVs(b[:n], addrs); err != nil {
		return h, 0, err
	}
	switch {
	case family == familyUNIX || transport == 0:
		return h, n, nil
	case transport != uint8(t):
		return h, 0, ErrTransport
	case family == familyINET:
		h.Source = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[16:])), binary.BigEndian.Uint16(b[24:]))
		h.Destination = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[20:])), binary.BigEndian.Uint16(b[26:]))
	default:
		h.Source = netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[16:])).Unmap(), binary.BigEndian.Uint16(b[48:]))
		h.Destination = netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[32:])).Unmap(), binary.BigEndian.Uint16(b[50:]))
	}
	return h, n, nil
}

// checkTLVs checks that what follows the addresses of a header fills it exactly,
// and the checksum, where there is one.
func checkTLVs(header []byte, at int) error {
	if at > len(header) {
		return ErrMalformed
	}
	for at < len(header) {
		if len(header)-at < 3 {
			return ErrMalformed
		}
		kind, size := header[at], int(binary.BigEndian.Uint16(header[at+1:]))
		at += 3
		switch {
		case size > len(header)-at, kind == tlvCRC32C && size != crc32.Size:
			return ErrMalformed
		case kind == tlvCRC32C && binary.BigEndian.Uint32(header[at:]) != checksum(header, at):
			return ErrChecksum
		}
		at += size
	}
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is that of a header whose own one, at a place in it, counts as 0.
func checksum(header []byte, at int) uint32 {
	sum := crc32.Update(0, castagnoli, header[:at])
	sum = crc32.Update(sum, castagnoli, make([]byte, crc32.Size))
	return crc32.Update(sum, castagnoli, header[at+crc32.Size:])
}

// AppendV2 appends the header, without TLVs, to b. Where one of the addresses is
// of IPv6 the other one is written as a mapped one.
func (h Header) AppendV2(b []byte, t Transport) []byte {
	src, dst, is4 := h.addrs()
	b = append(b, signatureV2...)
	if is4 {
		src, dst := src.As4(), dst.As4()
		b = append(b, version2<<4|commandProxy, familyINET<<4|byte(t), 0, sizeINET)
		b = append(append(b, src[:]...), dst[:]...)
	} else {
		src, dst := src.As16(), dst.As16()
		b = append(b, version2<<4|commandProxy, familyINET6<<4|byte(t), 0, sizeINET6)
		b = append(append(b, src[:]...), dst[:]...)
	}
	b = binary.BigEndian.AppendUint16(b, h.Source.Port())
	return binary.BigEndian.AppendUint16(b, h.Destination.Port())
}

// SizeV2 is how long the header is that AppendV2 writes.
func (h Header) SizeV2() int {
	if _, _, is4 := h.addrs(); is4 {
		return fixedSize + sizeINET
	}
	return fixedSize + sizeINET6
}
