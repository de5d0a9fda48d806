// Package load makes traffic on the loopback and answers it: datagrams from many
// source addresses with sendmmsg, paced (open loop) or as fast as they are
// answered (closed loop), and TCP connections. While it sends it allocates
// nothing. It is for Linux, whose loopback takes every address of 127.0.0.0/8
// for the machine's own.
//
// On the loopback the kernel's receive work, up to the socket's queue, runs on
// the sender's core and in the sender's time: what a program under test is seen
// to use is without that of its clients' datagrams, and with that of its own.
package load

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Payload is the length of a datagram in bytes unless something else is said.
const Payload = 64

const (
	minPayload = 8 // the number of the request
	maxPayload = 1472
)

// MaxAddresses is how many source addresses there are from one network on.
const MaxAddresses = 60 * 250 * 250

// Source is the i-th source address of a network of clients, 127.NET.0.0 and
// those behind it: 0 <= i < MaxAddresses, and net in 1..190.
func Source(net byte, i int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, net + byte(i/250/250), byte(i / 250 % 250), byte(1 + i%250)})
}

// Sources says where datagrams come from.
type Sources struct {
	Net       byte // the first is Source(Net, 0); 0 = 16
	Addresses int  // 1..MaxAddresses
	Ports     int  // sockets, each of which sends from every address; 0 = 1
}

// Spread gives n clients, as many as two ports of half as many addresses.
func Spread(n int) Sources { return Sources{Addresses: max(1, n/2), Ports: min(n, 2)} }

// Count is the number of distinct sources.
func (s Sources) Count() int { return s.Addresses * s.Ports }

func (s *Sources) complete() error {
	if s.Net == 0 {
		s.Net = 16
	}
	if s.Ports == 0 {
		s.Ports = 1
	}
	if s.Addresses < 1 || s.Addresses > MaxAddresses || s.Ports < 1 || s.Net > 190 {
		return fmt.Errorf("load: %d addresses from 127.%d on, %d ports: out of range", s.Addresses, s.Net, s.Ports)
	}
	return nil
}

// A sender sends from one port of many addresses: its socket is bound to none,
// and each datagram says where it comes from.
type sender struct {
	fd      int
	sources Sources
	at      int // the source of the next datagram
	out     messages
}

// newSender opens the socket. The buffer for what it receives is large enough
// for all that a client waits for.
func newSender(target netip.AddrPort, s Sources, payload int) (*sender, error) {
	if payload < minPayload || payload > maxPayload {
		return nil, fmt.Errorf("load: payload of %d bytes is outside %d..%d", payload, minPayload, maxPayload)
	}
	if !target.Addr().Is4() || !target.Addr().IsLoopback() {
		return nil, fmt.Errorf("load: %v is not an address of 127.0.0.0/8", target)
	}
	fd, err := udpSocket(netip.AddrPortFrom(netip.IPv4Unspecified(), 0))
	if err != nil {
		return nil, err
	}
	r := &sender{fd: fd, sources: s}
	r.out.prepare(payload, target)
	return r, nil
}

// send sends n datagrams, 1..batch, each from the next source and with its
// number, and returns how many the kernel took.
func (s *sender) send(n int, number func() uint64) (int, error) {
	for i := range n {
		s.out.from(i, Source(s.sources.Net, s.at))
		if s.at++; s.at == s.sources.Addresses {
			s.at = 0
		}
		binary.BigEndian.PutUint64(s.out.data[i][:], number())
	}
	return s.out.send(s.fd, n)
}

func (s *sender) close() error { return unix.Close(s.fd) }

// udpSocket is a socket that does not block.
func udpSocket(local netip.AddrPort) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("load: socket: %w", err)
	}
	const buffer = 4 << 20
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, buffer) // as much as the machine gives
	}
	addr := unix.SockaddrInet4{Port: int(local.Port()), Addr: local.Addr().As4()}
	if err := unix.Bind(fd, &addr); err != nil {
		unix.Close(fd)
		return 0, fmt.Errorf("load: bind %v: %w", local, err)
	}
	return fd, nil
}
