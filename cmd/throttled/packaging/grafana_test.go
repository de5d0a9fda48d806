package main

import (
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/metrics"
	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/netx"
)

// exported gives the labels of each metric that a gateway shows.
func exported(t *testing.T) map[string]map[string]bool {
	t.Helper()
	handler := metrics.NewHandler(metrics.Source{
		Listeners: func() []netx.ListenerReport {
			return []netx.ListenerReport{{Name: "u", Protocol: "udp"}, {Name: "t", Protocol: "tcp"}}
		},
		Engine:   func() engine.Summary { return engine.Summary{} },
		Restarts: func() int64 { return 0 },
		Reloaded: func() bool { return true },
	}, slog.New(slog.DiscardHandler))
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	found := map[string]map[string]bool{}
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, labels, _ := strings.Cut(strings.Fields(line)[0], "{")
		found[name] = map[string]bool{"instance": true} // that every scrape has
		for _, label := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(labels, -1) {
			found[name][label[1]] = true
		}
	}
	return found
}

// queries are all of the dashboard, those of its variables included.
func queries(value any) (found []string) {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			if text, ok := member.(string); ok && (name == "expr" || name == "definition") {
				found = append(found, text)
			}
			found = append(found, queries(member)...)
		}
	case []any:
		for _, member := range v {
			found = append(found, queries(member)...)
		}
	}
	return found
}

// The dashboard asks for metrics that there are, by labels that they have, and
// shows all of the gateway's own.
func TestDashboard(t *testing.T) {
	var dashboard map[string]any
	require.NoError(t, json.Unmarshal([]byte(read(t, "grafana.json")), &dashboard))
	metrics, asked := exported(t), map[string]bool{}
	for _, q := range queries(dashboard) {
		assert.Equal(t, strings.Count(q, "("), strings.Count(q, ")"), q)
		selectors := regexp.MustCompile(`((?:throttled|process|go)_\w+)(?:\{([^}]*)\})?`).FindAllStringSubmatch(q, -1)
		assert.NotEmpty(t, selectors, q)
		for _, s := range selectors {
			asked[s[1]] = true
			if !assert.Contains(t, metrics, s[1], q) {
				continue
			}
			for _, label := range regexp.MustCompile(`(\w+)=~?"`).FindAllStringSubmatch(s[2], -1) {
				assert.True(t, metrics[s[1]][label[1]], "label %s: %s", label[1], q)
			}
			for _, by := range regexp.MustCompile(`by \(([^)]*)\)`).FindAllStringSubmatch(q, -1) {
				for label := range strings.SplitSeq(by[1], ", ") {
					assert.True(t, metrics[s[1]][label], "label %s: %s", label, q)
				}
			}
		}
	}
	for name := range metrics {
		if strings.HasPrefix(name, "throttled_") {
			assert.True(t, asked[name], "%s is not shown", name)
		}
	}
	for _, panel := range dashboard["panels"].([]any) {
		assert.NotEmpty(t, panel.(map[string]any)["title"])
	}
}
