package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestParsePrefix(t *testing.T) {
	for s, want := range map[string]string{
		"192.0.2.1": "192.0.2.1/32", "192.0.2.0/24": "192.0.2.0/24", "0.0.0.0/0": "0.0.0.0/0",
		"2001:db8::1": "2001:db8::1/128", "2001:db8::/32": "2001:db8::/32", "::/0": "::/0",
		"::ffff:192.0.2.1": "192.0.2.1/32", "::ffff:192.0.2.0/120": "192.0.2.0/24",
	} {
		got, err := ParsePrefix(s)
		assert.NoError(t, err, s)
		assert.Equal(t, want, got.String())
	}
	for _, s := range []string{"", "/", "/24", "192.0.2.0/", "192.0.2.0/33", "192.0.2.0/024", "192.0.2.0/-1", "192.0.2.0/24/24",
		"192.0.2.1/24", "2001:db8::1/64", "::ffff:192.0.2.1/120", "::ffff:0:0/95", "fe80::1%eth0", "fe80::%eth0/64", "192.0.2.1:80", "a.example"} {
		_, err := ParsePrefix(s)
		assert.ErrorContains(t, err, "allowed: ", s)
	}
}

// C45: whatever a report calls an endpoint is understood.
func TestParseEndpoint(t *testing.T) {
	for s, want := range map[string]struct {
		ep   string
		bits int
	}{
		"192.0.2.1":            {"192.0.2.1:0", 32},
		"192.0.2.1:4000":       {"192.0.2.1:4000", 32},
		"192.0.2.0/24":         {"192.0.2.0:0", 24},
		"192.0.2.0/24:4000":    {"192.0.2.0:4000", 24},
		"2001:db8::1":          {"[2001:db8::1]:0", 128},
		"2001:db8::/64":        {"[2001:db8::]:0", 64},
		"[2001:db8::/64]:4000": {"[2001:db8::]:4000", 64},
		"[::1]:4000":           {"[::1]:4000", 128},
		"fe80::1%eth0":         {"[fe80::1%eth0]:0", 128},
		"fe80::%eth0/64":       {"[fe80::%eth0]:0", 64},
		"[fe80::%eth0/64]:9":   {"[fe80::%eth0]:9", 64},
		"::ffff:192.0.2.1":     {"[::ffff:192.0.2.1]:0", 128},
	} {
		ep, bits, err := ParseEndpoint(s)
		assert.NoError(t, err, s)
		assert.Equal(t, want.ep, ep.String(), s)
		assert.Equal(t, want.bits, bits, s)
	}
	for _, s := range []string{"", "x", "192.0.2", "192.0.2.1:", "192.0.2.1:x", "192.0.2.1:65536", "192.0.2.0/33", "192.0.2.0/",
		"[::1]", "[::1", "::1]:4", "[::1]:", "2001:db8::/64/64", "fe80::1%", "192.0.2.1%eth0"} {
		_, _, err := ParseEndpoint(s)
		assert.ErrorContains(t, err, "is not an endpoint; allowed: ", s)
	}
}
