// Package page is the page that the admin server shows to people. It is one
// document that needs nothing but the server's own JSON: it works offline, and
// its policy forbids every script and style but its own. It holds no data, so
// whoever lacks the token may have it too: it asks for the token.
package page

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"net/http"
	"sync"
)

//go:embed page.html
var html []byte

//go:embed page.css
var style []byte

//go:embed plot.js
var plot []byte

//go:embed page.js
var script []byte

// A document is the page and the policy that goes with it.
type document struct {
	body   []byte
	policy string
}

var compose = sync.OnceValue(func() document {
	script := append(append([]byte("\"use strict\";\n"), plot...), script...)
	body := bytes.Replace(html, []byte("/*style*/"), style, 1)
	body = bytes.Replace(body, []byte("/*script*/"), script, 1)
	return document{body, "default-src 'none'; script-src " + source(script) + "; style-src " + source(style) +
		"; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}
})

// source is how a policy names what stands in the document.
func source(content []byte) string {
	sum := sha256.Sum256(content)
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// Serve answers with the page, under the given status.
func Serve(w http.ResponseWriter, status int) {
	d := compose()
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", d.policy)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(status)
	_, _ = w.Write(d.body) // the client may be gone
}
