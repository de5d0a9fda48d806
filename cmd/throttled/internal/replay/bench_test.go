package replay

import (
	"fmt"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"
)

// A hundred thousand datagrams of ten thousand endpoints.
func BenchmarkReplay(b *testing.B) {
	const n = 100_000
	packets := make([]stamped, n)
	for i := range packets {
		from := fmt.Sprintf("10.0.%d.%d:4000", i%10_000/256, i%256)
		packets[i] = stamped{at: time.Duration(i) * time.Millisecond, data: ether(datagram(b, from, v4server, 60))}
	}
	path := inFile(b, "bench.pcap", capture(b, layers.LinkTypeEthernet, packets...))
	c := parsed(b, game)
	for _, suggest := range []bool{false, true} {
		b.Run(fmt.Sprintf("suggest=%v", suggest), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err := Run(Options{Config: c, Capture: path, Limit: 20, Suggest: suggest})
				require.NoError(b, err)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/packet")
		})
	}
}
