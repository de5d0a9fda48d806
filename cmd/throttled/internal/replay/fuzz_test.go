package replay

import (
	"bytes"
	"testing"

	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"
)

// Whatever a capture holds, a replay of it ends, and everything is counted once.
func FuzzReplay(f *testing.F) {
	v4, v6 := datagram(f, v4client, v4server, 60), datagram(f, v6client, v6server, 60)
	tcp := stream(f, v6client, "[2001:db8:1::1]:80", "S", 9, 9)
	for link, wrap := range map[layers.LinkType]func([]byte) []byte{
		layers.LinkTypeEthernet: func(b []byte) []byte { return ether(b, 0x88a8, 0x8100) },
		layers.LinkTypeLinuxSLL: func(b []byte) []byte { return sll(b, 0) },
		276:                     func(b []byte) []byte { return sll2(b, 0) },
		layers.LinkTypeRaw:      func(b []byte) []byte { return b },
		layers.LinkTypeNull:     func(b []byte) []byte { return append([]byte{2, 0, 0, 0}, b...) },
	} {
		f.Add(capture(f, link, stamped{data: wrap(v4)}, stamped{at: 1e9, data: wrap(v6)}, stamped{at: 2e9, data: wrap(tcp), wire: 5000}))
	}
	c := parsed(f, `
engine: {shards: 1, max_endpoints: 100}
policies: [{name: default, capacity: 2, refill: 1/s, bytes: {capacity: 100, refill: 1/s}}]
listeners:
  - {name: a, protocol: udp, listen: 0.0.0.0:27015, upstream: echo}
  - {name: b, protocol: udp, listen: "[::]:27015", upstream: echo}
  - {name: c, protocol: tcp, listen: "[::]:80", upstream: echo}
`)
	f.Fuzz(func(t *testing.T, b []byte) {
		trial := newTrial(c)
		defer trial.close()
		tr := newTraffic(c, trial)
		_ = tr.readFrom(bytes.NewReader(b))
		r := tr.result()
		trial.report(r, 20)
		requireSums(t, r)
		require.NoError(t, r.WriteText(&bytes.Buffer{}))
	})
}
