package replay

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/config"
)

var began = time.Date(2026, 3, 4, 20, 0, 0, 0, time.UTC)

// serialize makes the bytes of layers, with their lengths filled in.
func serialize(t testing.TB, ls ...gopacket.SerializableLayer) []byte {
	b := gopacket.NewSerializeBuffer()
	require.NoError(t, gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true}, ls...))
	return bytes.Clone(b.Bytes())
}

// ip is the IP layer of a packet between two addresses.
func ip(src, dst netip.AddrPort, p layers.IPProtocol) gopacket.SerializableLayer {
	if dst.Addr().Is4() {
		return &layers.IPv4{Version: 4, TTL: 64, Protocol: p, SrcIP: src.Addr().AsSlice(), DstIP: dst.Addr().AsSlice()}
	}
	return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: p, SrcIP: src.Addr().AsSlice(), DstIP: dst.Addr().AsSlice()}
}

func udp(src, dst netip.AddrPort) *layers.UDP {
	return &layers.UDP{SrcPort: layers.UDPPort(src.Port()), DstPort: layers.UDPPort(dst.Port())}
}

// datagram is the IP packet of a UDP datagram of n bytes.
func datagram(t testing.TB, from, to string, n int) []byte {
	return datagramOf(t, from, to, make([]byte, n))
}

func datagramOf(t testing.TB, from, to string, payload []byte) []byte {
	src, dst := netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)
	return serialize(t, ip(src, dst, layers.IPProtocolUDP), udp(src, dst), gopacket.Payload(payload))
}

// stream is the IP packet of a TCP segment of n bytes, with flags as in "S", "SA",
// "A", "FA" and "R".
func stream(t testing.TB, from, to, flags string, seq uint32, n int) []byte {
	return streamOf(t, from, to, flags, seq, make([]byte, n))
}

func streamOf(t testing.TB, from, to, flags string, seq uint32, payload []byte) []byte {
	src, dst := netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)
	has := func(f string) bool { return bytes.Contains([]byte(flags), []byte(f)) }
	return serialize(t, ip(src, dst, layers.IPProtocolTCP), &layers.TCP{
		SrcPort: layers.TCPPort(src.Port()), DstPort: layers.TCPPort(dst.Port()), Seq: seq,
		SYN: has("S"), ACK: has("A"), FIN: has("F"), RST: has("R"),
		Options: []layers.TCPOption{{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: []byte{5, 180}}},
	}, gopacket.Payload(payload))
}

// A stamped packet is one of a capture.
type stamped struct {
	at   time.Duration
	data []byte
	wire int // 0 = as long as data
}

// capture is a pcap file with nanoseconds.
func capture(t testing.TB, link layers.LinkType, packets ...stamped) []byte {
	var b bytes.Buffer
	w := pcapgo.NewWriterNanos(&b)
	require.NoError(t, w.WriteFileHeader(1<<18, link))
	for _, p := range packets {
		require.NoError(t, w.WritePacket(gopacket.CaptureInfo{
			Timestamp: began.Add(p.at), CaptureLength: len(p.data), Length: max(p.wire, len(p.data)),
		}, p.data))
	}
	return b.Bytes()
}

// sorted is a capture of the packets in the order of their times.
func sorted(t testing.TB, link layers.LinkType, packets []stamped) []byte {
	slices.SortStableFunc(packets, func(a, b stamped) int { return cmp.Compare(a.at, b.at) })
	return capture(t, link, packets...)
}

// inFile writes a file in a folder of its own.
func inFile(t testing.TB, name string, content []byte) string {
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

func parsed(t testing.TB, yaml string) *config.Config {
	c, err := config.Parse("test.yaml", []byte(yaml))
	require.NoError(t, err)
	return c
}

// replayed runs a configuration against a capture that has to be whole.
func replayed(t testing.TB, yaml string, capture []byte) *Result {
	r, err := Run(Options{Config: parsed(t, yaml), Capture: inFile(t, "test.pcap", capture)})
	require.NoError(t, err)
	requireSums(t, r)
	return r
}

// requireSums checks that nothing is counted twice or lost.
func requireSums(t testing.TB, r *Result) {
	packets := int64(0)
	for _, n := range r.Capture.NotForListener {
		packets += n
	}
	for _, l := range r.Listeners {
		packets += l.Captured
		sum := l.Forwarded
		for _, n := range l.Dropped {
			sum += n
		}
		require.Equal(t, l.Packets, sum, l.Name)
	}
	require.Equal(t, r.Capture.Packets, packets)
}

// ether puts an Ethernet header in front of an IP packet, with VLAN tags whose
// EtherTypes are given.
func ether(packet []byte, tags ...uint16) []byte {
	frame := make([]byte, 12)
	for _, tag := range tags {
		frame = binary.BigEndian.AppendUint16(frame, tag)
		frame = append(frame, 0, 7)
	}
	return append(append(frame, etherType(packet)...), packet...)
}

func etherType(packet []byte) []byte {
	if packet[0]>>4 == 6 {
		return []byte{0x86, 0xdd}
	}
	return []byte{8, 0}
}
