package metrics

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/netx"
)

func listeners() []netx.ListenerReport {
	return []netx.ListenerReport{
		{
			Name: "game", Protocol: "udp", Packets: 10, Bytes: 1000, Forwarded: 6, Replies: 5, ReplyBytes: 500, RepliesSuppressed: 6,
			ReceiveBufferDropped: 8,
			Dropped:              map[string]int64{"soft_throttle": 3, "kernel": 1}, SessionsActive: 2,
		},
		{
			Name: "web", Protocol: "tcp", Packets: 4, Bytes: 40, Forwarded: 4, ReplyBytes: 400,
			WouldDrop: map[string]int64{"hard_lockout": 2}, ConnectionsActive: 3,
		},
	}
}

func source() Source {
	return Source{
		Listeners: listeners,
		Engine: func() engine.Summary {
			return engine.Summary{
				TrackedEndpoints: 7, PeakTrackedEndpoints: 9, HardBlockedCount: 2, Lockouts: 4, Evicted: 5, RefillRatio: 0.5,
			}
		},
		Restarts: func() int64 { return 1 },
		Reloaded: func() bool { return true },
	}
}

func scrape(t *testing.T, h http.Handler) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, w.Code)
	return w.Body.String()
}

// samples are the lines of a scrape that are the gateway's own.
func samples(text string) (lines []string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "throttled_") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

func TestEveryMetric(t *testing.T) {
	s := source()
	text := scrape(t, NewHandler(s, slog.New(slog.DiscardHandler)))
	got := samples(text)
	want := []string{
		`throttled_packets_total{direction="in",listener="game"} 10`,
		`throttled_packets_total{direction="out",listener="game"} 5`,
		`throttled_packets_total{direction="in",listener="web"} 4`,
		`throttled_packets_total{direction="out",listener="web"} 0`,
		`throttled_bytes_total{direction="in",listener="game"} 1000`,
		`throttled_bytes_total{direction="out",listener="game"} 500`,
		`throttled_bytes_total{direction="in",listener="web"} 40`,
		`throttled_bytes_total{direction="out",listener="web"} 400`,
		`throttled_dropped_total{listener="game",reason="soft_throttle"} 3`,
		`throttled_dropped_total{listener="game",reason="kernel"} 1`,
		`throttled_dropped_total{listener="web",reason="queue_full"} 0`,
		`throttled_would_drop_total{listener="web",reason="hard_lockout"} 2`,
		`throttled_replies_suppressed_total{listener="game"} 6`,
		`throttled_receive_buffer_dropped_total{listener="game"} 8`,
		`throttled_endpoints 7`,
		`throttled_endpoints_peak 9`,
		`throttled_locked_endpoints 2`,
		`throttled_lockouts_total 4`,
		`throttled_evicted_total 5`,
		`throttled_sessions_active{listener="game"} 2`,
		`throttled_connections_active{listener="web"} 3`,
		`throttled_refill_ratio 0.5`,
		`throttled_config_reload_success 1`,
		`throttled_engine_restarts_total 1`,
	}
	assert.Subset(t, got, want)
	reasons := 2 * 2 * len(netx.DropReasons()) // dropped and would-drop, of two listeners
	assert.Len(t, got, 8+reasons+12)
	assert.Contains(t, text, "\ngo_goroutines ")
	assert.Contains(t, text, "\nprocess_open_fds ")

	s.Reloaded = func() bool { return false }
	assert.Contains(t, samples(scrape(t, NewHandler(s, slog.New(slog.DiscardHandler)))), `throttled_config_reload_success 0`)
}

func TestLint(t *testing.T) {
	text := scrape(t, NewHandler(source(), slog.New(slog.DiscardHandler)))
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	require.NoError(t, err)
	assert.Empty(t, problems)
}
