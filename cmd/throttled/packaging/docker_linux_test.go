package main

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// instructions gives those of the Dockerfile by name, the last stage's alone
// where last is set.
func instructions(t *testing.T, last bool) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for line := range strings.Lines(read(t, "Dockerfile")) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "FROM" && last {
			found = map[string][]string{}
		}
		found[name] = append(found[name], rest)
	}
	return found
}

func TestDockerfileCopiesWhatIsThere(t *testing.T) {
	file := instructions(t, false)
	var copied []string
	for _, arguments := range file["COPY"] {
		made := false
		words := strings.Fields(arguments)
		for _, source := range words[:len(words)-1] {
			switch {
			case source == "--from=build":
				made = true
			case strings.HasPrefix(source, "--"):
			case made:
				assert.Contains(t, strings.Join(file["RUN"], "\n"), source, "made by a RUN")
			default:
				_, err := os.Stat(filepath.Join(root, source))
				assert.NoError(t, err)
				copied = append(copied, source)
			}
		}
	}
	// Every package that the program is made of is among it.
	const module = "github.com/seed-ee4278a0/throttled/"
	out, err := exec.Command("go", "list", "-deps", module+"cmd/throttled").Output()
	require.NoError(t, err)
	for path := range strings.Lines(string(out)) {
		if inside, ours := strings.CutPrefix(strings.TrimSpace(path), module); ours {
			assert.Contains(t, copied, strings.Split(inside, "/")[0], path)
		}
	}
}

func TestImageRunsAsNobodyWithoutAShell(t *testing.T) {
	image := instructions(t, true)
	assert.Equal(t, []string{"gcr.io/distroless/static-debian12"}, image["FROM"])
	assert.Regexp(t, `^[1-9][0-9]*:[1-9][0-9]*$`, image["USER"][0])
	assert.Empty(t, image["RUN"])
	for _, name := range []string{"ENTRYPOINT", "CMD"} {
		assert.Regexp(t, `^\["`, image[name][0], name)
	}
	assert.Regexp(t, `CMD \["/usr/bin/throttled", "report"\]$`, image["HEALTHCHECK"][0])
}

// The command that builds the image's program makes one that needs no library.
func TestImageProgramIsStatic(t *testing.T) {
	program := filepath.Join(t.TempDir(), "throttled")
	for _, command := range instructions(t, false)["RUN"] {
		if strings.Contains(command, "go build") {
			sh := exec.Command("sh", "-c", strings.ReplaceAll(command, "/out/throttled", program))
			sh.Dir, sh.Env = root, append(os.Environ(), "TARGETOS="+runtime.GOOS, "TARGETARCH="+runtime.GOARCH)
			out, err := sh.CombinedOutput()
			require.NoError(t, err, "%s", out)
		}
	}
	assertStatic(t, program)
}

// assertStatic holds that a program needs neither a loader nor libraries.
func assertStatic(t *testing.T, path string) {
	t.Helper()
	f, err := elf.Open(path)
	require.NoError(t, err)
	defer f.Close()
	for _, p := range f.Progs {
		assert.NotEqual(t, elf.PT_INTERP, p.Type, "an interpreter")
	}
	libraries, err := f.ImportedLibraries()
	require.NoError(t, err)
	assert.Empty(t, libraries)
}
