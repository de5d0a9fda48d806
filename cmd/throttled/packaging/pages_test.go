package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/cli"
)

func TestWrittenPages(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, write(folder, "2026-11-30"))
	for _, name := range []string{"throttled.bash", "_throttled", "throttled.fish"} {
		assert.Contains(t, read(t, filepath.Join(folder, name)), "__complete", name)
	}
	command, file := read(t, filepath.Join(folder, "throttled.1")), read(t, filepath.Join(folder, "throttled.yaml.5"))
	for _, c := range cli.Command().Commands() {
		assert.Equal(t, c.IsAvailableCommand(), strings.Contains(command, "\n.SS throttled "+c.Name()), c.Name())
	}
	assert.Contains(t, command, "\n.TP\n\\fB\\-c, \\-\\-config FILE\\fR\n")
	assert.Contains(t, command, "\\fB\\-\\-json\\fR\nprint JSON\n", "which looks like no value of the flag")
	assert.Contains(t, command, "\\fB\\-\\-text\\fR\nprint readable text\n")
	for _, k := range fileKeys() {
		assert.Contains(t, file, "\n\\fB"+k.path+"\\fR: ", k.path)
		assert.NotEmpty(t, k.meaning, k.path)
	}
	assert.Contains(t, file, "\\fBpolicies[].capacity\\fR: 1..2147483647; default \\fB64\\fR\n")

	man, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("no groff to read the pages")
	}
	for _, name := range []string{"throttled.1", "throttled.yaml.5"} {
		cmd := exec.Command(man, "-man", "-ww", "-z", filepath.Join(folder, name))
		complaints, err := cmd.CombinedOutput()
		assert.NoError(t, err)
		assert.Empty(t, string(complaints))
	}
}

func TestEscape(t *testing.T) {
	assert.Equal(t, `a\-b \fB\-\-c\fR \e \(aq`, roff("a-b `--c` \\ '"))
	assert.Equal(t, "\\&.x\ny", roff(".x\ny"))
}
