package config

import "github.com/goccy/go-yaml/token"

// gaps counts the keys and list entries that have no value, for each of which the
// parser moves all tokens behind it.
type gaps struct {
	n      int
	inside []bool // brackets that are open: whether they are those of a mapping
	colon  bool   // since the last comma or bracket
}

// tooMany wants the tokens of a file one after the other.
func (g *gaps) tooMany(tokens token.Tokens, i int) bool {
	t := tokens[i]
	switch t.Type {
	case token.MappingStartType, token.SequenceStartType:
		g.inside = append(g.inside, t.Type == token.MappingStartType)
		g.colon = false
	case token.CollectEntryType:
		g.bareKey()
		g.colon = false
	case token.MappingEndType, token.SequenceEndType:
		if i > 0 && tokens[i-1].Type != token.MappingStartType {
			g.bareKey()
		}
		g.inside = g.inside[:max(0, len(g.inside)-1)]
		g.colon = true
	case token.MappingValueType:
		g.colon = true
		if i > 0 && endsAt(tokens[i+1:], t, tokens[i-1].Position.Column) {
			g.n++
		}
	case token.SequenceEntryType:
		if endsAt(tokens[i+1:], t, t.Position.Column) {
			g.n++
		}
	}
	return g.n > maxGaps
}

// bareKey counts a key of a mapping in brackets that had no colon.
func (g *gaps) bareKey() {
	if n := len(g.inside); n > 0 && g.inside[n-1] && !g.colon {
		g.n++
	}
}

// endsAt says whether a key or an entry that begins in the column ends with t.
func endsAt(rest token.Tokens, t *token.Token, column int) bool {
	for _, next := range rest {
		switch next.Type {
		case token.CommentType:
			continue
		case token.CollectEntryType, token.MappingEndType, token.SequenceEndType:
			return true
		case token.SequenceEntryType: // a list may begin in the column of its key
			if t.Type == token.MappingValueType {
				column--
			}
		}
		return next.Position.Line > t.Position.Line && next.Position.Column <= column
	}
	return true
}
