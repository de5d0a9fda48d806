package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWantColour(t *testing.T) {
	env := func(pairs map[string]string) func(string) string {
		return func(name string) string { return pairs[name] }
	}
	assert.True(t, wantColour(true, env(map[string]string{"TERM": "xterm"})))
	assert.False(t, wantColour(false, env(map[string]string{"TERM": "xterm"})))
	assert.False(t, wantColour(true, env(map[string]string{"TERM": "dumb"})))
	assert.False(t, wantColour(true, env(map[string]string{"TERM": "xterm", "NO_COLOR": "1"})))
}

func TestIsTerminal(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	require.NoError(t, err)
	assert.False(t, isTerminal(w))
	assert.False(t, isTerminal(file))
	require.NoError(t, file.Close())
	assert.False(t, isTerminal(file), "a closed file")
}

func TestVariable(t *testing.T) {
	assert.Equal(t, "THROTTLED_REPORT_EVERY", variable("report-every"))
}
