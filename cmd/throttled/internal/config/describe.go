package config

import (
	"fmt"
	"strconv"

	"github.com/goccy/go-yaml/ast"
)

// scalar is the text of a single value and whether it was a text to YAML too,
// not a number or a truth value. ok is false for mappings, lists and the rest.
func scalar(n ast.Node) (text string, isText, ok bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		// What looks like a number but is too large for one comes as text.
		return n.Value, true, true
	case *ast.LiteralNode:
		return n.Value.Value, true, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, false, true
	}
	return "", false, false
}

// describe names what stands in the file where something else is wanted.
func describe(n ast.Node) string {
	switch n := n.(type) {
	case *ast.NullNode:
		return "no value"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.TagNode:
		return "a YAML tag"
	case *ast.MergeKeyNode:
		return "a merge"
	case *ast.AliasNode:
		name := word(n.Value)
		return fmt.Sprintf("the alias %s with no anchor before it", shown("*"+name, !validName(name)))
	case *ast.MappingKeyNode:
		return describe(n.Value)
	}
	if text, isText, ok := scalar(n); ok {
		return shown(text, isText)
	}
	return "something else"
}

// word is the text of a node's token.
func word(n ast.Node) string {
	if n == nil || n.GetToken() == nil {
		return ""
	}
	return n.GetToken().Value
}

// shown is a value as an error message repeats it.
func shown(text string, quoted bool) string {
	const most = 60
	if r := []rune(text); len(r) > most {
		text = string(r[:most]) + "..."
	}
	if quoted {
		return strconv.Quote(text)
	}
	return text
}

// suggest names the allowed key that an unknown one was probably meant to be.
func suggest(key string, fields []field) string {
	best, least := "", 3
	for _, f := range fields {
		if n := edits(key, f.key); n < least && n < len(f.key) {
			best, least = f.key, n
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(", did you mean %s?", best)
}

// edits is the Levenshtein distance of two keys; beyond any use for long ones.
func edits(a, b string) int {
	if len(a) > 40 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := corner
			if a[i] != b[j] {
				change++
			}
			corner = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
