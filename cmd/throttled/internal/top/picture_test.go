package top

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/history"
	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/serve"
	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/netx"
)

func TestPicture(t *testing.T) {
	p := &picture{
		address: "127.0.0.1:9190",
		report: serve.Report{
			Report: engine.Report{
				UtcNow: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), RefillRatio: 0.625,
				TrackedEndpoints: 12, PeakTrackedEndpoints: 30, MaxTrackedEndpoints: 100, HardBlockedCount: 1, SoftWarningCount: 2,
				Top: []engine.EndpointReport{
					{Endpoint: "192.0.2.1", Policy: "default", LockedForMs: 29_510, Denied: 12345},
					{Endpoint: "2001:db8::/64", Policy: "status", Tokens: 7, SoftViolations: 3, Denied: 8, DryRun: true},
					{Endpoint: "\x1b[2Jevil", Policy: "default", Denied: 1},
				},
			},
			Listeners: []netx.ListenerReport{
				{Name: "game", Protocol: "udp", SessionsActive: 3}, {Name: "web", Protocol: "tcp", ConnectionsActive: 1},
				{Name: "new", Protocol: "udp"},
			},
		},
		first: history.Sample{Seq: 10, Listeners: []history.Listener{
			{Name: "game", Packets: 1000, Bytes: 50_000, Replies: 900, ReplyBytes: 0, Dropped: map[string]int64{"kernel": 5, "self": 1}},
			{Name: "web", Packets: 1000}, // and was started again since
		}},
		last: history.Sample{Seq: 12, Listeners: []history.Listener{
			{Name: "game", Packets: 3000, Bytes: 60_000, Replies: 905, ReplyBytes: 8000, Dropped: map[string]int64{"kernel": 205, "soft_throttle": 3, "self": 1}},
			{Name: "web", Packets: 40, WouldDrop: map[string]int64{"denied": 20, "soft_throttle": 22}},
			{Name: "new", Packets: 40},
		}},
	}
	assert.Equal(t, strings.TrimPrefix(`
throttled at 127.0.0.1:9190   2026-01-02 03:04:05 UTC   refill 62 % of its rate
endpoints 12 (most 30, room for 100)   locked out 1   warned 2

LISTENER  PROTO  IN/s  OUT/s  kB/s IN  kB/s OUT  OPEN  DROPPED/s  REASONS/s
game      udp    1000    2.5      5.0       4.0     3        102  kernel 100, soft_throttle 1.5
web       tcp      20      0        0         0     1          0  dry run: soft_throttle 11, denied 10
new       udp       -      -        -         -     0          -

ENDPOINT       POLICY            TOKENS  VIOLATIONS  LOCKED FOR  DENIED
192.0.2.1      default                0           0       29.5s   12345
2001:db8::/64  status (dry run)       7           3           -       8
?[2Jevil       default                0           0           -       1`, "\n"), strings.Join(p.lines(), "\n"))

	p.report.Top = nil
	assert.Contains(t, p.lines(), "No endpoint was ever denied.")
}
