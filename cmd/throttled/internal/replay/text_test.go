package replay

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files")

// evening is a minute at a game server: players at 20 to 40 datagrams a second,
// one who asks for the status without end, a flood, and an admin page.
func evening(t testing.TB) []byte {
	var packets []stamped
	add := func(at float64, data []byte) {
		packets = append(packets, stamped{at: time.Duration(math.Round(at * 1e9)), data: ether(data)})
	}
	for player := range 8 {
		from := fmt.Sprintf("198.51.100.%d:27005", 10+player)
		rate := float64(20 + player*2)
		for i := range int(rate * 60) {
			add(float64(i)/rate+float64(player)/100, datagram(t, from, v4server, 40+i%60))
			if i%4 == 0 {
				add(float64(i)/rate+0.005, datagram(t, v4server, from, 200))
			}
		}
	}
	for i := range 300 {
		add(20+float64(i)/200, datagram(t, "203.0.113.66:999", v4server, 25))
	}
	for i := range 4000 {
		add(30+float64(i)/1000, datagram(t, "[2001:db8:bad::"+fmt.Sprint(i%10)+"]:4444", v6server, 1000))
	}
	for i := range 5 {
		from := fmt.Sprintf("198.51.100.10:%d", 50000+i)
		add(float64(i), stream(t, from, "192.0.2.1:8080", "S", 1, 0))
		add(float64(i)+0.01, stream(t, from, "192.0.2.1:8080", "A", 2, 400))
		add(float64(i)+0.02, stream(t, from, "192.0.2.1:8080", "FA", 402, 0))
	}
	add(40, datagram(t, "192.0.2.1:5353", "192.0.2.9:53", 30))
	return sorted(t, layers.LinkTypeEthernet, packets)
}

const server = `
policies:
  - {name: default, capacity: 100, refill: 50/s, lockout: {base: 30s}}
  - {name: pages, capacity: 4, refill: 1/m, bytes: {refill: 10KiB/s}}
listeners:
  - {name: game4, protocol: udp, listen: 0.0.0.0:27015, upstream: echo}
  - {name: game6, protocol: udp, listen: "[::]:27015", upstream: echo}
  - {name: pages, protocol: tcp, listen: 0.0.0.0:8080, upstream: echo, policy: pages}
`

func TestOutput(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("evening.pcap", evening(t), 0o600))
	r, err := Run(Options{Config: parsed(t, server), Capture: "evening.pcap", Suggest: true, Limit: 5})
	require.NoError(t, err)
	requireSums(t, r)
	var text, object bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	out := json.NewEncoder(&object)
	out.SetIndent("", "  ")
	require.NoError(t, out.Encode(r))
	golden(t, "evening.txt", text.Bytes())
	golden(t, "evening.json", object.Bytes())

	r, err = Run(Options{Config: parsed(t, server), Capture: "evening.pcap"})
	require.NoError(t, err)
	assert.Len(t, r.Nearest, 8, "all there are")
}

var folder = func() string {
	wd, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	return filepath.Join(wd, "testdata")
}()

func golden(t *testing.T, name string, got []byte) {
	path := filepath.Join(folder, name)
	if *update {
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got))
}
