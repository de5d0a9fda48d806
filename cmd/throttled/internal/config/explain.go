package config

import "strings"

// explain brings the errors of a Validate, which begin with the path of a Go
// field, back to the values of the file that caused them. What belongs to none
// is reported at otherwise.
func (d *decoder) explain(err error, at places, otherwise value) {
	for _, e := range leaves(err) {
		v, text := at.find(e.Error(), otherwise)
		d.wrong(d.resolve(v), "%s", text)
	}
}

// find parts an error message into the value that it is about and the rest, in
// the words of the file.
func (at places) find(message string, otherwise value) (value, string) {
	before, text, cut := strings.Cut(message, ": ")
	for cut {
		if v, known := at[before]; known {
			return v, at.inOurWords(text)
		}
		// A package that passes an error on puts its name before it.
		before, text, cut = strings.Cut(text, ": ")
	}
	return otherwise, message
}

// inOurWords puts keys of the file for the Go fields that a message names, and
// drops the remark in parentheses, which is about Go's zero values.
func (at places) inOurWords(text string) string {
	text, _, _ = strings.Cut(text, " (")
	for name, v := range at {
		_, field := cutLast(name)
		_, key := cutLast(v.path)
		text = replaceWord(text, field, key)
	}
	return text
}

// replaceWord replaces word where it is not a part of a longer one.
func replaceWord(text, word, by string) string {
	isLetter := func(i int) bool {
		return i >= 0 && i < len(text) && (text[i]|0x20 >= 'a' && text[i]|0x20 <= 'z')
	}
	for i := 0; i < len(text); i++ {
		if strings.HasPrefix(text[i:], word) && !isLetter(i-1) && !isLetter(i+len(word)) {
			text = text[:i] + by + text[i+len(word):]
			i += len(by)
		}
	}
	return text
}

// leaves takes apart what errors.Join has joined.
func leaves(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, leaves(e)...)
	}
	return all
}
