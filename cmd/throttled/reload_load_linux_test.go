package main

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The load of TestReloadUnderLoad: 22,000 datagrams a second, on an idle machine.
const (
	loadClients = 10
	loadEach    = 11 // datagrams of a client at a time
	loadTick    = 5 * time.Millisecond
	loadReloads = 20
	loadBudget  = 1000 // capacity
)

// loadRate is the refill of the file that is read as the nth.
func loadRate(n int) float64 { return []float64{500, 1900, 50}[n%3] }

func loadFile(t *testing.T, c configFile, upstream string, n int) {
	t.Helper()
	other := ""
	if n%2 == 1 {
		other = fmt.Sprintf(", {name: other, protocol: tcp, listen: 127.0.0.1:0, upstream: echo, tcp: {idle_timeout: %ds}}", n+1)
	}
	c.rewrite(t, fmt.Sprintf("{name: default, capacity: %d, refill: %g/s, lockout: off}, "+
		"{name: strict, capacity: 5, refill: 1/h, violations: {max: 2}, lockout: {base: 1h}}", loadBudget, loadRate(n)),
		", {name: game, protocol: udp, listen: 127.0.0.1:0, upstream: '"+upstream+"'}"+
			", {name: strict, protocol: udp, listen: 127.0.0.1:0, upstream: echo, policy: strict}"+other,
		fmt.Sprintf("exempt: [192.0.2.0/%d]\ndeny: [198.51.100.%d]\n", 24+n%8, n))
}

// An upstream knows the sessions by what their first byte says.
type loadUpstream struct {
	conn *net.UDPConn
	mu   sync.Mutex
	got  [loadClients]int
	from [loadClients]map[string]bool
}

func newLoadUpstream(t *testing.T) *loadUpstream {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	require.NoError(t, conn.SetReadBuffer(4<<20))
	u := &loadUpstream{conn: conn}
	var wg sync.WaitGroup
	wg.Go(func() {
		buf := make([]byte, 64)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			u.mu.Lock()
			if n > 0 && int(buf[0]) < loadClients {
				u.got[buf[0]]++
				if u.from[buf[0]] == nil {
					u.from[buf[0]] = map[string]bool{}
				}
				u.from[buf[0]][from.String()] = true
			}
			u.mu.Unlock()
		}
	})
	t.Cleanup(func() { conn.Close(); wg.Wait() })
	return u
}

// Twenty reloads that change rates and lists, with a listener that comes and goes,
// under 20,000 datagrams a second: no session ends, nobody gets a token that he
// would not have got anyway, who is locked out stays so, and every datagram is
// accounted for. C98, C100
func TestReloadUnderLoad(t *testing.T) {
	c, up := newConfig(t, ""), newLoadUpstream(t)
	loadFile(t, c, up.conn.LocalAddr().String(), 0)
	g := start(t, "-c", c.path)
	bad := from(t, "127.0.8.1", g.addr["strict"])
	for range 5 {
		echoes(t, bad, "x")
	}
	for range 3 {
		_, err := bad.Write([]byte("x"))
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return g.listener("strict")["Packets"] == 8.0 }, patience, time.Millisecond)
	locked := g.lockedFor("127.0.8.1")
	lockedAt := time.Now()

	var (
		wg   sync.WaitGroup
		sent [loadClients]int
		stop = make(chan struct{})
	)
	began := time.Now()
	for i := range loadClients {
		conn := from(t, fmt.Sprintf("127.0.7.%d", i+1), g.addr["game"])
		wg.Go(func() {
			tick := time.NewTicker(loadTick)
			defer tick.Stop()
			for {
				for range loadEach {
					if _, err := conn.Write([]byte{byte(i), 1, 2, 3}); !assert.NoError(t, err) {
						return
					}
					sent[i]++
				}
				select {
				case <-stop:
					return
				case <-tick.C:
				}
			}
		})
	}
	most, least := float64(loadBudget), float64(loadBudget) // tokens that there were
	last := began
	for n := 1; n <= loadReloads; n++ {
		time.Sleep(100 * time.Millisecond) // of load
		loadFile(t, c, up.conn.LocalAddr().String(), n)
		asked := time.Now()
		g.ask("reload")
		answered := time.Now()
		most += loadRate(n-1)*asked.Sub(last).Seconds() + max(loadRate(n-1), loadRate(n))*answered.Sub(asked).Seconds()
		least += loadRate(n-1)*asked.Sub(last).Seconds() + min(loadRate(n-1), loadRate(n))*answered.Sub(asked).Seconds()
		last = answered
		assert.Equal(t, n%2 == 1, g.listener("other") != nil)
		_, err := bad.Write([]byte("x"))
		require.NoError(t, err)
	}
	close(stop)
	wg.Wait()
	took := time.Since(began)
	most += loadRate(loadReloads) * time.Since(last).Seconds()

	total := 0
	for _, n := range sent {
		total += n
	}
	require.Eventually(t, func() bool { return g.listener("game")["Packets"] == float64(total) }, patience, 10*time.Millisecond,
		"of %d: %v", total, g.listener("game"))
	t.Logf("%d datagrams in %v, %.0f a second", total, took, float64(total)/took.Seconds())
	game := g.listener("game")
	passed := 0
	require.Eventually(t, func() bool {
		up.mu.Lock()
		defer up.mu.Unlock()
		passed = 0
		for _, n := range up.got {
			passed += n
		}
		return float64(passed) == game["Forwarded"]
	}, patience, 10*time.Millisecond, "the upstream has not got what was forwarded: %d of %v", passed, game)
	assert.Equal(t, float64(total), game["Forwarded"].(float64)+game["Dropped"].(map[string]any)["soft_throttle"].(float64))
	assert.Equal(t, float64(loadClients), game["SessionsActive"])
	for i := range loadClients {
		assert.Len(t, up.from[i], 1, "client %d has had more than one session", i)
		assert.LessOrEqual(t, float64(up.got[i]), most+1, "client %d has got more than its refill", i)
		assert.GreaterOrEqual(t, float64(up.got[i]), min(least, float64(sent[i]))*0.95, "client %d has got less", i)
	}
	assert.InDelta(t, (locked - time.Since(lockedAt)).Seconds(), g.lockedFor("127.0.8.1").Seconds(), 1, "the end of the lockout has moved")
	assert.Equal(t, 5.0, g.listener("strict")["Forwarded"])
	assert.Len(t, g.waitLogs("configuration reloaded", loadReloads), loadReloads)
}

// lockedFor is how long an endpoint is still locked out.
func (g *gateway) lockedFor(endpoint string) time.Duration {
	g.t.Helper()
	_, bans := get(g.t, g.admin, "/v1/bans")
	for _, l := range bans["lockouts"].([]any) {
		if l := l.(map[string]any); strings.HasPrefix(l["endpoint"].(string), endpoint) {
			return time.Duration(l["left_ms"].(float64)) * time.Millisecond
		}
	}
	require.Fail(g.t, "not locked out", "%s: %v", endpoint, bans)
	return 0
}
