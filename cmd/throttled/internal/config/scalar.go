package config

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// The readers below make a field's read function. Each leaves its target alone
// where the value is wrong.

// single gives the text of a single value, or records that there is none.
func (d *decoder) single(v value, allowed string) (text string, isText, ok bool) {
	text, isText, ok = scalar(d.resolve(v).node)
	if !ok {
		v = d.resolve(v)
		d.wrong(v, "%s; allowed: %s", describe(v.node), allowed)
	}
	return text, isText, ok
}

// parsed reads a value with a unit.
func parsed[T any](to *T, allowed string, parse func(string) (T, error)) func(*decoder, value) {
	return func(d *decoder, v value) {
		text, _, ok := d.single(v, allowed)
		if !ok {
			return
		}
		x, err := parse(text)
		if err != nil {
			d.wrong(d.resolve(v), "%s", err)
			return
		}
		*to = x
	}
}

// positive adds to a parse function that 0 is no value here.
func positive[T int | int64 | float64 | time.Duration](parse func(string) (T, error)) func(string) (T, error) {
	return func(s string) (T, error) {
		x, err := parse(s)
		if err == nil && x == 0 {
			return 0, fmt.Errorf("%s has no meaning here; allowed: %s", s, allowedPositive)
		}
		return x, err
	}
}

func durationOrZero(to *time.Duration) func(*decoder, value) {
	return parsed(to, allowedDuration, parseDuration)
}

func duration(to *time.Duration) func(*decoder, value) {
	return parsed(to, allowedDuration, positive(parseDuration))
}

func interval(to *time.Duration) func(*decoder, value) {
	return parsed(to, allowedDuration, positive(ParseEvery))
}

func size(to *int64) func(*decoder, value) {
	return parsed(to, allowedSize, positive(parseSize))
}

func share(to *float64) func(*decoder, value) {
	return parsed(to, allowedShare, parseShare)
}

func rate(to *float64) func(*decoder, value) {
	return parsed(to, allowedRate, positive(func(s string) (float64, error) { return parseRate(s, false) }))
}

func byteRate(to *float64) func(*decoder, value) {
	return parsed(to, allowedByteRate, positive(func(s string) (float64, error) { return parseRate(s, true) }))
}

// count reads a whole number of 1 or more.
func count[T int | int64](to *T) func(*decoder, value) {
	return whole(to, 1, math.MaxInt64, "1 or more")
}

// countOrZero reads a whole number of 0 or more.
func countOrZero[T int | int64](to *T) func(*decoder, value) {
	return whole(to, 0, math.MaxInt64, "0 or more")
}

// whole reads a whole number of least..most.
func whole[T int | int64](to *T, least, most int64, allowed string) func(*decoder, value) {
	return func(d *decoder, v value) {
		text, isText, ok := d.single(v, "a whole number, "+allowed)
		if !ok {
			return
		}
		v = d.resolve(v)
		if isText && (!isNumber(text) || quoted(v.node)) {
			d.wrong(v, "%s is not a whole number; allowed: %s", shown(text, true), allowed)
			return
		}
		n, err := parseCount(text, allowed)
		switch {
		case err != nil:
			d.wrong(v, "%s", err)
		case n == 0 && least > 0:
			d.wrong(v, "0 has no meaning here; allowed: %s", allowed)
		case n > most || int64(T(n)) != n:
			d.wrong(v, "%d is too large; allowed: %s", n, allowed)
		default:
			*to = T(n)
		}
	}
}

// truth reads true or false, and none of the other words for it.
func truth(to *bool) func(*decoder, value) {
	return func(d *decoder, v value) {
		text, isText, ok := d.single(v, "true, false")
		switch {
		case !ok:
		case isText || text != "true" && text != "false":
			d.wrong(d.resolve(v), "%s is not a truth value; allowed: true, false", shown(text, isText))
		default:
			*to = text == "true"
		}
	}
}

// The words of each choice, in the order of its values.
var (
	protocolWords   = []string{"udp", "tcp"}
	onFullWords     = []string{"evict_idle", "deny", "allow"}
	kernelDropWords = []string{"off", "socket"}
	orderWords      = []string{"oldest_first", "newest_first"}
	onLimitWords    = []string{"pause", "close"}
	rejectWords     = []string{"rst", "close", "silent"}
	sendWords       = []string{"off", "v1", "v2"}

	lockoutRequiresWords = []string{"any", "established"}
)

// choice reads one of a few words; the first stands for 0, and so on.
func choice[T ~uint8](to *T, words []string) func(*decoder, value) {
	allowed := strings.Join(words, ", ")
	return func(d *decoder, v value) {
		text, isText, ok := d.single(v, allowed)
		if !ok {
			return
		}
		for i, w := range words {
			if w == text {
				*to = T(i)
				return
			}
		}
		d.wrong(d.resolve(v), "%s is not known; allowed: %s", shown(text, isText), allowed)
	}
}

const allowedName = "1 to 64 letters, digits and signs, without spaces"

// name reads what a policy or a listener is called.
func name(to *string) func(*decoder, value) {
	return func(d *decoder, v value) {
		text, isText, ok := d.single(v, allowedName)
		switch {
		case !ok:
		case !isText:
			d.wrong(d.resolve(v), "%s is not a text; allowed: %s (in quotes where it looks like a number)", text, allowedName)
		case !validName(text):
			d.wrong(d.resolve(v), "%s is not a name; allowed: %s", shown(text, true), allowedName)
		default:
			*to = text
		}
	}
}

func validName(s string) bool {
	plain := func(r rune) bool { return unicode.IsGraphic(r) && !unicode.IsSpace(r) }
	return s != "" && len(s) <= 64 && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0
}

// text reads a path or an address; empty is for its reader to judge.
func text(to *string, allowed string) func(*decoder, value) {
	return func(d *decoder, v value) {
		s, isText, ok := d.single(v, allowed)
		switch {
		case !ok:
		case !isText:
			d.wrong(d.resolve(v), "%s is not a text; allowed: %s", s, allowed)
		default:
			*to = s
		}
	}
}

// quoted says whether a text stands in quotes, so that it is no number even
// where it looks like one.
func quoted(n ast.Node) bool {
	t := n.GetToken().Type
	return t == token.SingleQuoteType || t == token.DoubleQuoteType
}
