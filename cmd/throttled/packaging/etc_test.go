package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/config"
)

const root = "../../.." // of the repository

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(data)
}

// uncommented is the packaged configuration with every key in force.
func uncommented(t *testing.T) string {
	t.Helper()
	return regexp.MustCompile(`(?m)^( *)#(\w+:)`).ReplaceAllString(read(t, "etc/throttled.yaml"), "$1$2")
}

// flat gives the values of a file by the paths that fileKeys has.
func flat(to map[string][]any, path string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			flat(to, strings.TrimPrefix(path+"."+name, "."), member)
		}
	case []any:
		for _, member := range v {
			flat(to, path+"[]", member)
		}
		if len(v) == 0 {
			to[path] = append(to[path], v)
		}
	default:
		to[path] = append(to[path], v)
	}
}

// The packaged configuration shows every key, and as a comment with its default.
func TestPackagedConfigurationShowsEveryKey(t *testing.T) {
	c, err := config.Parse("throttled.yaml", []byte(read(t, "etc/throttled.yaml")))
	require.NoError(t, err)
	assert.Empty(t, c.Warnings)
	_, err = config.Parse("uncommented", []byte(uncommented(t)))
	require.NoError(t, err)
	var inForce, all map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "etc/throttled.yaml")), &inForce))
	require.NoError(t, yaml.Unmarshal([]byte(uncommented(t)), &all))
	active, shown := map[string][]any{}, map[string][]any{}
	flat(active, "", inForce)
	flat(shown, "", all)
	for _, k := range fileKeys() {
		values, found := shown[k.path]
		isParent := slices.ContainsFunc(slices.Collect(maps.Keys(shown)), func(s string) bool { return strings.HasPrefix(s, k.path+".") })
		assert.True(t, found || isParent, "%s is missing", k.path)
		if _, there := active[k.path]; !there && k.missing != "" && found {
			for _, v := range values {
				if v == "" {
					v = `""`
				}
				assert.Equal(t, k.missing, fmt.Sprint(v), k.path)
			}
		}
	}
}

// Recipes are good files, and what they name as beginning is one, too.
func TestRecipes(t *testing.T) {
	files, err := filepath.Glob("recipes/*.yaml")
	require.NoError(t, err)
	require.Len(t, files, 3)
	for _, name := range files {
		for _, text := range []string{read(t, name), strings.Replace(read(t, name), "#dry_run", "dry_run", 1)} {
			c, err := config.Parse(name, []byte(text))
			require.NoError(t, err)
			assert.Empty(t, c.Warnings, name)
		}
	}
}
