// Package netx is the network edge of the chain: it owns the sockets, asks the
// engine whether a datagram or connection may pass, and carries what may.
//
//	client -> netx -> engine: may it pass? -> upstream
//
// StartGateway runs listeners that relay UDP and TCP to upstreams; a Reload puts
// others into their place, all of them or none, and leaves those alone that stay. The
// gateway is built for Linux; on other systems it moves one datagram at a time
// and does not splice.
//
// Everything that arrives is counted once, and once more where it ends, so at
// rest the packets of a listener are those forwarded and those dropped, each
// drop under its reason. Nothing is logged for each packet, and nothing on the
// packet path waits: what cannot be sent at once is dropped and counted.
//
// netx decides nothing itself beyond what a datagram shows (a source that no
// answer can reach, a length over the limit, a PROXY header that has to be there,
// or must not) and how many sessions and connections there may be.
package netx
