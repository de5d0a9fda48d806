package config

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// What a file may be at most. A configuration stays far below; beyond it the
// parser's time grows with the square of the size, and its stack with the
// nesting.
const (
	maxBytes    = 1 << 20
	maxNesting  = 32      // brackets within brackets
	maxIndent   = 200     // columns before the dash of a list entry
	maxSigns    = 32      // dashes, colons, anchors and the like in a line, outside brackets
	maxKeys     = 1000    // keys of one mapping
	maxRare     = 32      // tags, directives and the like
	maxGaps     = 1000    // keys and list entries without a value
	maxVisits   = 100_000 // mappings, those that aliases repeat included
	maxMistakes = 1000
)

// parse makes a tree of the only document in data.
func parse(data []byte) (ast.Node, *Mistake) {
	if m := unreadable(data); m != nil {
		return nil, m
	}
	tokens := lexer.Tokenize(strings.TrimPrefix(string(data), "\ufeff"))
	if bad := tokens.InvalidToken(); bad != nil {
		return nil, syntax(bad, bad.Error)
	}
	if m := oversized(tokens); m != nil {
		return nil, m
	}
	// Duplicate keys are found while decoding, with everything else.
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, parseError(err)
	}
	return onlyDocument(file)
}

// unreadable refuses what is no text of a sensible size.
func unreadable(data []byte) *Mistake {
	if len(data) > maxBytes {
		return &Mistake{1, 1, "", fmt.Sprintf("the file is larger than %d bytes", maxBytes)}
	}
	line, column := 1, 1
	for rest := data; len(rest) > 0; {
		r, n := utf8.DecodeRune(rest)
		if r == utf8.RuneError && n == 1 || r < ' ' && !strings.ContainsRune("\t\r\n", r) {
			return &Mistake{line, column, "", fmt.Sprintf("byte 0x%02x is not text; allowed: UTF-8 without control characters", rest[0])}
		}
		column++
		if r == '\n' {
			line, column = line+1, 1
		}
		rest = rest[n:]
	}
	return nil
}

// rare is what a configuration needs none of, or one.
var rare = map[token.Type]string{
	token.MappingKeyType:     "keys begin with ?",
	token.TagType:            "tags",
	token.DirectiveType:      "directives",
	token.DocumentHeaderType: "documents",
	token.DocumentEndType:    "ends of documents",
}

// oversized refuses nesting and mappings that no configuration needs, before
// the parser goes into them.
func oversized(tokens token.Tokens) *Mistake {
	depth, columns, signs, missing := 0, map[int]int{}, signCount{}, gaps{}
	seen := map[token.Type]int{}
	for i, t := range tokens {
		if depth == 0 && signs.tooMany(t) {
			return syntax(t, fmt.Sprintf("more than %d keys, dashes and the like in a line", maxSigns))
		}
		if missing.tooMany(tokens, i) {
			return syntax(t, fmt.Sprintf("more than %d keys and list entries have no value", maxGaps))
		}
		if what, few := rare[t.Type]; few {
			if seen[t.Type]++; seen[t.Type] > maxRare {
				return syntax(t, fmt.Sprintf("more than %d %s", maxRare, what))
			}
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			depth++
		case token.SequenceEndType, token.MappingEndType:
			depth--
		case token.SequenceEntryType:
			forgetDeeper(columns, t.Position.Column)
			if t.Position.Column > maxIndent {
				return syntax(t, "the list is nested too deeply")
			}
		case token.MappingValueType:
			if depth > 0 || i == 0 {
				break
			}
			column := tokens[i-1].Position.Column
			forgetDeeper(columns, column)
			if columns[column]++; columns[column] > maxKeys {
				return syntax(t, fmt.Sprintf("the mapping has more than %d keys", maxKeys))
			}
		}
		if depth > maxNesting {
			return syntax(t, fmt.Sprintf("brackets are nested more than %d deep", maxNesting))
		}
	}
	return nil
}

// A signCount counts what a line nests without brackets.
type signCount struct{ line, n int }

func (c *signCount) tooMany(t *token.Token) bool {
	switch t.Type {
	case token.MappingValueType, token.SequenceEntryType, token.AnchorType, token.AliasType, token.TagType:
	default:
		return false
	}
	if t.Position.Line != c.line {
		*c = signCount{line: t.Position.Line}
	}
	c.n++
	return c.n > maxSigns
}

// forgetDeeper drops the counts of the mappings that a token at column ends.
func forgetDeeper(columns map[int]int, column int) {
	for c := range columns {
		if c > column {
			delete(columns, c)
		}
	}
}

// escaped keeps a message in one line.
var escaped = strings.NewReplacer("\t", `\t`, "\n", `\n`, "\r", `\r`)

func syntax(t *token.Token, text string) *Mistake {
	m := &Mistake{1, 1, "", "not valid YAML: " + escaped.Replace(text)}
	if t != nil && t.Position != nil {
		m.Line, m.Column = max(t.Position.Line, 1), max(t.Position.Column, 1)
	}
	if text == "value is not allowed in this context" {
		m.Text += " (an address such as [::]:7000 needs quotes)"
	}
	return m
}

func parseError(err error) *Mistake {
	if e, ok := err.(yaml.Error); ok {
		return syntax(e.GetToken(), e.GetMessage())
	}
	return syntax(nil, err.Error())
}

// onlyDocument gives the body of the one document that a file may hold.
func onlyDocument(file *ast.File) (ast.Node, *Mistake) {
	var body ast.Node
	for _, doc := range file.Docs {
		switch doc.Body.(type) {
		case nil, *ast.DirectiveNode:
			continue
		}
		if body != nil {
			line, column := position(doc.Body)
			return nil, &Mistake{line, column, "", "a second YAML document begins here; allowed: one document in a file"}
		}
		body = doc.Body
	}
	return body, nil
}

// position is where a person would say that a node begins.
func position(n ast.Node) (line, column int) {
	switch n := n.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return position(n.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return position(n.Key)
	case *ast.AnchorNode:
		if n.Value != nil {
			return position(n.Value)
		}
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return max(t.Position.Line, 1), max(t.Position.Column, 1)
	}
	return 1, 1
}

// anchors finds the node that each alias stands for: the latest anchor of its
// name before it.
type anchors struct {
	named   map[string]ast.Node
	targets map[*ast.AliasNode]ast.Node
}

// Visit implements ast.Visitor.
func (a anchors) Visit(n ast.Node) ast.Visitor {
	switch n := n.(type) {
	case *ast.AnchorNode:
		a.named[word(n.Name)] = n.Value
	case *ast.AliasNode:
		a.targets[n] = a.named[word(n.Value)]
	}
	return a
}
