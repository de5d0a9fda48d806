package netx

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
)

// flowsOf are those of clients that differ in the port, straight and through a
// proxy, to two addresses.
func flowsOf(n int) (flows []flow) {
	for i := range n {
		client, proxy := loopback(uint16(i+1)), loopback(40_000)
		for _, local := range []string{"127.0.0.2", "127.0.0.3"} {
			f := flow{client: client, peer: client, local: netip.MustParseAddr(local)}
			flows = append(flows, f)
			f.peer, f.to = proxy, loopback(9)
			flows = append(flows, f)
		}
	}
	return flows
}

func TestSessionTable(t *testing.T) {
	var table sessionTable
	table.init(nil)
	flows := flowsOf(50)
	sessions := make([]*session, len(flows))
	for _, first := range []int{0, 2} { // whichever address is the usual one
		for i := range flows {
			at := (i + first) % len(flows)
			assert.Nil(t, table.of(&flows[at]))
			sessions[at] = &session{flow: flows[at]}
			table.add(sessions[at])
		}
		for i := range flows {
			assert.Same(t, sessions[i], table.of(&flows[i]))
		}
		for i := range flows {
			table.remove(sessions[i])
			assert.Nil(t, table.of(&flows[i]))
			assert.Len(t, table.all, len(flows)-1-i)
		}
		assert.Empty(t, table.byClient)
		assert.Empty(t, table.byFlow)
	}
}

func BenchmarkSessionOf(b *testing.B) {
	var table sessionTable
	table.init(nil)
	flows := flowsOf(2000)
	for i := range flows {
		table.add(&session{flow: flows[i]})
	}
	for i, name := range []string{"usual", "through a proxy"} {
		b.Run(name, func(b *testing.B) {
			for at := i; b.Loop(); at = (at + 4) % len(flows) {
				if table.of(&flows[at]) == nil {
					b.Fatal("not found")
				}
			}
		})
	}
}
