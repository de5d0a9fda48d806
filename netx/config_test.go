package netx

import (
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/policy/limiter"
)

func textLog(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func TestValidateNamesEveryMistake(t *testing.T) {
	at := netip.MustParseAddrPort("127.0.0.1:7000")
	_, err := StartGateway(GatewayConfig{Listeners: []ListenerConfig{
		{Name: "a", Listen: at, Upstream: Echo},
		{Name: "a", Listen: netip.MustParseAddrPort("0.0.0.0:7000"), Upstream: "nowhere"},
		{Protocol: 7, Upstream: "host:0", UDP: UDPOptions{SessionIdle: -1, MaxSessions: -1, MaxDatagram: MaxDatagram + 1, MaxReplyRatio: math.NaN(), LockoutRequires: 2}},
		{Name: "t", Protocol: TCP, Listen: at, Upstream: ":80", TCP: TCPOptions{
			MaxConnections: -1, MaxConnectionsPerIP: -1, DialTimeout: -1, FirstByteTimeout: -1, IdleTimeout: -1,
			Queue:   limiter.Queue{Limit: -1, Order: 9, MaxWait: -1},
			OnLimit: 9, Reject: 9,
		}},
		{Name: "q", Listen: at, Upstream: Echo, TCP: TCPOptions{Queue: limiter.Queue{Limit: MaxQueueLimit + 1}}},
		{Name: "m", Listen: netip.MustParseAddrPort("224.0.0.1:7000"), Upstream: Echo},
	}})
	require.Error(t, err)
	for _, want := range []string{
		"Engine is nil",
		"listener a: Name is not unique",
		"listener a: Listen: 0.0.0.0:7000 overlaps 127.0.0.1:7000 of listener a",
		`listener a: Upstream: "nowhere"`,
		"listener #3: Name is empty",
		"listener #3: Protocol: protocol(7)",
		"listener #3: Listen: no address",
		`listener #3: Upstream: "host:0": port`,
		"UDP.SessionIdle", "UDP.MaxSessions", "UDP.MaxDatagram: 65508", "UDP.MaxReplyRatio: NaN is outside 0..1000", "UDP.LockoutRequires: 2 is neither",
		`listener t: Upstream: ":80"`,
		"TCP.MaxConnections:", "TCP.MaxConnectionsPerIP", "TCP.DialTimeout", "TCP.FirstByteTimeout",
		"TCP.Queue.Limit: -1 is outside 0..1048576", "TCP.Queue.Order", "TCP.Queue.MaxWait",
		"TCP.IdleTimeout", "TCP.OnLimit", "TCP.Reject",
		"listener q: TCP.Queue.Limit: 1048577 is outside 0..1048576",
		"listener q: TCP.Queue.Limit: 1048577 on a udp listener",
		"listener m: Listen: 224.0.0.1:7000 is a multicast",
	} {
		assert.ErrorContains(t, err, want)
	}
	_, err = StartGateway(GatewayConfig{})
	assert.ErrorContains(t, err, "no listeners")
}

func TestOverlap(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{"127.0.0.1:1", "127.0.0.1:1", true},
		{"127.0.0.1:1", "127.0.0.1:2", false},
		{"127.0.0.1:1", "127.0.0.2:1", false},
		{"127.0.0.1:0", "127.0.0.1:0", false},
		{"0.0.0.0:1", "127.0.0.1:1", true},
		{"[::]:1", "127.0.0.1:1", false}, // IPv6 listeners take IPv6 only
		{"[::]:1", "[::1]:1", true},
		{"[::ffff:127.0.0.1]:1", "127.0.0.1:1", true},
	} {
		a, b := netip.MustParseAddrPort(tc.a), netip.MustParseAddrPort(tc.b)
		assert.Equal(t, tc.want, overlap(a, b), "%v %v", a, b)
		assert.Equal(t, tc.want, overlap(b, a), "%v %v", b, a)
	}
}

func TestFitCaps(t *testing.T) {
	udp := ListenerConfig{Name: "u", Upstream: "h:1"}
	tcp := ListenerConfig{Name: "t", Protocol: TCP, Upstream: "h:1"}
	fixed, fixedTCP := udp.fixedCost()+tcp.fixedCost(), tcp.fixedCost()
	written := tcp
	written.TCP.MaxConnections = 100
	queue, both := tcp, written
	queue.TCP.Queue.Limit, both.TCP.Queue.Limit = 50, 50
	for _, tc := range []struct {
		name      string
		listeners []ListenerConfig
		free      int
		want      []int // caps, nil: an error
		lowered   bool
	}{
		{"plenty", []ListenerConfig{udp, tcp}, 1 << 20, []int{10_000, 10_000}, false},
		{"fair share", []ListenerConfig{tcp, udp}, fixed + 6000, []int{3000 / fdsPerConnection, sessionsFor(3000)}, true},
		{"what one leaves goes to the other", []ListenerConfig{tcp, udp}, fixed + 12_500 + 7000*fdsPerConnection, []int{7000, 10_000}, true},
		{"written is kept", []ListenerConfig{written, udp}, fixed + 100*fdsPerConnection + 500, []int{100, sessionsFor(500)}, true},
		{"written does not fit", []ListenerConfig{written}, fixedTCP + 100*fdsPerConnection - 1, nil, false},
		{"a queue is kept", []ListenerConfig{queue, udp}, fixed + 50 + 6000, []int{3000 / fdsPerConnection, sessionsFor(3000)}, true},
		{"a queue and a cap", []ListenerConfig{both}, fixedTCP + 50 + 100*fdsPerConnection, []int{100}, false},
		{"a queue too long beside a cap", []ListenerConfig{both}, fixedTCP + 50 + 100*fdsPerConnection - 1, nil, false},
		{"a queue too long", []ListenerConfig{queue}, fixedTCP + 49, nil, false},
		{"a queue that leaves nothing", []ListenerConfig{queue}, fixedTCP + 50, nil, false},
		{"nothing left", []ListenerConfig{udp, tcp}, fixed + 1, nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out logBuffer
			err := fitCaps(tc.listeners, tc.free, 4321, loweredIn(&out))
			if tc.want == nil {
				require.ErrorContains(t, err, "4321")
				return
			}
			require.NoError(t, err)
			for i, l := range tc.listeners {
				assert.Equal(t, tc.want[i], *l.connCap(), l.Name)
			}
			assert.Equal(t, tc.lowered, len(out) > 0, "log: %s", out)
		})
	}
}

// A default that is lowered is named as in the configuration, with what to do.
func TestFitCapsSaysWhatToDo(t *testing.T) {
	for key, l := range map[string]ListenerConfig{
		"tcp.max_connections": {Name: "name", Protocol: TCP, Upstream: "h:1"},
		"udp.max_sessions":    {Name: "name", Upstream: "h:1"},
	} {
		var out logBuffer
		require.NoError(t, fitCaps([]ListenerConfig{l}, l.fixedCost()+600, 4321, loweredIn(&out)))
		_, line, _ := strings.Cut(string(out), "msg=")
		value := map[Protocol]int{TCP: 600 / fdsPerConnection, UDP: sessionsFor(600)}[l.Protocol]
		assert.Equal(t, fmt.Sprintf(`"the descriptor limit (ulimit -n) is too low for a default: raise it, or write the cap that is enough"`+
			" listener=name key=%s value=%d default=10000 limit=4321\n", key, value), line)
	}
}

// A refusal has the numbers that there are to choose from.
func TestFitCapsCountsTheQueue(t *testing.T) {
	l := ListenerConfig{Name: "t", Protocol: TCP, Upstream: "h:1"}
	l.TCP.MaxConnections, l.TCP.Queue.Limit = 100, 1000
	err := fitCaps([]ListenerConfig{l}, l.fixedCost()+800, 1024, nil)
	assert.EqualError(t, err, "netx: the caps of sessions, connections and queues need 1200 descriptors, the limit of 1024 leaves 800 for them; lower them or raise it (ulimit -n)")
}

// loweredIn is where a gateway that starts logs what it has lowered.
func loweredIn(out *logBuffer) func(*ListenerConfig, int) {
	return (&change{Gateway: &Gateway{frame: frame{log: textLog(out)}}}).lowered
}

func sessionsFor(fds int) int { return fds * quarantineShare / (quarantineShare + 1) }

type logBuffer []byte

func (b *logBuffer) Write(p []byte) (int, error) { *b = append(*b, p...); return len(p), nil }

func TestSelfAddrs(t *testing.T) { // C77
	var s selfAddrs
	assert.False(t, s.has(netip.MustParseAddrPort("127.0.0.1:7000")))
	s.add(netip.MustParseAddrPort("127.0.0.1:7000"))
	s.add(netip.MustParseAddrPort("0.0.0.0:8000"))
	for addr, want := range map[string]bool{
		"127.0.0.1:7000": true, "127.0.0.2:7000": false, "127.0.0.1:7001": false,
		"127.0.0.1:8000": true, "127.9.9.9:8000": true, "[::1]:8000": false, "192.0.2.200:8000": false,
	} {
		assert.Equal(t, want, s.has(netip.MustParseAddrPort(addr)), addr)
		assert.Equal(t, want, s.reaches(netip.MustParseAddrPort(addr)), addr)
	}
	for addr, want := range map[string]bool{
		"0.0.0.0:7000": true, "0.0.0.0:8000": true, "0.0.0.0:7001": false, "[::]:7000": false,
		"[::ffff:127.0.0.1]:7000": true,
	} {
		assert.Equal(t, want, s.reaches(netip.MustParseAddrPort(addr)), addr)
	}
}

func TestLogGate(t *testing.T) { // C65, C106
	synctest.Test(t, func(t *testing.T) {
		var (
			g     logGate
			lines []int64
		)
		for range 100_000 {
			if n, ok := g.pass(); ok {
				lines = append(lines, n)
			}
		}
		time.Sleep(logEvery)
		for range 3 {
			if n, ok := g.pass(); ok {
				lines = append(lines, n)
			}
		}
		assert.Equal(t, []int64{0, 99_999}, lines)
	})
}
