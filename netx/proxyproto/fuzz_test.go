package proxyproto_test

import (
	"bufio"
	"bytes"
	"net"
	"net/netip"
	"testing"

	other "github.com/pires/go-proxyproto"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/netx/proxyproto"
)

// What Parse takes another implementation reads in the same way, and to the same
// byte.
func FuzzParse(f *testing.F) {
	for _, h := range []proxyproto.Header{four, six, header("1.2.3.4:5", "[::1]:1")} {
		f.Add(append(h.AppendV1(nil), "payload"...), false)
		f.Add(append(h.AppendV2(nil, proxyproto.Stream), "payload"...), false)
		f.Add(h.AppendV2(nil, proxyproto.Datagram), true)
	}
	f.Add([]byte("PROXY UNKNOWN\r\n"), false)
	f.Add(raw(f, signature+"21 12 0011"+addrs4+noop), true)
	f.Add(raw(f, signature+"21 12 0013"+addrs4+crcZero), true)
	f.Add(raw(f, signature+"20 00 0000"), true)
	f.Add(raw(f, signature+"21 31 00d8"+unixes), false)
	f.Fuzz(func(t *testing.T, b []byte, datagram bool) {
		transport := proxyproto.Stream
		if datagram {
			transport = proxyproto.Datagram
		}
		h, n, err := proxyproto.Parse(b, transport)
		begins, undecided := proxyproto.Begins(b)
		if err != nil {
			require.Zero(t, n)
			require.Zero(t, h)
			require.True(t, err != proxyproto.ErrIncomplete || begins || undecided)
			return
		}
		require.True(t, begins)
		require.LessOrEqual(t, n, min(len(b), proxyproto.MaxSize))
		if h == itself {
			return // which the other one refuses in part
		}
		in := bufio.NewReaderSize(bytes.NewReader(b), len(b)+16)
		o, err := other.Read(in)
		require.NoError(t, err)
		assert.Equal(t, len(b)-n, in.Buffered())
		assert.Equal(t, h, proxyproto.Header{Source: addrPort(t, o.SourceAddr), Destination: addrPort(t, o.DestinationAddr)})
	})
}

// What is written both read as what it was, and both write the same bytes.
func FuzzAppend(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4}, []byte{192, 0, 2, 1}, uint16(5), uint16(27015))
	f.Add(make([]byte, 16), []byte{192, 0, 2, 1}, uint16(0), uint16(65535))
	f.Fuzz(func(t *testing.T, src, dst []byte, srcPort, dstPort uint16) {
		s, ok := netip.AddrFromSlice(src)
		d, ok2 := netip.AddrFromSlice(dst)
		if !ok || !ok2 {
			return // no addresses
		}
		h := proxyproto.Header{
			Source:      netip.AddrPortFrom(s.Unmap(), srcPort),
			Destination: netip.AddrPortFrom(d.Unmap(), dstPort),
		}
		for _, transport := range []proxyproto.Transport{proxyproto.Stream, proxyproto.Datagram} {
			b := h.AppendV2(nil, transport)
			require.Len(t, b, h.SizeV2())
			back, n, err := proxyproto.Parse(b, transport)
			require.NoError(t, err)
			require.Equal(t, len(b), n)
			require.Equal(t, h, back)
			same(t, b)
		}
		b := h.AppendV1(nil)
		require.LessOrEqual(t, len(b), proxyproto.MaxSizeV1)
		back, n, err := proxyproto.Parse(b, proxyproto.Stream)
		require.NoError(t, err)
		require.Equal(t, len(b), n)
		require.Equal(t, h, back)
		if s.Unmap().Is4() == d.Unmap().Is4() { // it writes a mapped one without its ::ffff:
			same(t, b)
		}
	})
}

// same lets the other implementation read a header and write it.
func same(t *testing.T, b []byte) {
	t.Helper()
	o, err := other.Read(bufio.NewReader(bytes.NewReader(b)))
	require.NoError(t, err)
	again, err := o.Format()
	require.NoError(t, err)
	require.Equal(t, b, again)
}

func addrPort(t *testing.T, a net.Addr) netip.AddrPort {
	t.Helper()
	var p netip.AddrPort
	switch a := a.(type) {
	case *net.TCPAddr:
		p = a.AddrPort()
	case *net.UDPAddr:
		p = a.AddrPort()
	default:
		t.Fatalf("a %T", a)
	}
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}
