package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A datagram to 127.0.0.1:7000 in a raw capture, and one that is cut off.
const captured = "\xd4\xc3\xb2\xa1\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x00\x00\x65\x00\x00\x00" +
	"\x00\x00\x00\x60\x00\x00\x00\x00\x1c\x00\x00\x00\x1e\x00\x00\x00" +
	"E\x00\x00\x1e\x00\x00\x00\x00\x40\x11\x00\x00\xcb\x00\x71\x01\x7f\x00\x00\x01" + "\x10\x00\x1b\x58\x00\x0a\x00\x00" +
	"\x01\x00\x00\x60"

func TestReplay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, capture := filepath.Join(dir, "throttled.yaml"), filepath.Join(dir, "cut.pcap")
	require.NoError(t, os.WriteFile(file, []byte("listeners: [{name: a, protocol: udp, listen: 127.0.0.1:7000, upstream: echo}]\n"), 0o600))
	require.NoError(t, os.WriteFile(capture, []byte(captured), 0o600))

	got := run(t, nil, "replay", "-c", file, capture)
	assert.Equal(t, 0, got.code, got.stderr)
	assert.Contains(t, got.stdout, "warning: replay: "+capture+": packet 2 at offset 68: the capture ends in the middle of it; this is about the 1 before\n")
	assert.Contains(t, got.stdout, "a         udp       127.0.0.1:7000  1         1        2      1          0\n")

	got = run(t, []string{"THROTTLED_CONFIG=" + file, "THROTTLED_JSON=true", "THROTTLED_SUGGEST=1"}, "replay", capture)
	assert.Equal(t, 0, got.code, got.stderr)
	var r struct {
		Capture   struct{ Packets int }
		Listeners []struct{ Forwarded int }
		Suggested []struct {
			Policy   string
			Capacity int
		}
	}
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &r))
	assert.Equal(t, 1, r.Capture.Packets)
	assert.Equal(t, 1, r.Listeners[0].Forwarded)
	assert.Equal(t, "default", r.Suggested[0].Policy)
	assert.Equal(t, 1, r.Suggested[0].Capacity)

	require.NoError(t, os.WriteFile(capture, []byte(captured+"\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff"), 0o600))
	got = run(t, nil, "replay", "-c", file, capture)
	assert.Equal(t, 1, got.code)
	assert.Contains(t, got.stderr, capture+": packet 2 at offset 68: damaged")
	assert.Contains(t, got.stdout, "Forwarded")

	got = run(t, nil, "replay", "-c", file, filepath.Join(dir, "none"))
	assert.Equal(t, 1, got.code)
	assert.Contains(t, got.stderr, "throttled: replay: open "+dir+"/none: no such file")
}
