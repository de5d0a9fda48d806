package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A Mistake is one thing that is wrong in a configuration file.
type Mistake struct {
	Line, Column int    // where, counted from 1; columns count characters
	Path         string // the keys that lead there, "policies[0].refill"; "" is the file itself
	Text         string // what is wrong, and what is allowed
}

// Mistakes is the error of a file that was refused: everything that is wrong
// with it, in the order of the file.
type Mistakes struct {
	File string
	List []Mistake
}

// Error has a line for each mistake: file:line:column: path: text.
func (m *Mistakes) Error() string {
	lines := make([]string, len(m.List))
	for i, k := range m.List {
		lines[i] = k.in(m.File, "")
	}
	return strings.Join(lines, "\n")
}

// in is the line that tells of the mistake; kind is put behind the place.
func (m Mistake) in(file, kind string) string {
	path := ""
	if m.Path != "" {
		path = m.Path + ": "
	}
	return fmt.Sprintf("%s:%d:%d: %s%s%s", file, m.Line, m.Column, kind, path, m.Text)
}

// sorted orders the mistakes by place. A mapping that several aliases repeat is
// read several times: what is wrong with it is said once.
func sorted(list []Mistake) []Mistake {
	slices.SortStableFunc(list, func(a, b Mistake) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	seen := map[Mistake]bool{}
	return slices.DeleteFunc(list, func(m Mistake) bool {
		m.Path = ""
		known := seen[m]
		seen[m] = true
		return known
	})
}
