package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/goccy/go-yaml/lexer"
	"github.com/stretchr/testify/assert"
)

func TestGaps(t *testing.T) {
	for text, want := range map[string]int{
		"a: 1\nb: [1, 2]\nc: {d: 1}\n":            0,
		"a:\n- b\n- c: 1\n  d: 2\n":               0,
		"a:\n  b:\n    c: 1\n":                    0,
		"a: # so\n  # and so\n  b\n- c\n":         0,
		"a:\n  - # so\n    b\n":                   0,
		"a: {}\nb: []\nc: [{}, []]\n":             0,
		"a: {b: [1, 2], c: {d: 1}}\n":             0,
		"a:\n":                                    1,
		"a:\nb: 1\n":                              1,
		"a: # so\nb: 1\n":                         1,
		"a:\n  b:\nc: 1\n":                        1,
		"- \n- 1\n-\n":                            2,
		"- a:\n- b:\n":                            2,
		"a: {b, c: 1, d}\n":                       2,
		"a: {b: , c: }\n":                         2,
		"a: [{b}, {c}]\n":                         2,
		"a: [b: , c: ]\n":                         2,
		"a:\n  -\n  - \n  - b:\n    c: 1\nd: e\n": 3,
	} {
		var g gaps
		tokens := lexer.Tokenize(text)
		for i := range tokens {
			assert.False(t, g.tooMany(tokens, i))
		}
		assert.Equal(t, want, g.n, "%q", text)
	}
}

// Nonsense that the parser, or the comparison of listeners, would be at for many
// seconds is refused before.
func TestMistakesOfNonsense(t *testing.T) {
	const gaps = "more than 1000 keys and list entries have no value"
	full := func(s string) string { return strings.Repeat(s, 1<<17/len(s)) }
	var conflicts strings.Builder
	for i := range 12_000 {
		fmt.Fprintf(&conflicts, "- {name: a%d, protocol: udp, listen: 127.0.0.1:1, upstream: 127.0.0.1:1}\n", i)
	}
	for file, want := range map[string]string{
		full("-\n"):                         "f:1001:1: not valid YAML: " + gaps,
		full("- a:\n"):                      "f:1001:4: not valid YAML: " + gaps,
		full("- a:\n  b:\n"):                "f:1001:4: not valid YAML: " + gaps,
		"a: [" + full("{a: },"):             gaps,
		"a: {" + full("a,"):                 gaps,
		full("- !x\n"):                      "f:33:3: not valid YAML: more than 32 tags",
		full("%YAML 1.2\n---\n"):            "more than 32 directives",
		full("---\n"):                       "more than 32 documents",
		full("a\n...\n"):                    "more than 32 ends of documents",
		"listeners:\n" + conflicts.String(): "more mistakes than 999",
	} {
		if len(file) > maxBytes {
			file = file[:maxBytes]
		}
		_, err := Parse("f", []byte(file))
		assert.ErrorContains(t, err, want, file[:20])
	}
}
