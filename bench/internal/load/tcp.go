package load

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	requestLen = 8 // how many bytes are wanted, big-endian
	replyLen   = 64
	piece      = 64 << 10
)

// A Server gives every TCP connection as many bytes as it asks for.
type Server struct {
	Addr     netip.AddrPort
	listener net.Listener
	done     sync.WaitGroup
}

// StartServer serves on a port of 127.0.0.1 until Close.
func StartServer() (*Server, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	s := &Server{Addr: l.Addr().(*net.TCPAddr).AddrPort(), listener: l}
	s.done.Go(s.accept)
	return s, nil
}

// Close stops accepting and returns when the last client has gone.
func (s *Server) Close() error {
	err := s.listener.Close()
	s.done.Wait()
	return err
}

func (s *Server) accept() {
	data := make([]byte, piece)
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.done.Go(func() {
			defer c.Close()
			var request [requestLen]byte
			for {
				if _, err := io.ReadFull(c, request[:]); err != nil {
					return
				}
				for left := binary.BigEndian.Uint64(request[:]); left > 0; {
					n, err := c.Write(data[:min(left, piece)])
					if err != nil {
						return
					}
					left -= uint64(n)
				}
			}
		})
	}
}

// Connections connects, asks for a few bytes and closes, over and over, from so
// many addresses and with so many at a time. It returns how many were served.
func Connections(target netip.AddrPort, addresses, atATime int, d time.Duration) (served int64, err error) {
	return inParallel(atATime, d, func(i int64) (int64, error) {
		c, err := dial(target, Source(16, int(i)%addresses))
		if err != nil {
			return 0, err
		}
		defer c.Close()
		if _, err = ask(c, replyLen); err != nil {
			return 0, err
		}
		return 1, nil
	})
}

// Transfer asks for megabytes (2^20 bytes) over so many connections and returns
// how many came.
func Transfer(target netip.AddrPort, connections int, d time.Duration) (megabytes int64, err error) {
	conns := make([]net.Conn, 0, connections)
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	idle := make(chan net.Conn, connections)
	for i := range connections {
		c, err := dial(target, Source(16, i))
		if err != nil {
			return 0, err
		}
		conns = append(conns, c)
		idle <- c
	}
	return inParallel(connections, d, func(int64) (int64, error) {
		c := <-idle
		defer func() { idle <- c }()
		n, err := ask(c, 1<<20)
		return n >> 20, err
	})
}

// inParallel calls f, each time with another number, and adds up.
func inParallel(workers int, d time.Duration, f func(i int64) (int64, error)) (int64, error) {
	var (
		calls, sum atomic.Int64
		wg         sync.WaitGroup
		errs       = make([]error, workers)
	)
	end := time.Now().Add(d)
	for w := range workers {
		wg.Go(func() {
			for time.Now().Before(end) {
				n, err := f(calls.Add(1) - 1)
				if err != nil {
					errs[w] = fmt.Errorf("load: %w", err)
					return
				}
				sum.Add(n)
			}
		})
	}
	wg.Wait()
	return sum.Load(), errors.Join(errs...)
}

func dial(target netip.AddrPort, from netip.Addr) (net.Conn, error) {
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), Timeout: 5 * time.Second}
	return d.DialContext(context.Background(), "tcp4", target.String())
}

func ask(c net.Conn, n int64) (int64, error) {
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return 0, err
	}
	if _, err := c.Write(binary.BigEndian.AppendUint64(nil, uint64(n))); err != nil {
		return 0, err
	}
	return io.CopyN(io.Discard, c, n)
}
