package config

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// again reads what Tree writes, which must say the same.
func again(t *testing.T, c *Config) *Config {
	t.Helper()
	written, err := json.Marshal(c.Tree())
	require.NoError(t, err)
	read, err := Parse("again", written)
	require.NoError(t, err, "%s", written)
	rewritten, err := json.Marshal(read.Tree())
	require.NoError(t, err)
	require.Equal(t, string(written), string(rewritten))
	return read
}

func TestTree(t *testing.T) {
	c, err := Parse("full.yaml", []byte(full))
	require.NoError(t, err)
	read := again(t, c)
	for _, c := range []*Config{c, read} { // a policy with its defaults written out is the same policy
		c.Engine.Default = c.Engine.Default.WithDefaults()
		for i, p := range c.Engine.Policies {
			c.Engine.Policies[i] = p.WithDefaults()
		}
	}
	require.Equal(t, fmt.Sprintf("%+v", c.Engine.Load), fmt.Sprintf("%+v", read.Engine.Load))
	c.Engine.Load, read.Engine.Load = nil, nil
	assert.Equal(t, c, read)

	// Every key that a file can have is there.
	written, err := json.Marshal(c.Tree())
	require.NoError(t, err)
	for _, key := range regexp.MustCompile(`(\w+):[ \n]`).FindAllStringSubmatch(full, -1) {
		if key[1] != "token_file" && key[1][0] > '9' { // "" here, or an opcode, which it writes in its own way
			assert.Contains(t, string(written), `"`+key[1]+`":`)
		}
	}
}

func TestTreeOfLittle(t *testing.T) {
	c := New()
	assert.Equal(t, c, withoutDefaults(again(t, c)))
	again(t, Default())
	for _, file := range []string{
		"policies: [{name: default, refill: 100/m, initial: empty, lockout: {growth: 1.5}, bytes: {refill: 1MB/h}}]",
		"policies: [{name: x, refill: 1/h, initial: 7, lockout: off}]",
		"engine: {adaptive: {enabled: false, low: 0.0000001}}",
		`listeners: [{name: "<é&'\\\"😀>", protocol: udp, listen: "[::1]:7", upstream: echo}]`,
	} {
		c, err := Parse("f", []byte(file))
		require.NoError(t, err, file)
		again(t, c)
	}
}

func withoutDefaults(c *Config) *Config {
	c.Engine.Default = New().Engine.Default
	return c
}

// A token is never shown, though the file that has it is.
func TestTreeHasNoSecrets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(path, []byte("s3cret"), 0o600))
	file := filepath.Join(t.TempDir(), "f.yaml")
	require.NoError(t, os.WriteFile(file, []byte("admin: {token_file: "+path+"}"), 0o600))
	c, err := Load(file)
	require.NoError(t, err)
	written, err := json.Marshal(c.Tree())
	require.NoError(t, err)
	assert.NotContains(t, string(written), "s3cret")
	assert.True(t, strings.Contains(string(written), path))
}
