//go:build browser

package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A browser is a headless Chromium with one page, driven through the DevTools
// protocol over a pair of pipes.
type browser struct {
	t       *testing.T
	to      *os.File
	session string
	last    int
	replies chan reply
}

type reply struct {
	ID     int
	Result json.RawMessage
	Error  *struct{ Message string }
}

// browse starts a browser for the time of a test.
func browse(t *testing.T) *browser {
	t.Helper()
	fromUs, to, err := os.Pipe()
	require.NoError(t, err)
	from, toUs, err := os.Pipe()
	require.NoError(t, err)
	cmd := exec.Command("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
		"--user-data-dir="+t.TempDir(), "--remote-debugging-pipe")
	cmd.ExtraFiles = []*os.File{fromUs, toUs} // 3 and 4
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	require.NoError(t, cmd.Start(), "these tests need Debian's package chromium")
	b := &browser{t: t, to: to, replies: make(chan reply, 100)}
	go b.read(from)
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the group is its own
		cmd.Wait()
		for _, f := range []*os.File{fromUs, to, from, toUs} {
			f.Close()
		}
	})
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	b.size(1200, 1500)
	return b
}

// read passes on answers. Events have no number and are dropped.
func (b *browser) read(from *os.File) {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes(0)
		if err != nil {
			close(b.replies)
			return
		}
		var r reply
		if json.Unmarshal(line[:len(line)-1], &r) == nil && r.ID != 0 {
			b.replies <- r
		}
	}
}

func (b *browser) call(method string, params, result any) {
	b.t.Helper()
	b.last++
	message := map[string]any{"id": b.last, "method": method, "params": params}
	if b.session != "" {
		message["sessionId"] = b.session
	}
	data, err := json.Marshal(message)
	require.NoError(b.t, err)
	_, err = b.to.Write(append(data, 0))
	require.NoError(b.t, err)
	deadline := time.After(3 * patience)
	for {
		select {
		case r, ok := <-b.replies:
			require.True(b.t, ok, "the browser is gone")
			if r.ID != b.last {
				continue
			}
			require.Nil(b.t, r.Error, "%s: %+v", method, r.Error)
			if result != nil {
				require.NoError(b.t, json.Unmarshal(r.Result, result))
			}
			return
		case <-deadline:
			require.Fail(b.t, "no answer", method)
		}
	}
}

func (b *browser) size(width, height int) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
}

func (b *browser) open(url string) {
	b.t.Helper()
	b.call("Page.navigate", map[string]any{"url": url}, nil)
}

// eval returns what an expression is worth on the page.
func (b *browser) eval(expression string) any {
	b.t.Helper()
	var got struct {
		Result           struct{ Value any }
		ExceptionDetails json.RawMessage
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &got)
	require.Empty(b.t, string(got.ExceptionDetails), expression)
	return got.Result.Value
}

// wait waits until an expression is true.
func (b *browser) wait(expression string) {
	b.t.Helper()
	ok := assert.Eventually(b.t, func() bool { return b.eval(expression) == true }, 2*patience, 50*time.Millisecond, expression)
	if !ok {
		b.t.Log(b.eval("document.body ? document.body.innerText : ''"))
		b.t.FailNow()
	}
}

// click presses what a selector finds, as a person would with the keyboard.
func (b *browser) click(selector string) {
	b.t.Helper()
	require.Equal(b.t, true, b.eval("{const e = document.querySelector("+quoted(selector)+"); e.focus(); document.activeElement === e}"), selector)
	for _, kind := range []string{"keyDown", "keyUp"} {
		b.call("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}, nil)
	}
}

// scheme is light or dark.
func (b *browser) scheme(value string) {
	b.t.Helper()
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []any{map[string]any{"name": "prefers-color-scheme", "value": value}}}, nil)
}

// screenshot returns a PNG.
func (b *browser) screenshot() []byte {
	b.t.Helper()
	var got struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png"}, &got)
	png, err := base64.StdEncoding.DecodeString(got.Data)
	require.NoError(b.t, err)
	return png
}

func quoted(s string) string {
	q, _ := json.Marshal(s)
	return string(q)
}
