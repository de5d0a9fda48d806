package pcap_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/pcap"
)

var start = time.Date(2026, 5, 6, 7, 8, 9, 123456789, time.UTC)

// frames have lengths that need padding and that need none.
var frames = [][]byte{[]byte("first"), []byte("four"), {}, bytes.Repeat([]byte("long"), 5000)}

// packets is everything that a capture holds, with copies of the data.
func packets(t testing.TB, capture []byte) (all []pcap.Packet, err error) {
	r, err := pcap.NewReader(bytes.NewReader(capture))
	if err != nil {
		return nil, err
	}
	for {
		p, err := r.Next()
		if err != nil {
			_, again := r.Next()
			require.Equal(t, err, again)
			if err == io.EOF {
				err = nil
			}
			return all, err
		}
		p.Data = bytes.Clone(p.Data)
		all = append(all, p)
	}
}

type writer interface {
	WritePacket(gopacket.CaptureInfo, []byte) error
}

func write(t testing.TB, w writer, device int) {
	for i, f := range frames {
		require.NoError(t, w.WritePacket(gopacket.CaptureInfo{
			Timestamp: start.Add(time.Duration(i) * time.Second), CaptureLength: len(f), Length: len(f) + 7, InterfaceIndex: device,
		}, f))
	}
}

// records is a pcap file.
func records(t testing.TB, nanos bool) []byte {
	var b bytes.Buffer
	w := pcapgo.NewWriter(&b)
	if nanos {
		w = pcapgo.NewWriterNanos(&b)
	}
	require.NoError(t, w.WriteFileHeader(1<<16, layers.LinkTypeEthernet))
	write(t, w, 0)
	return b.Bytes()
}

// blocks is a pcapng file with two interfaces, and what is not read in between.
func blocks(t testing.TB) []byte {
	var b bytes.Buffer
	ethernet := pcapgo.NgInterface{Name: "eth0", Comment: "a comment", LinkType: layers.LinkTypeEthernet, SnapLength: 1 << 16}
	w, err := pcapgo.NewNgWriterInterface(&b, ethernet, pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{Hardware: "none"}})
	require.NoError(t, err)
	cooked, err := w.AddInterface(pcapgo.NgInterface{LinkType: layers.LinkTypeLinuxSLL, TimestampOffset: 5})
	require.NoError(t, err)
	write(t, w, 0)
	require.NoError(t, w.WriteInterfaceStats(0, pcapgo.NgInterfaceStatistics{PacketsReceived: 4}))
	write(t, w, cooked)
	require.NoError(t, w.Flush())
	return b.Bytes()
}

func zip(t testing.TB, b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(b)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

func want(link pcap.LinkType, unit, later time.Duration) (all []pcap.Packet) {
	for i, f := range frames {
		at := start.Add(time.Duration(i)*time.Second + later).Truncate(unit)
		all = append(all, pcap.Packet{At: at.UnixNano(), Link: link, Wire: len(f) + 7, Data: f})
	}
	return all
}

func TestFormats(t *testing.T) {
	ng := append(want(pcap.Ethernet, 1, 0), want(pcap.SLL, 1, 5*time.Second)...)
	for name, c := range map[string]struct {
		capture []byte
		want    []pcap.Packet
	}{
		"micro":        {records(t, false), want(pcap.Ethernet, time.Microsecond, 0)},
		"nano":         {records(t, true), want(pcap.Ethernet, 1, 0)},
		"micro, other": {swapRecords(records(t, false)), want(pcap.Ethernet, time.Microsecond, 0)},
		"nano, other":  {swapRecords(records(t, true)), want(pcap.Ethernet, 1, 0)},
		"blocks":       {blocks(t), ng},
		"two sections": {append(blocks(t), blocks(t)...), append(ng, ng...)},
		"zipped":       {zip(t, blocks(t)), ng},
	} {
		got, err := packets(t, c.capture)
		assert.NoError(t, err, name)
		assert.Equal(t, c.want, got, name)
	}
}

// swapRecords gives a pcap file the other byte order.
func swapRecords(b []byte) []byte {
	out := bytes.Clone(b)
	swap := func(at int, sizes ...int) {
		for _, n := range sizes {
			for i := range n / 2 {
				out[at+i], out[at+n-1-i] = out[at+n-1-i], out[at+i]
			}
			at += n
		}
	}
	swap(0, 4, 2, 2, 4, 4, 4, 4)
	for at := 24; at < len(b); {
		swap(at, 4, 4, 4, 4)
		at += 16 + int(binary.LittleEndian.Uint32(b[at+8:]))
	}
	return out
}

// ng is a pcapng block; words are 4 bytes.
func ng(order binary.AppendByteOrder, kind uint32, body []byte) []byte {
	for len(body)%4 != 0 {
		body = append(body, 0)
	}
	n := uint32(len(body) + 12)
	b := order.AppendUint32(order.AppendUint32(nil, kind), n)
	return order.AppendUint32(append(b, body...), n)
}

func words(order binary.AppendByteOrder, ws ...uint32) (b []byte) {
	for _, w := range ws {
		b = order.AppendUint32(b, w)
	}
	return b
}

// What the writer of the tests above does not write.
func TestBlocks(t *testing.T) {
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		half := func(a, b uint16) []byte { return order.AppendUint16(order.AppendUint16(nil, a), b) }
		section := ng(order, 0x0a0d0d0a, append(append(words(order, 0x1a2b3c4d), half(1, 0)...), words(order, 0xffffffff, 0xffffffff)...))
		device := func(link uint16, snap uint32, options ...byte) []byte {
			return ng(order, 1, append(append(half(link, 0), words(order, snap)...), options...))
		}
		resolution := func(r byte) []byte { return append(half(9, 1), r, 0, 0, 0) }
		enhanced := func(device uint32, stamp uint64, data string) []byte {
			n := uint32(len(data))
			return ng(order, 6, append(words(order, device, uint32(stamp>>32), uint32(stamp), n, n), data...))
		}
		capture := bytes.Join([][]byte{
			section,
			device(101, 3, append(resolution(0x80|10), words(order, 0)...)...), // 2^-10 s
			device(276, 0, resolution(0)...),                                   // seconds
			device(113, 0, resolution(12)...),                                  // picoseconds
			ng(order, 5, words(order, 0, 0, 0)),                                // not read
			enhanced(0, 3<<10|512, "a"),
			enhanced(1, 4, "b"),
			enhanced(2, 5_000_000_001_999, "c"),
			enhanced(1, 1<<63, "far beyond"),
			ng(order, 3, append(words(order, 5), "simple"[:3]...)), // 5 on the wire, 3 kept
			ng(order, 2, append(append(half(1, 9), words(order, 0, 6, 3, 8)...), "old"...)),
		}, nil)
		got, err := packets(t, capture)
		assert.NoError(t, err)
		assert.Equal(t, []pcap.Packet{
			{At: 3_500_000_000, Link: pcap.Raw, Wire: 1, Data: []byte("a")},
			{At: 4_000_000_000, Link: pcap.SLL2, Wire: 1, Data: []byte("b")},
			{At: 5_000_000_001, Link: pcap.SLL, Wire: 1, Data: []byte("c")},
			{At: pcap.NoTime, Link: pcap.SLL2, Wire: 10, Data: []byte("far beyond")},
			{At: pcap.NoTime, Link: pcap.Raw, Wire: 5, Data: []byte("sim")},
			{At: 6_000_000_000, Link: pcap.SLL2, Wire: 8, Data: []byte("old")},
		}, got)

		for want, more := range map[string][]byte{
			"interface 3 of 3":                      enhanced(3, 0, ""),
			"a block of 8 bytes":                    words(order, 6, 8),
			"a block of 30 bytes":                   words(order, 6, 30, 0, 0, 0, 0, 0),
			"a block of 12 bytes ends as one of 13": words(order, 7, 12, 13),
			"too short":                             ng(order, 6, words(order, 0, 0)),
			"a packet of 9 bytes in a block of 32":  ng(order, 6, words(order, 0, 0, 0, 9, 9)),
			"reaches out of its block":              device(1, 0, half(2, 100)...),
			"time resolution 0x14 is finer":         device(1, 0, resolution(20)...),
			"time resolution 0xc0 is finer":         device(1, 0, resolution(0x80|64)...),
			"pcapng version 2, not 1":               ng(order, 0x0a0d0d0a, append(append(words(order, 0x1a2b3c4d), half(2, 0)...), words(order, 0, 0)...)),
			"a section without its byte order":      ng(order, 0x0a0d0d0a, words(order, 1, 2, 3, 4)),
			"300000 bytes in one packet":            ng(order, 6, append(words(order, 0, 0, 0, 300_000, 300_000), make([]byte, 300_000)...)),
			"the capture ends in the middle of it":  enhanced(1, 0, "cut off")[:30],
			"at offset " + fmt.Sprint(len(capture)): words(order, 6, 0),
		} {
			got, err := packets(t, append(bytes.Clone(capture), more...))
			assert.ErrorContains(t, err, want)
			assert.ErrorContains(t, err, fmt.Sprintf("packet 7 at offset %d: ", len(capture)))
			assert.Len(t, got, 6)
		}
	}
}

func TestNoCapture(t *testing.T) {
	head := records(t, false)[:24]
	changed := func(at int, by byte) []byte {
		b := bytes.Clone(head)
		b[at] = by
		return b
	}
	for want, b := range map[string][]byte{
		"too short for a capture":                  head[:23],
		"neither a pcap nor a pcapng file":         []byte("no capture"),
		"pcap version 7, not 2":                    changed(4, 7),
		"link type 105 is none of Ethernet, Linux": changed(20, 105),
		"gzip: invalid header":                     {0x1f, 0x8b, 0, 0, 0, 0, 0, 0, 0, 0, 0},
	} {
		_, err := pcap.NewReader(bytes.NewReader(b))
		assert.ErrorContains(t, err, want)
	}
	for n := range 4 {
		_, err := pcap.NewReader(bytes.NewReader(head[:n]))
		assert.ErrorContains(t, err, "too short for a capture")
	}
	got, err := packets(t, head)
	assert.NoError(t, err)
	assert.Empty(t, got)
}

// Wherever a capture is cut, what is whole before the cut is read, and the error
// names the packet and where it begins.
func TestCut(t *testing.T) {
	for name, capture := range map[string][]byte{"records": records(t, false), "blocks": blocks(t)} {
		all, err := packets(t, capture)
		require.NoError(t, err)
		read := 0
		for n := 200; n < len(capture); n++ {
			if n > 400 && n < len(capture)-100 && n%97 != 0 {
				continue
			}
			got, err := packets(t, capture[:n])
			require.Equal(t, all[:len(got)], got)
			require.GreaterOrEqual(t, len(got), read)
			read = len(got)
			if err == nil {
				continue // between two packets
			}
			var where *pcap.Error
			require.ErrorAs(t, err, &where, name)
			require.ErrorIs(t, err, pcap.ErrCut)
			require.EqualValues(t, len(got)+1, where.Packet)
			require.Less(t, where.Offset, int64(n))
		}
		zipped := zip(t, capture)
		_, err = packets(t, zipped[:len(zipped)-20])
		require.ErrorIs(t, err, pcap.ErrCut)
	}
}

type failing struct{}

var errDisk = errors.New("disk on fire")

func (failing) Read([]byte) (int, error) { return 0, errDisk }

func TestReadError(t *testing.T) {
	r, err := pcap.NewReader(io.MultiReader(bytes.NewReader(records(t, false)[:50]), failing{}))
	require.NoError(t, err)
	_, err = r.Next()
	require.NoError(t, err)
	_, err = r.Next()
	require.ErrorIs(t, err, errDisk)
	require.EqualError(t, err, "packet 2 at offset 45: disk on fire")
}

// Whatever the bytes are, reading ends, with no more packets than there is room
// for, and each as long as it says.
func FuzzReader(f *testing.F) {
	for _, capture := range [][]byte{records(f, false), records(f, true), swapRecords(records(f, false)), blocks(f), zip(f, blocks(f))} {
		f.Add(capture)
		f.Add(capture[:len(capture)-3])
	}
	f.Fuzz(func(t *testing.T, capture []byte) {
		r, err := pcap.NewReader(io.LimitReader(bytes.NewReader(capture), 1<<20))
		for n := 0; err == nil; n++ {
			var p pcap.Packet
			if p, err = r.Next(); err == nil {
				require.LessOrEqual(t, len(p.Data), 256<<10)
				require.GreaterOrEqual(t, p.Wire, 0)
				require.Less(t, n, 1<<27)
			}
		}
	})
}
