package main

import (
	"context"
	"net"
	"net/netip"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
)

// A relay is a UDP gateway as gnet suggests it: one loop, which has the listener
// and a connected socket for each client, and a system call for each datagram.
// Its sessions have no end.
type relay struct {
	gnet.BuiltinEventEngine
	upstream *net.UDPAddr
	sessions map[netip.AddrPort]*session // used by the one loop
}

type session struct {
	client   unix.SockaddrInet4
	listener int       // its socket
	upstream gnet.Conn // nil until the loop has it
}

func newRelay(upstream string) (*relay, error) {
	addr, err := net.ResolveUDPAddr("udp4", upstream)
	if err != nil {
		return nil, err
	}
	return &relay{upstream: addr, sessions: make(map[netip.AddrPort]*session)}, nil
}

// OnOpen is called for the sockets to the upstream.
func (r *relay) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	c.Context().(*session).upstream = c
	return nil, gnet.None
}

func (r *relay) OnTraffic(c gnet.Conn) gnet.Action {
	data, _ := c.Next(-1)
	if s, ok := c.Context().(*session); ok {
		_ = unix.Sendto(s.listener, data, unix.MSG_DONTWAIT, &s.client)
		return gnet.None
	}
	client := c.RemoteAddr().(*net.UDPAddr).AddrPort()
	if s := r.sessions[client]; s == nil {
		r.open(c, client, data)
	} else if s.upstream != nil {
		_, _ = s.upstream.Write(data)
	}
	return gnet.None
}

// open makes a session, which is tried again with the client's next datagram
// where that fails.
func (r *relay) open(c gnet.Conn, client netip.AddrPort, first []byte) {
	conn, err := net.DialUDP("udp4", nil, r.upstream)
	if err != nil {
		return
	}
	s := &session{
		client:   unix.SockaddrInet4{Port: int(client.Port()), Addr: client.Addr().Unmap().As4()},
		listener: c.Fd(),
	}
	_, _ = conn.Write(first)
	if _, err := c.EventLoop().Enroll(gnet.NewContext(context.Background(), s), conn); err != nil {
		conn.Close()
		return
	}
	r.sessions[client] = s
}
