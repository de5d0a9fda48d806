package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestProxyWarnings(t *testing.T) {
	c, err := Parse("f", []byte(`
listeners:
  - {name: a, protocol: udp, listen: 127.0.0.1:1, upstream: echo, proxy_protocol: {accept_from: [0.0.0.0/0], timeout: 2s}}
  - {name: b, protocol: tcp, listen: 127.0.0.1:1, upstream: echo, proxy_protocol: {timeout: 2s, send: off}}
  - {name: c, protocol: tcp, listen: 127.0.0.1:2, upstream: echo, proxy_protocol: {accept_from: [10.0.0.0/8], timeout: 2s}}
  - {name: d, protocol: tcp, listen: 127.0.0.1:3, upstream: echo, proxy_protocol: {}}
`))
	require.NoError(t, err)
	assert.Equal(t, []string{
		"f:3:98: warning: listeners[0].proxy_protocol.accept_from[0]: lets everybody say who he is, and be limited as somebody else",
		"f:3:119: warning: listeners[0].proxy_protocol.timeout: has no effect on a udp listener",
		"f:4:93: warning: listeners[1].proxy_protocol.timeout: has no effect without accept_from",
	}, c.Warnings)
	again(t, c)
}
