//go:build browser

package main

import (
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// trouble is two clients of a gateway, until the test ends: an honest one and one
// that sends ever too much.
func trouble(t *testing.T, g *gateway) {
	t.Helper()
	stop := make(chan struct{})
	var clients sync.WaitGroup
	send := func(from string, every time.Duration) {
		d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(from)}}
		c, err := d.Dial("udp", g.addr["game"])
		require.NoError(t, err)
		clients.Go(func() {
			defer c.Close()
			tick := time.NewTicker(every)
			defer tick.Stop()
			for {
				select {
				case <-stop:
					return
				case <-tick.C:
					c.Write([]byte("a datagram of a game"))
				}
			}
		})
	}
	send("127.0.0.1", 50*time.Millisecond)
	send("127.0.0.2", 4*time.Millisecond)
	t.Cleanup(func() { close(stop); clients.Wait() })
}

const pageConfig = `
admin: {listen: 127.0.0.1:0}
report: {every: 0s}
engine: {adaptive: {enabled: false}}
policies: [{name: default, capacity: 64, refill: 32/s, violations: {spacing: 300ms}, lockout: {base: 5s}}]
listeners:
  - {name: game, protocol: udp, listen: 127.0.0.1:0, upstream: echo}
  - {name: web, protocol: tcp, listen: 127.0.0.1:0, upstream: echo}
`

func configured(t *testing.T, text string, args ...string) *gateway {
	t.Helper()
	file := filepath.Join(t.TempDir(), "throttled.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return start(t, append([]string{"-c", file}, args...)...)
}

// What is sent shows up while one looks: figures, both plots, the endpoint that
// is held back, and its lockout.
func TestPageIsLive(t *testing.T) {
	g := configured(t, pageConfig)
	b := browse(t)
	b.open("http://" + g.admin + "/")
	b.wait(`document.getElementById("state")?.textContent === "live"`)
	b.wait(`!!document.querySelector("#listeners tr[data-key=game]")`)
	assert.Equal(t, false, b.eval(`!!document.querySelector("#plot-drops .area")`), "nothing is dropped yet")

	trouble(t, g)
	number := func(id string) string {
		return `+document.getElementById("` + id + `").textContent.replaceAll(",", "")`
	}
	b.wait(number("in") + " > 20")
	b.wait(number("dropped") + " > 20")
	b.wait(`document.querySelectorAll("#plot-packets .line").length === 2`)
	b.wait(`/^M.*L/.test(document.querySelector("#plot-packets .line[data-series=in]").getAttribute("d"))`)
	b.wait(`!!document.querySelector("#plot-drops .area[data-series=soft_throttle]")`)
	b.wait(`!!document.querySelector("#plot-drops .area[data-series=hard_lockout]")`)
	b.wait(`document.getElementById("legend-drops").innerText.includes("hard_lockout")`)
	b.wait(`[...document.querySelectorAll("#top tr")].some(r => r.cells[0].textContent === "127.0.0.2" && r.cells[4].textContent.endsWith(" s"))`)
	assert.Equal(t, false, b.eval(`!![...document.querySelectorAll("#top tr")].find(r => r.cells[0].textContent === "127.0.0.1")`))
	before := b.eval(`document.querySelector("#plot-packets .line").getAttribute("d")`)
	b.wait(`document.querySelector("#plot-packets .line").getAttribute("d") !== ` + quoted(before.(string)))

	// A second page, opened late, has the history from before.
	seen := b.eval(`samples.length`).(float64)
	b.open("http://" + g.admin + "/")
	b.wait(`document.getElementById("state")?.textContent === "live"`)
	assert.GreaterOrEqual(t, b.eval(`samples.length`).(float64), seen)

	// One listener alone.
	b.eval(`{const s = document.getElementById("listener"); s.value = "web"; s.dispatchEvent(new Event("change"))}`)
	b.wait(`document.getElementById("in").textContent === "0"`)
	assert.Equal(t, false, b.eval(`!!document.querySelector("#plot-drops .area")`))

	g.cmd.Process.Kill()
	b.wait(`document.getElementById("state").className === "lost"`)
}

func TestPageLiftsBans(t *testing.T) {
	g := configured(t, pageConfig)
	for _, prefix := range []string{"203.0.113.0/24", "2001:db8::/48"} {
		got := run(t, nil, "ban", prefix, "--for", "1h", "--note", `<img src=x onerror="document.title='owned'">`, "--admin", g.admin)
		require.Equal(t, 0, got.code, got.stderr)
	}
	b := browse(t)
	b.open("http://" + g.admin + "/")
	b.wait(`document.querySelectorAll("#bans tr").length === 2`)
	assert.Equal(t, "throttled", b.eval(`document.title`))
	assert.Equal(t, 0.0, b.eval(`document.querySelectorAll("img").length`), "what the server says is text")
	assert.Contains(t, b.eval(`document.querySelector("#bans tr").innerText`), "<img src=x")

	b.click(`#bans button[aria-label="Unban 203.0.113.0/24"]`)
	b.wait(`document.getElementById("done").textContent === "203.0.113.0/24 is unbanned"`)
	b.wait(`document.querySelectorAll("#bans tr").length === 1`)
	bans := run(t, nil, "bans", "--admin", g.admin)
	assert.NotContains(t, bans.stdout, "203.0.113.0/24")
	assert.Contains(t, bans.stdout, "2001:db8::/48")

	trouble(t, g)
	b.wait(`!!document.querySelector('#bans button[aria-label="Unban 127.0.0.2"]')`)
	b.click(`#bans button[aria-label="Unban 127.0.0.2"]`)
	b.wait(`document.getElementById("done").textContent === "127.0.0.2 is unbanned"`)
}

func TestPageAsksForTheToken(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("s3cret\n"), 0o600))
	g := configured(t, pageConfig, "--token-file", token)
	b := browse(t)
	b.open("http://" + g.admin + "/")
	enter := func(text string) {
		b.eval(`document.getElementById("token").value = ` + quoted(text))
		b.click("#ask button")
	}
	b.wait(`document.getElementById("login")?.hidden === false`)
	assert.Equal(t, true, b.eval(`document.getElementById("view").hidden`))
	enter("wrong")
	b.wait(`document.getElementById("refused").textContent === "This is not the token."`)
	enter("s3cret")
	b.wait(`document.getElementById("state").textContent === "live" && document.getElementById("login").hidden`)
	b.open("http://" + g.admin + "/")
	b.wait(`document.getElementById("state")?.textContent === "live"`)
	assert.Equal(t, 1.0, b.eval(`sessionStorage.length`))
	assert.Equal(t, 0.0, b.eval(`localStorage.length`))
}

// In either scheme all text stands out from what is behind it by 4.5 to 1, as
// WCAG 2 asks for. PAGE_SCREENSHOTS names a folder for pictures to look at.
func TestPageInLightAndDark(t *testing.T) {
	g := configured(t, pageConfig)
	trouble(t, g)
	banned := run(t, nil, "ban", "203.0.113.0/24", "--for", "1h", "--note", "port scan", "--admin", g.admin)
	require.Equal(t, 0, banned.code, banned.stderr)
	b := browse(t)
	backs := map[any]bool{}
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		b.open("http://" + g.admin + "/")
		b.wait(`!!document.querySelector("#plot-drops .area[data-series=hard_lockout]") && !!document.querySelector("#top tr") && !!document.querySelector("#bans button")`)
		backs[b.eval(`getComputedStyle(document.body).backgroundColor`)] = true
		assert.Equal(t, []any{}, b.eval(contrast))
		if folder := os.Getenv("PAGE_SCREENSHOTS"); folder != "" {
			time.Sleep(12 * time.Second) // for something to be seen in the plots
			require.NoError(t, os.WriteFile(filepath.Join(folder, scheme+".png"), b.screenshot(), 0o600))
		}
	}
	assert.Len(t, backs, 2)
	b.size(360, 800)
	b.wait(`document.documentElement.scrollWidth <= 360`)
	if folder := os.Getenv("PAGE_SCREENSHOTS"); folder != "" {
		require.NoError(t, os.WriteFile(filepath.Join(folder, "narrow.png"), b.screenshot(), 0o600))
	}
}

// contrast lists the texts that are hard to read.
const contrast = `(() => {
  const rgb = c => c.match(/[\d.]+/g).map(Number);
  const light = c => { const [r, g, b] = rgb(c).map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const back = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return getComputedStyle(e).backgroundColor; } return "rgb(255, 255, 255)"; };
  const poor = [];
  for (const e of document.querySelectorAll("body *")) {
    if (!e.checkVisibility() || ![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || e.closest("noscript, script, meter")) continue;
    const style = getComputedStyle(e), ink = e instanceof SVGElement ? style.fill : style.color;
    const [a, b] = [light(ink), light(back(e))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) poor.push(e.tagName + " " + e.textContent + " " + (a + 0.05) / (b + 0.05));
  }
  return poor;
})()`
