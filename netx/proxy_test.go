package netx

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/policy"
)

func TestProxyOptionsAreChecked(t *testing.T) {
	l := ListenerConfig{Name: "a", Listen: loopback(1), Upstream: "127.0.0.1:9"}
	for want, o := range map[string]struct {
		ProxyOptions
		Protocol
		echo bool
	}{
		"Proxy.AcceptFrom: invalid Prefix is not a prefix":                                {ProxyOptions{AcceptFrom: make([]netip.Prefix, 1)}, TCP, false},
		"Proxy.Timeout: -1 is negative":                                                   {ProxyOptions{Timeout: -1}, TCP, false},
		"Proxy.Send: 3 is none of SendNone, SendV1 and SendV2":                            {ProxyOptions{Send: 3}, TCP, false},
		"Proxy.Send: SendV1 on a udp listener; version 1 is for TCP alone":                {ProxyOptions{Send: SendV1}, UDP, false},
		"Proxy.Send: the upstream is the built-in echo, which would send the header back": {ProxyOptions{Send: SendV2}, TCP, true},
	} {
		l.Proxy, l.Protocol, l.Upstream = o.ProxyOptions, o.Protocol, "127.0.0.1:9"
		if o.echo {
			l.Upstream = Echo
		}
		err := GatewayConfig{Engine: engineOf(t, policy.Policy{}), Listeners: []ListenerConfig{l}}.validate()
		require.EqualError(t, err, "netx: listener a: "+want)
	}
}
