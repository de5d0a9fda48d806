package engine

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func write(t *testing.T, file, text string) {
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
}

// The tightest quota on the way to the root counts.
func TestCPUQuota(t *testing.T) {
	root := t.TempDir()
	_, cores := cpuQuota(root, "/a/b")
	require.Zero(t, cores)
	write(t, root+"/a/b/cpu.max", "max 100000\n")
	_, cores = cpuQuota(root, "/a/b")
	require.Zero(t, cores)
	write(t, root+"/a/cpu.max", "150000 100000\n")
	dir, cores := cpuQuota(root, "/a/b")
	require.Equal(t, 1.5, cores)
	require.Equal(t, root+"/a", dir)
	write(t, root+"/a/b/cpu.max", "400000 100000\n")
	dir, cores = cpuQuota(root, "/a/b")
	require.Equal(t, 1.5, cores)
	require.Equal(t, root+"/a", dir)
	write(t, root+"/a/b/cpu.max", "garbage")
	_, cores = cpuQuota(root, "/a/b")
	require.Equal(t, 1.5, cores)
}

func TestCgroupReader(t *testing.T) {
	file := t.TempDir() + "/cpu.stat"
	read := cgroupReader(file, 1.5)
	_, err := read()
	require.Error(t, err)
	write(t, file, "usage_usec 2500000\nuser_usec 1\n")
	times, err := read()
	require.NoError(t, err)
	require.Equal(t, 2.5, times.busy)
	write(t, file, "user_usec 1\n")
	_, err = read()
	require.ErrorContains(t, err, "usage_usec")
}

func TestMachineTimes(t *testing.T) {
	times, err := machineTimes()
	require.NoError(t, err)
	require.Greater(t, times.total, times.busy)
	require.Positive(t, times.busy)
}
