package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/config"
	"github.com/seed-ee4278a0/throttled/netx"
)

var update = flag.Bool("update", false, "write the table of keys into README.md")

// table is what README.md says about the keys.
func table(keys []key) string {
	var b strings.Builder
	b.WriteString("| key | allowed | default | meaning |\n|---|---|---|---|\n")
	for _, k := range keys {
		missing := k.missing
		if missing != "" {
			missing = "`" + missing + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.path, k.value, missing, k.meaning)
	}
	return b.String()
}

// The table of keys in README.md is that of the schema.
func TestREADMEHasTheKeys(t *testing.T) {
	const file = root + "/README.md"
	readme := read(t, file)
	old := regexp.MustCompile(`(?m)^\| key \|.*\n(\|.*\n)*`)
	require.Len(t, old.FindAllString(readme, -1), 1)
	want := table(fileKeys())
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(old.ReplaceAllLiteralString(readme, want)), 0o644))
		return
	}
	assert.Equal(t, want, old.FindString(readme), "go test ./cmd/throttled/packaging -run README -update")
}

// Whoever copies an example of README.md has a configuration.
func TestREADMEExamplesAreConfigurations(t *testing.T) {
	examples := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllStringSubmatch(read(t, root+"/README.md"), -1)
	assert.NotEmpty(t, examples)
	for _, e := range examples {
		_, err := config.Parse("README.md", []byte(e[1]))
		assert.NoError(t, err, e[1])
	}
}

func TestREADMEHasTheReasons(t *testing.T) {
	readme := read(t, root+"/README.md")
	for _, r := range netx.DropReasons() {
		assert.Regexp(t, "(?m)^\\|[^|]*`"+r+"`[^|]*\\|", readme)
	}
}

func TestKeysAreInTheOrderOfTheSchema(t *testing.T) {
	keys := fileKeys()
	assert.Equal(t, key{"admin.listen", "ip:port, `unix:PATH`, `off`", "127.0.0.1:9190", keys[0].meaning}, keys[0])
	i := indexOf(t, keys, "policies[].lockout")
	assert.Equal(t, "`off`, a mapping", keys[i].value)
	assert.Equal(t, key{"policies[].lockout.base", "duration", "30s", "length of a lockout"}, keys[i+1])
	assert.Equal(t, "1..65536", keys[indexOf(t, keys, "engine.shards")].value)
	assert.Equal(t, "`rst`, `close`, `silent`", keys[indexOf(t, keys, "listeners[].tcp.reject")].value)
}

func indexOf(t *testing.T, keys []key, path string) int {
	t.Helper()
	for i, k := range keys {
		if k.path == path {
			return i
		}
	}
	require.Fail(t, "no key", path)
	return -1
}
