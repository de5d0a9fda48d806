package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ee4278a0/throttled/netx"
)

// How values with a unit are written. Each function returns an error that says
// what is wrong and what is allowed.

var sizeUnits = map[string]int64{
	"": 1, "B": 1,
	"KB": 1e3, "MB": 1e6, "GB": 1e9,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
}

const (
	allowedDuration = "a number and a unit, such as 500ms, 30s, 10m or 1h"
	allowedSize     = "a whole number of bytes, also with a unit: 1500, 64KB, 256KiB, 2MiB"
	allowedRate     = "a number for a second, minute or hour: 32/s, 100/m, 1000/h"
	allowedByteRate = "a size for a second, minute or hour: 128KiB/s, 2MiB/s, 60MB/m"
	allowedShare    = "a percentage or a fraction: 60%, 0.6"
	allowedFactor   = "a decimal number, 1 or more: 1, 1.5, 2"
	allowedPositive = "more than 0"
	allowedRatio    = "a decimal number of 0 to 1000: 3, 1.5, or 0 for no bound"
)

// parseDuration reads a duration of 0 or more.
func parseDuration(s string) (time.Duration, error) {
	if s == "0" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	switch {
	case err != nil && isNumber(s):
		return 0, fmt.Errorf("%s has no unit; allowed: %s", s, allowedDuration)
	case err != nil:
		return 0, fmt.Errorf("%s is not a duration; allowed: %s", shown(s, true), allowedDuration)
	case d < 0:
		return 0, fmt.Errorf("%s is negative; allowed: %s", s, allowedDuration)
	}
	return d, nil
}

// ParseInterval reads a duration of 0 or more.
func ParseInterval(s string) (time.Duration, error) { return parseDuration(s) }

// ParseEvery reads the time between two of the same, as report.every has it: 0, or
// 1 ms or more, as what comes oftener takes a whole core.
func ParseEvery(s string) (time.Duration, error) {
	d, err := parseDuration(s)
	if err == nil && d != 0 && d < time.Millisecond {
		err = fmt.Errorf("%s is too often; allowed: 1ms or more", s)
	}
	return d, err
}

// ParseTimeout reads a duration of more than 0, as drain.grace has it.
func ParseTimeout(s string) (time.Duration, error) { return positive(parseDuration)(s) }

// parseCount reads a decimal whole number of 0 or more.
func parseCount(s, allowed string) (int64, error) {
	digits := strings.ReplaceAll(s, "_", "")
	n, err := strconv.ParseInt(digits, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%s is too large; allowed: %s", shown(s, false), allowed)
	case err != nil || len(digits) > 1 && digits[0] == '0':
		return 0, fmt.Errorf("%s is not a decimal whole number; allowed: %s", shown(s, !looksNumeric(s)), allowed)
	case n < 0:
		return 0, fmt.Errorf("%d is negative; allowed: %s", n, allowed)
	}
	return n, nil
}

// parseSize reads a number of bytes.
func parseSize(s string) (int64, error) {
	number, unit := cutNumber(s)
	factor, known := sizeUnits[unit]
	if !known || number == "" || strings.Contains(number, ".") {
		return 0, fmt.Errorf("%s is not a size; allowed: %s", shown(s, true), allowedSize)
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n > math.MaxInt64/factor {
		return 0, fmt.Errorf("%s is too large; allowed: %s", shown(s, false), allowedSize)
	}
	return n * factor, nil
}

// parseRate reads a rate, as a number for each second. With bytes it may have
// a unit of size.
func parseRate(s string, bytes bool) (float64, error) {
	allowed := allowedRate
	if bytes {
		allowed = allowedByteRate
	}
	wrong := func() (float64, error) {
		return 0, fmt.Errorf("%s is not a rate; allowed: %s", shown(s, true), allowed)
	}
	amount, per, _ := strings.Cut(s, "/")
	seconds, known := map[string]float64{"s": 1, "m": 60, "h": 3600}[per]
	number, unit := cutNumber(amount)
	factor, sized := sizeUnits[unit]
	if !known || !sized || unit != "" && !bytes {
		return wrong()
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return wrong()
	}
	return n * float64(factor) / seconds, nil
}

// parseShare reads a part of a whole as 0..1.
func parseShare(s string) (float64, error) {
	number, percent := strings.CutSuffix(s, "%")
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || !isNumber(number) {
		return 0, fmt.Errorf("%s is not a share; allowed: %s", shown(s, true), allowedShare)
	}
	if percent {
		n /= 100
	}
	if n > 1 {
		return 0, fmt.Errorf("%s is more than the whole; allowed: %s", shown(s, false), allowedShare)
	}
	return n, nil
}

// parseFactor reads a decimal number.
func parseFactor(s string) (float64, error) {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || !isNumber(s) {
		return 0, fmt.Errorf("%s is not a number; allowed: %s", shown(s, true), allowedFactor)
	}
	return n, nil
}

// parseRatio reads how many times as much something may be.
func parseRatio(s string) (float64, error) {
	n, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil || !isNumber(s):
		return 0, fmt.Errorf("%s is not a ratio; allowed: %s", shown(s, !looksNumeric(s)), allowedRatio)
	case n > netx.MaxReplyRatioMost:
		return 0, fmt.Errorf("%s is too large; allowed: %s", shown(s, false), allowedRatio)
	}
	return n, nil
}

// cutNumber parts a decimal number from the unit behind it.
func cutNumber(s string) (number, unit string) {
	i := 0
	for i < len(s) && (s[i] >= '0' && s[i] <= '9' || s[i] == '.') {
		i++
	}
	return s[:i], s[i:]
}

// looksNumeric says whether s is near enough to a number to be repeated
// without quotes.
func looksNumeric(s string) bool {
	return s != "" && s[0] >= '0' && s[0] <= '9' && strings.Trim(s, "0123456789abcdefABCDEFxo._") == ""
}

// isNumber says whether s is a plain decimal number. It keeps out what
// strconv would take as one too: 0x1p-2, 1e9, Inf.
func isNumber(s string) bool {
	number, rest := cutNumber(s)
	return rest == "" && number != ""
}
