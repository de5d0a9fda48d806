package proxyproto_test

import (
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/netx/proxyproto"
)

const signature = "0d0a0d0a000d0a515549540a"

func header(source, destination string) proxyproto.Header {
	return proxyproto.Header{Source: netip.MustParseAddrPort(source), Destination: netip.MustParseAddrPort(destination)}
}

// raw reads hexadecimal digits with spaces between them.
func raw(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	require.NoError(t, err)
	return b
}

var (
	itself  proxyproto.Header
	four    = header("1.2.3.4:5", "192.0.2.1:27015")
	six     = header("[2001:db8::1]:5", "[2001:db8::2]:443")
	addrs4  = "01020304 c0000201 0005 6987"
	addrs6  = "20010db8000000000000000000000001 20010db8000000000000000000000002 0005 01bb"
	unixes  = strings.Repeat("00", 216)
	noop    = "04 0002 0000"
	crcZero = "03 0004 00000000"
)

// C61: the bytes are those of the specification, for both transports.
func TestAppend(t *testing.T) {
	mapped := header("[::ffff:1.2.3.4]:5", "192.0.2.1:27015")
	mixed := header("1.2.3.4:5", "[fe80::2%eth0]:443")
	for _, c := range []struct {
		h    proxyproto.Header
		v1   string
		udp  string
		size int
	}{
		{four, "PROXY TCP4 1.2.3.4 192.0.2.1 5 27015\r\n", "21 12 000c" + addrs4, 28},
		{mapped, "PROXY TCP4 1.2.3.4 192.0.2.1 5 27015\r\n", "21 12 000c" + addrs4, 28},
		{six, "PROXY TCP6 2001:db8::1 2001:db8::2 5 443\r\n", "21 22 0024" + addrs6, 52},
		{mixed, "PROXY TCP6 ::ffff:1.2.3.4 fe80::2 5 443\r\n",
			"21 22 0024 00000000000000000000ffff01020304 fe800000000000000000000000000002 0005 01bb", 52},
	} {
		assert.Equal(t, c.v1, string(c.h.AppendV1(nil)))
		udp := raw(t, signature+c.udp)
		assert.Equal(t, udp, c.h.AppendV2(nil, proxyproto.Datagram))
		assert.Equal(t, c.size, c.h.SizeV2())
		tcp := append([]byte("before"), udp...)
		tcp[6+13]--
		assert.Equal(t, tcp, c.h.AppendV2([]byte("before"), proxyproto.Stream))
	}
}

func TestParse(t *testing.T) {
	const tcp, udp = proxyproto.Stream, proxyproto.Datagram
	v2 := func(s string) string { return string(raw(t, signature+s)) }
	for name, c := range map[string]struct {
		in   string
		as   proxyproto.Transport
		want proxyproto.Header
		err  error
	}{
		"v2 tcp4":               {v2("21 11 000c" + addrs4), tcp, four, nil},
		"v2 udp4":               {v2("21 12 000c" + addrs4), udp, four, nil},
		"v2 tcp6":               {v2("21 21 0024" + addrs6), tcp, six, nil},
		"v2 udp6":               {v2("21 22 0024" + addrs6), udp, six, nil},
		"mapped":                {v2("21 22 0024 00000000000000000000ffff01020304 00000000000000000000ffffc0000201 0005 6987"), udp, four, nil},
		"tlv":                   {v2("21 12 0016" + addrs4 + noop + noop), udp, four, nil},
		"local":                 {v2("20 00 0000"), tcp, itself, nil},
		"local, anything":       {v2("20 99 0003 ffffff"), tcp, itself, nil},
		"local with addresses":  {v2("20 11 000c" + addrs4), tcp, itself, nil},
		"unspec":                {v2("21 00 0003 ffffff"), udp, itself, nil},
		"unspec transport":      {v2("21 10 000c" + addrs4), udp, itself, nil},
		"unix":                  {v2("21 31 00d8" + unixes), tcp, itself, nil},
		"udp over tcp":          {v2("21 12 000c" + addrs4), tcp, itself, proxyproto.ErrTransport},
		"tcp over udp":          {v2("21 21 0024" + addrs6), udp, itself, proxyproto.ErrTransport},
		"version 1 in binary":   {v2("11 11 000c" + addrs4), tcp, itself, proxyproto.ErrMalformed},
		"unknown command":       {v2("22 11 000c" + addrs4), tcp, itself, proxyproto.ErrMalformed},
		"unknown family":        {v2("21 41 000c" + addrs4), tcp, itself, proxyproto.ErrMalformed},
		"unknown transport":     {v2("21 13 000c" + addrs4), tcp, itself, proxyproto.ErrMalformed},
		"no room for addresses": {v2("21 21 000c" + addrs4), tcp, itself, proxyproto.ErrMalformed},
		"half a tlv":            {v2("21 11 000e" + addrs4 + "0400"), tcp, itself, proxyproto.ErrMalformed},
		"tlv beyond the end":    {v2("21 11 000f" + addrs4 + "040001"), tcp, itself, proxyproto.ErrMalformed},
		"short checksum":        {v2("21 11 0010" + addrs4 + "03000100"), tcp, itself, proxyproto.ErrMalformed},
		"wrong checksum":        {v2("21 11 0013" + addrs4 + crcZero), tcp, itself, proxyproto.ErrChecksum},
		"too long":              {v2("21 11 0ff1" + addrs4), tcp, itself, proxyproto.ErrTooLong},
		"no header":             {"GET / HTTP/1.1\r\n", tcp, itself, proxyproto.ErrMissing},

		"v1 tcp4":             {"PROXY TCP4 1.2.3.4 192.0.2.1 5 27015\r\n", tcp, four, nil},
		"v1 tcp6":             {"PROXY TCP6 2001:db8::1 2001:db8::2 5 443\r\n", tcp, six, nil},
		"v1 tcp6, mapped":     {"PROXY TCP6 ::ffff:1.2.3.4 ::ffff:192.0.2.1 5 27015\r\n", tcp, four, nil},
		"v1 tcp6 as of nginx": {"PROXY TCP6 2001:db8::1 192.0.2.1 5 27015\r\n", tcp, header("[2001:db8::1]:5", "192.0.2.1:27015"), nil},
		"v1 unknown":          {"PROXY UNKNOWN\r\n", tcp, itself, nil},
		"v1 unknown, longest": {"PROXY UNKNOWN " + strings.Repeat("f", 91) + "\r\n", tcp, itself, nil},
		"v1 port 0":           {"PROXY TCP4 1.2.3.4 192.0.2.1 0 0\r\n", tcp, header("1.2.3.4:0", "192.0.2.1:0"), nil},
		"v1 over udp":         {"PROXY TCP4 1.2.3.4 192.0.2.1 5 27015\r\n", udp, itself, proxyproto.ErrMissing},
		"v1 too long":         {"PROXY UNKNOWN " + strings.Repeat("f", 92) + "\r\n", tcp, itself, proxyproto.ErrTooLong},
		"v1 without a CR":     {"PROXY TCP4 1.2.3.4 192.0.2.1 5 27015\nGET / HTTP/1.1\r\n", tcp, itself, proxyproto.ErrMalformed},
		"v1 udp":              {"PROXY UDP4 1.2.3.4 192.0.2.1 5 27015\r\n", tcp, itself, proxyproto.ErrMalformed},
		"v1 two spaces":       {"PROXY TCP4  1.2.3.4 192.0.2.1 5 27015\r\n", tcp, itself, proxyproto.ErrMalformed},
		"v1 a field more":     {"PROXY TCP4 1.2.3.4 192.0.2.1 5 27015 \r\n", tcp, itself, proxyproto.ErrMalformed},
		"v1 a field less":     {"PROXY TCP4 1.2.3.4 192.0.2.1 5\r\n", tcp, itself, proxyproto.ErrMalformed},
		"v1 port too large":   {"PROXY TCP4 1.2.3.4 192.0.2.1 65536 1\r\n", tcp, itself, proxyproto.ErrMalformed},
		"v1 leading zero":     {"PROXY TCP4 1.2.3.4 192.0.2.1 05 27015\r\n", tcp, itself, proxyproto.ErrMalformed},
		"v1 signed port":      {"PROXY TCP4 1.2.3.4 192.0.2.1 +5 27015\r\n", tcp, itself, proxyproto.ErrMalformed},
		"v1 leading zero IP":  {"PROXY TCP4 01.2.3.4 192.0.2.1 5 27015\r\n", tcp, itself, proxyproto.ErrMalformed},
		"v1 IPv6 as tcp4":     {"PROXY TCP4 ::1 192.0.2.1 5 27015\r\n", tcp, itself, proxyproto.ErrMalformed},
		"v1 zone":             {"PROXY TCP6 fe80::1%eth0 fe80::2 5 27015\r\n", tcp, itself, proxyproto.ErrMalformed},
		"v1 name":             {"PROXY TCP4 localhost 192.0.2.1 5 27015\r\n", tcp, itself, proxyproto.ErrMalformed},
		"v1 small letters":    {"proxy tcp4 1.2.3.4 192.0.2.1 5 27015\r\n", tcp, itself, proxyproto.ErrMissing},
	} {
		t.Run(name, func(t *testing.T) {
			payload := "payload" + strings.Repeat(".", proxyproto.MaxSizeV1)
			h, n, err := proxyproto.Parse([]byte(c.in+payload), c.as)
			require.ErrorIs(t, err, c.err)
			assert.Equal(t, c.want, h)
			if err != nil {
				return
			}
			assert.Equal(t, len(c.in), n)
			for cut := range len(c.in) { // however it is cut, the rest may still come
				_, _, err := proxyproto.Parse([]byte(c.in[:cut]), c.as)
				require.ErrorIs(t, err, proxyproto.ErrIncomplete, "after %d bytes", cut)
			}
		})
	}
}

// A checksum is verified wherever it stands.
func TestChecksum(t *testing.T) {
	for _, tlvs := range []string{crcZero, crcZero + noop, noop + crcZero} {
		b := raw(t, signature+"21 12 0000"+addrs4+tlvs)
		binary.BigEndian.PutUint16(b[14:], uint16(len(b)-16))
		sum := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
		at := strings.Index(string(b), string(raw(t, crcZero))) + 3
		binary.BigEndian.PutUint32(b[at:], sum)
		h, n, err := proxyproto.Parse(b, proxyproto.Datagram)
		require.NoError(t, err)
		assert.Equal(t, four, h)
		assert.Equal(t, len(b), n)
		for _, i := range []int{16, 27, at} {
			b[i] ^= 1
			_, _, err = proxyproto.Parse(b, proxyproto.Datagram)
			require.ErrorIs(t, err, proxyproto.ErrChecksum)
			b[i] ^= 1
		}
	}
}

func TestBegins(t *testing.T) {
	v2 := string(raw(t, signature))
	for in, want := range map[string][2]bool{ // header, undecided
		"":             {false, true},
		"P":            {false, true},
		"PROXY":        {false, true},
		"PROXY ":       {true, false},
		"PROXY TCP4 ":  {true, false},
		"PROPFIND":     {false, false},
		"POST / ":      {false, false},
		"\r":           {false, true},
		"\r\n\r\nGET ": {false, false},
		v2[:11]:        {false, true},
		v2:             {true, false},
		v2 + "!":       {true, false},
	} {
		header, undecided := proxyproto.Begins([]byte(in))
		assert.Equal(t, want, [2]bool{header, undecided}, "%q", in)
	}
}

func TestAllocations(t *testing.T) {
	b := raw(t, signature+"21 12 0011"+addrs4+noop)
	out := make([]byte, 0, proxyproto.MaxSizeWritten)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		h, _, err := proxyproto.Parse(b, proxyproto.Datagram)
		if err != nil {
			t.Error(err)
		}
		out = h.AppendV2(out[:0], proxyproto.Datagram)
		out = six.AppendV1(out[:0])
	}))
}
