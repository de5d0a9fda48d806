// Package proxyproto reads and writes the headers of the PROXY protocol, by which
// a proxy tells the server behind it who the client is: version 1, a line of
// text, and version 2, which is binary (haproxy.org, proxy-protocol.txt).
//
// It is pure: bytes in, addresses out. Who may send a header, and when one has to
// come, is package netx's to say.
package proxyproto

import (
	"errors"
	"net/netip"
)

// Transport is what the client speaks. The values are those of version 2.
type Transport uint8

// The transports.
const (
	Stream   Transport = 1 // TCP
	Datagram Transport = 2 // UDP
)

// Limits of a header in bytes.
const (
	// MaxSize is the longest header that Parse takes. Version 2 could go up to
	// 65551 with what it may append for the server; none is known to come near.
	MaxSize = 4096
	// MaxSizeV1 is the longest line of version 1, its end included.
	MaxSizeV1 = 107
	// MaxSizeWritten is the longest header that AppendV1 and AppendV2 write.
	MaxSizeWritten = MaxSizeV1
	// SignatureSize is how many bytes Begins needs at most.
	SignatureSize = len(signatureV2)
)

const (
	signatureV1 = "PROXY "
	signatureV2 = "\r\n\r\n\x00\r\nQUIT\n"
)

// What is wrong with a header.
var (
	// ErrIncomplete: the bytes are the beginning of a header.
	ErrIncomplete = errors.New("proxyproto: the header is not complete")
	ErrMissing    = errors.New("proxyproto: no header")
	ErrTooLong    = errors.New("proxyproto: the header is too long")
	ErrMalformed  = errors.New("proxyproto: the header is malformed")
	ErrChecksum   = errors.New("proxyproto: the checksum of the header is wrong")
	// ErrTransport: the header speaks of TCP where there is UDP, or the reverse.
	ErrTransport = errors.New("proxyproto: the header is for another transport")
)

// A Header says who the client is and where it has sent to. Both are zero where
// the sender speaks for itself, as in a health check, or names no IP address: in
// the command LOCAL, the families UNSPEC and UNIX of version 2, and UNKNOWN of
// version 1.
type Header struct {
	Source, Destination netip.AddrPort // of a parsed header: unmapped
}

// Parse reads the header that b begins with, and says how long it is. Version 1
// is for streams alone. The error is ErrIncomplete where more bytes may complete
// the header, and any other where they cannot. It allocates nothing for version 2.
func Parse(b []byte, t Transport) (h Header, n int, err error) {
	switch {
	case like(b, signatureV2):
		return parseV2(b, t)
	case t == Stream && like(b, signatureV1):
		return parseV1(b)
	}
	return Header{}, 0, ErrMissing
}

// Begins says whether b begins like a header of either version, and whether it
// takes more bytes to tell.
func Begins(b []byte) (header, undecided bool) {
	for _, signature := range []string{signatureV1, signatureV2} {
		if like(b, signature) {
			return len(b) >= len(signature), len(b) < len(signature)
		}
	}
	return false, false
}

// like says whether b and the signature are the same as far as both go.
func like(b []byte, signature string) bool {
	n := min(len(b), len(signature))
	return string(b[:n]) == signature[:n]
}
