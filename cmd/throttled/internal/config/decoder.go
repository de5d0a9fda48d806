package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// A decoder walks the tree of a file and collects all that is wrong with it.
// It goes where the file's keys may lead, so its depth is that of the schema,
// and counts its steps, so that aliases of aliases come to an end.
type decoder struct {
	targets   map[*ast.AliasNode]ast.Node
	visits    int
	mistakes  []Mistake
	warnings  []Mistake // what has no effect
	outside   outside
	listeners []places // where each of the Config's listeners was read from
}

// outside is what a decoder asks of the file system.
type outside struct {
	readToken  func(path string) (string, error)
	checkState func(path string) error
}

// A value is a node, and the keys that lead to it.
type value struct {
	node ast.Node
	path string
	key  ast.Node // where a value that is not there is reported; nil elsewhere
}

// A field is a key that a mapping may have.
type field struct {
	key  string
	name string // what the value is called where a Validate speaks of it
	read func(*decoder, value)
}

// places remembers which value of the file a field was read from: for a key
// that was left out, the mapping that does not have it.
type places map[string]value

// wrong records a mistake at v. Where almost everything is wrong it stops: the
// file is another one than was meant.
func (d *decoder) wrong(v value, format string, args ...any) {
	switch len(d.mistakes) {
	case maxMistakes - 1:
		format, args = "more mistakes than %d, those from here on are left out", []any{maxMistakes - 1}
	case maxMistakes:
		return
	}
	at := v.node
	if v.key != nil {
		at = v.key
	}
	line, column := position(at)
	d.mistakes = append(d.mistakes, Mistake{line, column, v.path, fmt.Sprintf(format, args...)})
}

// warn records that v has no effect, or hardly the one that was meant.
func (d *decoder) warn(v value, format string, args ...any) {
	line, column := position(v.node)
	d.warnings = append(d.warnings, Mistake{line, column, v.path, fmt.Sprintf(format, args...)})
}

// resolve follows anchors and aliases to the node that counts.
func (d *decoder) resolve(v value) value {
	for range maxNesting {
		switch n := v.node.(type) {
		case *ast.AnchorNode:
			v.node = n.Value
		case *ast.AliasNode:
			target := d.targets[n]
			if target == nil {
				return v
			}
			v.node = target
		default:
			return v
		}
	}
	return v
}

// mapping reads the fields of a mapping, in their order, and refuses all else.
// It returns false where v is none.
func (d *decoder) mapping(v value, at places, fields []field) bool {
	v = d.resolve(v)
	pairs, ok := d.pairs(v, fields, 0)
	for _, f := range fields {
		member, given := pairs[f.key]
		if !given {
			member = value{node: v.node, path: join(v.path, f.key)}
		}
		if f.name != "" {
			at[f.name] = member
		}
		if given {
			f.read(d, member)
		}
	}
	return ok
}

// pairs collects the values of a mapping by key, those it merges in included.
func (d *decoder) pairs(v value, fields []field, merges int) (map[string]value, bool) {
	v = d.resolve(v)
	entries, ok := entriesOf(v.node)
	if !ok {
		d.wrong(v, "%s; allowed: a mapping with the keys %s", describe(v.node), keys(fields))
		return nil, false
	}
	if !d.visit(v) {
		return nil, false
	}
	own, merged := map[string]value{}, map[string]value{}
	for _, e := range entries {
		if e.Key.IsMergeKey() {
			d.merge(value{node: e.Value, path: v.path}, merged, fields, merges)
			continue
		}
		d.entry(v, e, own, fields)
	}
	for key, m := range merged {
		if _, given := own[key]; !given {
			own[key] = m
		}
	}
	return own, true
}

// entriesOf are the pairs of a mapping.
func entriesOf(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	return nil, false
}

// visit counts a step, and is false where there were too many.
func (d *decoder) visit(v value) bool {
	if d.visits++; d.visits == maxVisits {
		d.wrong(v, "the file repeats itself too often; allowed: %d mappings, those that aliases repeat included", maxVisits-1)
	}
	return d.visits < maxVisits
}

// entry puts one pair of a mapping into own.
func (d *decoder) entry(v value, e *ast.MappingValueNode, own map[string]value, fields []field) {
	key, ok := plainKey(e.Key)
	at := value{node: e.Key, path: join(v.path, key)}
	if !ok {
		d.wrong(value{node: e.Key, path: v.path}, "%s as a key; allowed: %s", describe(e.Key), keys(fields))
		return
	}
	if !slices.ContainsFunc(fields, func(f field) bool { return f.key == key }) {
		at.path = join(v.path, shown(key, !validName(key)))
		d.wrong(at, "unknown key%s; allowed: %s", suggest(key, fields), keys(fields))
		return
	}
	if first, twice := own[key]; twice {
		line, _ := position(first.node)
		d.wrong(at, "given twice, first in line %d; allowed: once", line)
		return
	}
	own[key] = d.memberOf(e, at.path)
}

// memberOf is the value of a pair.
func (d *decoder) memberOf(e *ast.MappingValueNode, path string) value {
	member := value{node: e.Value, path: path}
	if _, null := d.resolve(member).node.(*ast.NullNode); null {
		member.key = e.Key
	}
	return member
}

// merge adds the keys of a "<<" to merged; what is there already wins.
func (d *decoder) merge(v value, merged map[string]value, fields []field, merges int) {
	v = d.resolve(v)
	if merges == maxNesting {
		d.wrong(v, "merges are nested more than %d deep", maxNesting)
		return
	}
	sources := []value{v}
	if list, ok := v.node.(*ast.SequenceNode); ok {
		sources = nil
		for _, n := range list.Values {
			sources = append(sources, value{node: n, path: v.path})
		}
	}
	for _, s := range sources {
		pairs, _ := d.pairs(s, fields, merges+1)
		for key, m := range pairs {
			if _, given := merged[key]; !given {
				merged[key] = m
			}
		}
	}
}

// required reports the named fields that the mapping v was read without.
func (d *decoder) required(v value, at places, names ...string) bool {
	v = d.resolve(v)
	complete := true
	for _, name := range names {
		if member := at[name]; member.node == v.node {
			_, key := cutLast(member.path)
			d.wrong(v, "the key %s is missing", key)
			complete = false
		}
	}
	return complete
}

// list reads every entry of a list.
func list(read func(*decoder, value)) func(*decoder, value) {
	return func(d *decoder, v value) {
		v = d.resolve(v)
		seq, ok := v.node.(*ast.SequenceNode)
		if !ok {
			d.wrong(v, "%s; allowed: a list", describe(v.node))
			return
		}
		for i, n := range seq.Values {
			read(d, value{node: n, path: fmt.Sprintf("%s[%d]", v.path, i)})
		}
	}
}

// plainKey is the text of a key that is a word.
func plainKey(k ast.MapKeyNode) (string, bool) {
	switch k := k.(type) {
	case *ast.StringNode:
		return k.Value, true
	case *ast.MappingKeyNode:
		if s, ok := k.Value.(*ast.StringNode); ok {
			return s.Value, true
		}
	}
	return "", false
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// cutLast parts a path or a field's name at its last dot.
func cutLast(path string) (before, last string) {
	i := strings.LastIndexByte(path, '.')
	return path[:max(i, 0)], path[i+1:]
}

func keys(fields []field) string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.key
	}
	return strings.Join(names, ", ")
}
