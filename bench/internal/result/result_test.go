package result_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/bench/internal/result"
)

func report() *result.Report {
	r := &result.Report{Command: "udp", Machine: "a machine"}
	f := r.Figure("CPU", "ns", "peer")
	for i, ours := range []float64{400, 100, 300} {
		r.Figure("CPU", "ns", "peer").Add("ours", ours)
		f.Add("peer", []float64{800, 100, 1200}[i])
	}
	r.Figure("allocations", "each", "").Add("ours", 0.05)
	r.Note("a %s", "remark")
	r.Note("a remark")
	return r
}

func TestMarkdown(t *testing.T) {
	var b strings.Builder
	require.NoError(t, report().Markdown(&b))
	assert.Equal(t, `**CPU, ns**

| | median | min–max | ÷ peer | min–max |
|---|--:|--:|--:|--:|
| ours | 300 | 100–400 | 0.50 | 0.25–1.00 |
| peer | 800 | 100–1200 | | |

**allocations, each**

| | median | min–max |
|---|--:|--:|
| ours | 0.05 | 0.05–0.05 |

- a remark
- a machine, `+"`udp`\n", b.String())
}

func TestJSONHasRatiosOfRounds(t *testing.T) {
	data, err := json.Marshal(report())
	require.NoError(t, err)
	assert.JSONEq(t, `{"command":"udp","machine":"a machine","notes":["a remark"],"figures":[
		{"name":"CPU","unit":"ns","base":"peer","lines":[
			{"who":"ours","samples":[400,100,300],"value":{"median":300,"min":100,"max":400},"ratio":{"median":0.5,"min":0.25,"max":1}},
			{"who":"peer","samples":[800,100,1200],"value":{"median":800,"min":100,"max":1200},"ratio":{"median":1,"min":1,"max":1}}]},
		{"name":"allocations","unit":"each","base":"","lines":[
			{"who":"ours","samples":[0.05],"value":{"median":0.05,"min":0.05,"max":0.05}}]}]}`, string(data))
}

func TestMedianOfALine(t *testing.T) {
	f := report().Figures[0]
	m, ok := f.Median("ours")
	assert.True(t, ok)
	assert.Equal(t, 300.0, m)
	_, ok = f.Median("nobody")
	assert.False(t, ok)
}

func TestNumbers(t *testing.T) {
	n := result.Numbers{1}
	require.NoError(t, n.Set("10,200"))
	assert.Equal(t, result.Numbers{10, 200}, n)
	assert.Equal(t, "10,200", n.String())
	require.NoError(t, n.Set(""))
	assert.Empty(t, n)
	for _, bad := range []string{"a", "0", "1,", "-3"} {
		assert.Error(t, n.Set(bad), "%q", bad)
	}
}
