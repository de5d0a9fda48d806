package engine_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/seed-ee4278a0/throttled/"

// list runs go list and returns the lines that it prints.
func list(t *testing.T, args ...string) []string {
	out, err := exec.Command("go", append([]string{"list"}, args...)...).Output()
	require.NoError(t, err)
	return strings.Fields(string(out))
}

// Imports run down the chain only, and what stands above engine brings nothing
// into a program that embeds it.
func TestImportDirections(t *testing.T) {
	chain := []string{"tokenbucket", "policy", "shard", "engine", "netx", "cmd"}
	rank := func(path string) int {
		for i, name := range chain {
			if rest, ok := strings.CutPrefix(path, module+name); ok && (rest == "" || rest[0] == '/') {
				return i
			}
		}
		return -1
	}
	for _, line := range list(t, "-f", `{{.ImportPath}}={{join .Imports ","}}`, module+"...") {
		path, imports, _ := strings.Cut(line, "=")
		require.NotEqual(t, -1, rank(path), "%s has no place in the chain", path)
		for _, imported := range strings.Split(imports, ",") {
			if strings.HasPrefix(imported, module) {
				require.LessOrEqual(t, rank(imported), rank(path), "%s imports %s", path, imported)
			}
		}
	}
	allowed := map[string][]string{
		"tokenbucket": {"tokenbucket"},
		"policy":      {"tokenbucket", "policy"},
		"shard":       {"tokenbucket", "policy", "shard", "github.com/cespare/xxhash/v2"},
		"engine":      {"tokenbucket", "policy", "shard", "engine", "github.com/cespare/xxhash/v2", "github.com/gaissmai/bart"},
	}
	for name, want := range allowed {
		for _, path := range list(t, "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", module+name) {
			ok := false
			for _, w := range want {
				full := w
				if !strings.Contains(w, ".") {
					full = module + w
				}
				ok = ok || path == full || strings.HasPrefix(path, full+"/internal/")
			}
			require.True(t, ok, "%s depends on %s", name, path)
		}
	}
}
