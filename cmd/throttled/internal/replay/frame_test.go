package replay

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/pcap"
	"github.com/seed-ee4278a0/throttled/netx"
)

const (
	v4client, v4server = "198.51.100.7:4000", "192.0.2.1:27015"
	v6client, v6server = "[2001:db8::7]:4000", "[2001:db8:1::1]:27015"
)

func parse(link pcap.LinkType, data []byte, wire int) (segment, kind) {
	var s segment
	k := s.parse(pcap.Packet{Link: link, Data: data, Wire: wire})
	return s, k
}

func sll(packet []byte, direction byte) []byte {
	head := append([]byte{0, direction, 0, 1, 0, 6}, make([]byte, 8)...)
	return append(append(head, etherType(packet)...), packet...)
}

func sll2(packet []byte, direction byte) []byte {
	head := append(append([]byte{}, etherType(packet)...), 0, 0, 0, 0, 0, 3, 0, 1, direction, 6)
	return append(append(head, make([]byte, 8)...), packet...)
}

func TestLinkTypes(t *testing.T) {
	for _, end := range []struct{ from, to string }{{v4client, v4server}, {v6client, v6server}} {
		packet := datagram(t, end.from, end.to, 100)
		family := []byte{2, 0, 0, 0}
		if packet[0]>>4 == 6 {
			family[0] = 30
		}
		for name, c := range map[string]struct {
			link     pcap.LinkType
			data     []byte
			outgoing bool
		}{
			"ethernet":       {pcap.Ethernet, ether(packet), false},
			"padded":         {pcap.Ethernet, append(ether(packet), make([]byte, 18)...), false},
			"vlan":           {pcap.Ethernet, ether(packet, 0x8100), false},
			"qinq":           {pcap.Ethernet, ether(packet, 0x88a8, 0x8100), false},
			"old qinq":       {pcap.Ethernet, ether(packet, 0x9100, 0x9200, 0x8100), false},
			"sll":            {pcap.SLL, sll(packet, 0), false},
			"sll, outgoing":  {pcap.SLL, sll(packet, 4), true},
			"sll2":           {pcap.SLL2, sll2(packet, 0), false},
			"sll2, outgoing": {pcap.SLL2, sll2(packet, 4), true},
			"raw":            {pcap.Raw, packet, false},
			"raw, BSD":       {pcap.RawBSD, packet, false},
			"raw, other":     {pcap.RawOther, packet, false},
			"null":           {pcap.Null, append(family, packet...), false},
			"loop":           {pcap.Loop, append([]byte{0, 0, 0, family[0]}, packet...), false},
		} {
			got, kind := parse(c.link, c.data, len(c.data))
			require.Equal(t, isSegment, kind, name)
			assert.Equal(t, segment{
				protocol: netx.UDP, src: netip.MustParseAddrPort(end.from), dst: netip.MustParseAddrPort(end.to),
				bytes: 100, payload: make([]byte, 100), outgoing: c.outgoing,
			}, got, name)

			// Whatever was kept of it, the headers are enough and nothing less is.
			enough := len(c.data) - 100
			if name == "padded" {
				enough -= 18
			}
			for n := range len(c.data) {
				short, kind := parse(c.link, c.data[:n], len(c.data))
				if n < enough {
					require.Equal(t, isBroken, kind, "%s cut to %d", name, n)
				} else {
					require.Equal(t, isSegment, kind, "%s cut to %d", name, n)
					require.Len(t, short.payload, min(n-enough, 100), "%s cut to %d", name, n)
					short.payload = got.payload
					require.Equal(t, got, short, "%s cut to %d", name, n)
				}
			}
		}
	}
}

func TestKinds(t *testing.T) {
	packet := datagram(t, v4client, v4server, 100)
	with := func(at int, to ...byte) []byte {
		b := bytes.Clone(packet)
		copy(b[at:], to)
		return b
	}
	arp := ether(packet)
	arp[13] = 6
	for name, c := range map[string]struct {
		link pcap.LinkType
		data []byte
		want kind
	}{
		"arp":                    {pcap.Ethernet, arp, isNotIP},
		"802.3":                  {pcap.Ethernet, append(make([]byte, 12), 0, 60, 0x42, 0x42), isNotIP},
		"null of something else": {pcap.Null, []byte{7, 0, 0, 0, 0, 1, 2, 3}, isNotIP},
		"no IPv4 in it":          {pcap.Ethernet, append(make([]byte, 12), 8, 0, 0x60, 0, 0, 0), isBroken},
		"icmp":                   {pcap.Raw, with(9, 1), isOther},
		"a later fragment":       {pcap.Raw, with(6, 0x20, 9), isFragment},
		"the last fragment":      {pcap.Raw, with(6, 0, 9), isFragment},
		"IP header of 16":        {pcap.Raw, with(0, 0x44), isBroken},
		"IP length of 19":        {pcap.Raw, with(2, 0, 19), isBroken},
		"UDP length of 7":        {pcap.Raw, with(24, 0, 7), isBroken},
		"UDP length of 0":        {pcap.Raw, with(24, 0, 0), isBroken},
		"UDP beyond IP":          {pcap.Raw, with(24, 0, 109), isBroken},
		"UDP within IP":          {pcap.Raw, with(24, 0, 50), isSegment},
		"another link type":      {105, packet, isUnknown},
		"nothing":                {pcap.Raw, nil, isBroken},
	} {
		_, got := parse(c.link, c.data, len(c.data))
		assert.Equal(t, c.want, got, name)
	}
}

// A first fragment stands for the datagram; IP options and a length that the
// network card was to fill in do not matter.
func TestIPv4Oddities(t *testing.T) {
	packet := datagram(t, v4client, v4server, 3000)
	fragment := bytes.Clone(packet[:1500])
	binary.BigEndian.PutUint16(fragment[2:], 1500)
	fragment[6] = 0x20
	s, kind := parse(pcap.Raw, fragment, 1500)
	assert.Equal(t, isSegment, kind)
	assert.True(t, s.first)
	assert.Equal(t, 3000, s.bytes)

	src, dst := netip.MustParseAddrPort(v4client), netip.MustParseAddrPort(v4server)
	options := serialize(t, &layers.IPv4{
		Version: 4, Protocol: layers.IPProtocolUDP, SrcIP: src.Addr().AsSlice(), DstIP: dst.Addr().AsSlice(),
		Options: []layers.IPv4Option{{OptionType: 148, OptionLength: 4, OptionData: []byte{0, 0}}},
	}, udp(src, dst), gopacket.Payload("hello"))
	s, kind = parse(pcap.Raw, options, len(options))
	assert.Equal(t, isSegment, kind)
	assert.Equal(t, 5, s.bytes)

	segment := stream(t, v4client, v4server, "A", 7, 40_000)
	segment[2], segment[3] = 0, 0
	s, kind = parse(pcap.Ethernet, ether(segment)[:80], len(segment)+14)
	assert.Equal(t, isSegment, kind)
	assert.Equal(t, 40_000, s.bytes)
	assert.EqualValues(t, 7, s.seq)
}

func TestIPv6Extensions(t *testing.T) {
	packet := datagram(t, v6client, v6server, 10)
	// with puts headers between IPv6 and UDP; each is its type and its bytes,
	// whose first becomes the type of what follows.
	type header struct {
		kind byte
		body []byte
	}
	with := func(hs ...header) []byte {
		head, rest := bytes.Clone(packet[:40]), bytes.Clone(packet[40:])
		next := byte(17)
		for i := len(hs) - 1; i >= 0; i-- {
			body := bytes.Clone(hs[i].body)
			body[0] = next
			rest, next = append(body, rest...), hs[i].kind
		}
		head[6] = next
		binary.BigEndian.PutUint16(head[4:], uint16(len(rest)))
		return append(head, rest...)
	}
	plain, long := make([]byte, 8), append([]byte{0, 1}, make([]byte, 14)...)
	auth := append([]byte{0, 4}, make([]byte, 22)...)
	frag := func(offset uint16, more byte) []byte {
		b := make([]byte, 8)
		binary.BigEndian.PutUint16(b[2:], offset<<3|uint16(more))
		return b
	}
	for name, c := range map[string]struct {
		data  []byte
		want  kind
		first bool
	}{
		"options":          {with(header{0, plain}, header{60, long}, header{43, plain}), isSegment, false},
		"authentication":   {with(header{51, auth}), isSegment, false},
		"the others":       {with(header{135, plain}, header{139, long}, header{140, plain}), isSegment, false},
		"atomic fragment":  {with(header{44, frag(0, 0)}), isSegment, false},
		"first fragment":   {with(header{0, plain}, header{44, frag(0, 1)}), isSegment, true},
		"later fragment":   {with(header{44, frag(185, 1)}), isFragment, false},
		"last fragment":    {with(header{44, frag(185, 0)}), isFragment, false},
		"encrypted":        {with(header{50, plain}), isOther, false},
		"nothing follows":  {with(header{59, plain}), isOther, false},
		"longer than said": {with(header{60, append([]byte{0, 255}, make([]byte, 6)...)}), isBroken, false},
	} {
		got, kind := parse(pcap.Raw, c.data, len(c.data))
		assert.Equal(t, c.want, kind, name)
		assert.Equal(t, c.first, got.first, name)
		if kind == isSegment {
			assert.Equal(t, 10, got.bytes, name)
			assert.Equal(t, v6server, got.dst.String(), name)
		}
		for n := range len(c.data) - 10 {
			if _, kind := parse(pcap.Raw, c.data[:n], len(c.data)); n < 40 {
				assert.Equal(t, isBroken, kind, "%s cut to %d", name, n)
			}
		}
	}
}

func TestTCP(t *testing.T) {
	for flags, want := range map[string]byte{"S": flagSYN, "SA": flagSYN | flagACK, "A": flagACK, "FA": flagFIN | flagACK, "R": flagRST} {
		data := stream(t, v6client, v6server, flags, 1<<31, 33)
		got, kind := parse(pcap.Raw, data, len(data))
		assert.Equal(t, isSegment, kind)
		assert.Equal(t, segment{
			protocol: netx.TCP, src: netip.MustParseAddrPort(v6client), dst: netip.MustParseAddrPort(v6server),
			bytes: 33, payload: make([]byte, 33), flags: want, seq: 1 << 31,
		}, got)
		data[40+12] = 0x40
		_, kind = parse(pcap.Raw, data, len(data))
		assert.Equal(t, isBroken, kind)
	}
}
