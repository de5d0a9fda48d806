package netx_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/netx"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// twoAnHour lets a client send two packets, and one more each half hour.
func twoAnHour() *engine.Engine {
	e, err := engine.New(engine.Config{
		Default: policy.Policy{Packets: tokenbucket.Limit{Capacity: 2, RefillPerSecond: 2.0 / 3600}},
		Load:    engine.NoLoad,
	})
	if err != nil {
		log.Fatal(err)
	}
	return e
}

// exchange sends a packet and prints what comes back within a moment.
func exchange(c net.Conn, packet string) {
	buf := make([]byte, 100)
	fmt.Fprint(c, packet)
	c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	n, err := c.Read(buf)
	if err != nil {
		fmt.Println(packet, "-> no answer")
		return
	}
	fmt.Println(packet, "->", string(buf[:n]))
}

// freeAddr is an address that nobody listens on.
func freeAddr() string {
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	return c.LocalAddr().String()
}

// echoServer is a gnet server that knows nothing of limits.
type echoServer struct {
	gnet.BuiltinEventEngine
	engine gnet.Engine
	booted chan struct{}
}

func (s *echoServer) OnBoot(eng gnet.Engine) gnet.Action {
	s.engine = eng
	close(s.booted)
	return gnet.None
}

func (s *echoServer) OnTraffic(c gnet.Conn) gnet.Action {
	packet, _ := c.Next(-1)
	c.Write(packet)
	return gnet.None
}

func ExampleGuard() {
	e := twoAnHour()
	defer e.Close()
	addr := freeAddr()
	server := &echoServer{booted: make(chan struct{})}
	ended := make(chan error)
	go func() { ended <- gnet.Run(netx.Guard(e, server), "udp://"+addr) }()
	<-server.booted

	c, err := net.Dial("udp", addr)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	exchange(c, "one")
	exchange(c, "two")
	exchange(c, "three")

	server.engine.Stop(context.Background())
	<-ended
	// Output:
	// one -> one
	// two -> two
	// three -> no answer
}

func ExamplePacketConn() {
	e := twoAnHour()
	defer e.Close()
	plain, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := netx.PacketConn(e, plain)
	defer server.Close()
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := server.ReadFrom(buf) // skips what is denied
			if err != nil {
				return
			}
			server.WriteTo(buf[:n], from)
		}
	}()

	c, err := net.Dial("udp", server.LocalAddr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	exchange(c, "one")
	exchange(c, "two")
	exchange(c, "three")
	// Output:
	// one -> one
	// two -> two
	// three -> no answer
}

func ExampleListener() {
	e := twoAnHour()
	defer e.Close()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := netx.Listener(e, plain)
	defer server.Close()
	go func() {
		for {
			c, err := server.Accept() // skips who is denied
			if err != nil {
				return
			}
			io.WriteString(c, "welcome")
			c.Close()
		}
	}()

	for i := range 3 {
		var answer []byte
		c, err := net.Dial("tcp", server.Addr().String())
		if err == nil {
			answer, err = io.ReadAll(c)
			c.Close()
		}
		fmt.Printf("connection %d: %q, reset: %v\n", i+1, answer, err != nil)
	}
	// Output:
	// connection 1: "welcome", reset: false
	// connection 2: "welcome", reset: false
	// connection 3: "", reset: true
}
