package proxyproto

import (
	"bytes"
	"net/netip"
	"strconv"
	"strings"
)

func parseV1(b []byte) (h Header, n int, err error) {
	end := bytes.Index(b[:min(len(b), MaxSizeV1)], []byte("\r\n"))
	switch {
	case end < 0 && len(b) < MaxSizeV1:
		return h, 0, ErrIncomplete
	case end < 0:
		return h, 0, ErrTooLong
	}
	n = end + 2
	fields := strings.Split(string(b[len(signatureV1):end]), " ")
	if fields[0] == "UNKNOWN" { // whatever follows
		return h, n, nil
	}
	if len(fields) != 5 {
		return h, 0, ErrMalformed
	}
	var ok, ok2 bool
	h.Source, ok = endpointV1(fields[0], fields[1], fields[3])
	h.Destination, ok2 = endpointV1(fields[0], fields[2], fields[4])
	if !ok || !ok2 {
		return Header{}, 0, ErrMalformed
	}
	return h, n, nil
}

// endpointV1 takes what the specification allows, so no zone and no leading zero,
// and one thing more: nginx names its own IPv4 address in a line of TCP6 where it
// reaches a server over IPv4 for a client of IPv6.
func endpointV1(family, addr, port string) (netip.AddrPort, bool) {
	a, err := netip.ParseAddr(addr)
	n, err2 := strconv.ParseUint(port, 10, 16)
	switch {
	case err != nil || err2 != nil || a.Zone() != "" || strconv.FormatUint(n, 10) != port:
		return netip.AddrPort{}, false
	case family == "TCP4" && a.Is4(), family == "TCP6":
		return netip.AddrPortFrom(a.Unmap(), uint16(n)), true
	}
	return netip.AddrPort{}, false
}

// AppendV1 appends the line of a TCP connection to b. Where one of the addresses
// is of IPv6 the other one is written as a mapped one.
func (h Header) AppendV1(b []byte) []byte {
	b = append(b, signatureV1...)
	src, dst, is4 := h.addrs()
	family := "TCP6 "
	if is4 {
		family = "TCP4 "
	}
	b = append(b, family...)
	b = append(src.AppendTo(b), ' ')
	b = append(dst.AppendTo(b), ' ')
	b = append(strconv.AppendUint(b, uint64(h.Source.Port()), 10), ' ')
	b = strconv.AppendUint(b, uint64(h.Destination.Port()), 10)
	return append(b, "\r\n"...)
}

// addrs are the addresses without their zones, of one family.
func (h Header) addrs() (src, dst netip.Addr, is4 bool) {
	src, dst = h.Source.Addr().Unmap().WithZone(""), h.Destination.Addr().Unmap().WithZone("")
	if src.Is4() && dst.Is4() {
		return src, dst, true
	}
	return netip.AddrFrom16(src.As16()), netip.AddrFrom16(dst.As16()), false
}
