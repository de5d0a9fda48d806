package demo

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestScreenTellsWhenTheStateChanges(t *testing.T) {
	var out strings.Builder
	s := NewScreen(&out, false)
	for i, m := range []moment{
		{},
		{floodSent: 10},
		{floodSent: 90, throttled: 5},
		{floodSent: 90, throttled: 9},
		{floodSent: 90, throttled: 9, lock: 3 * time.Second},
		{floodSent: 90, throttled: 9, lock: time.Millisecond},
		{floodSent: 90, throttled: 9},
		{floodSent: 90, throttled: 20},
		{floodSent: 90, throttled: 20, lock: 3 * time.Second},
	} {
		s.look(time.Duration(i)*time.Second, m)
	}
	assert.Equal(t, strings.Join([]string{
		"    2.0 | the flooder has used up its tokens and is throttled",
		"    4.0 | the flooder is locked out for 3s: nothing of it reaches the server",
		"    6.0 | the lockout is over, the flooder's tokens are back",
		"    8.0 | the flooder is locked out for 3s: nothing of it reaches the server",
		"",
	}, "\n"), out.String())
}

func TestRowsAreOfASecondAndInColour(t *testing.T) {
	var out strings.Builder
	s := NewScreen(&out, true)
	first := moment{honestSent: 10, honestAnswered: 10}
	second := moment{honestSent: 20, honestAnswered: 20, floodSent: 2000, floodAnswered: 95, throttled: 1905}
	third := moment{honestSent: 30, honestAnswered: 29, floodSent: 4000, floodAnswered: 104, throttled: 2405, lockedOut: 1500}
	s.row(time.Second, first)
	s.row(2*time.Second, second)
	s.row(3*time.Second, third)
	assert.Equal(t, strings.Join([]string{
		"\x1b[32m      1 |    10        10 |      0         0          0           0\x1b[0m",
		"\x1b[33m      2 |    10        10 |   2000        95       1905           0\x1b[0m",
		"\x1b[31m      3 |    10         9 |   2000         9        500        1500\x1b[0m",
		"",
	}, "\n"), out.String())
}
