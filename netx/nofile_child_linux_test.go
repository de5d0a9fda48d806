package netx

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/policy/limiter"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// lowLimitEnv makes the test binary a gateway with few descriptors, with a
// queue of so many connections.
const (
	lowLimitEnv = "THROTTLED_TEST_LOW_LIMIT"
	lowLimit    = 256
	// upstreamEnv is its TCP upstream.
	upstreamEnv = "THROTTLED_TEST_UPSTREAM"
)

// childState is what the gateway process answers to each command.
type childState struct {
	UDP, TCP  netip.AddrPort
	Listeners []ListenerReport
	Restarts  int64
	CPU       time.Duration
}

// C85: a burst of connects that is far over the descriptor limit, and a time
// without any free descriptor at all, leave a gateway that serves.
func TestFewDescriptors(t *testing.T) {
	if os.Getenv(lowLimitEnv) != "" {
		if err := lowLimitChild(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	child := startChild(t, 0, Echo)
	state := child.ask(t, "state")
	// One client, as each new one takes a session.
	datagrams, err := net.Dial("udp", state.UDP.String())
	require.NoError(t, err)
	defer datagrams.Close()
	serves := func() bool { return echoes(datagrams) && echoesTCP(state.TCP) }
	require.Eventually(t, serves, settled, 10*time.Millisecond)

	t.Run("burst", func(t *testing.T) {
		const connects = 2000
		before := child.ask(t, "state")
		open := connectAll(state.TCP, connects)
		busy := child.ask(t, "state")
		assert.LessOrEqual(t, busy.Listeners[1].ConnectionsActive, int64(lowLimit/fdsPerConnection))
		assert.Positive(t, busy.Listeners[1].Dropped["connections_full"])
		assert.True(t, echoes(datagrams), "UDP while the TCP listener is full")
		for _, c := range open {
			c.Close()
		}
		require.Eventually(t, serves, settled, 10*time.Millisecond)
		after := child.ask(t, "state")
		assert.EqualValues(t, before.Restarts, after.Restarts, "a burst must not end an engine")
		assert.GreaterOrEqual(t, after.Listeners[1].Packets, int64(connects))
	})
	t.Run("none left", func(t *testing.T) {
		var (
			before childState
			began  time.Time
		)
		for refused, tries := 0, 0; refused < 2; tries++ { // what was closing is free only by and by
			require.Less(t, tries, 100, "accepted without a descriptor: this test tests nothing")
			before, began = child.ask(t, "fill"), time.Now()
			if refused++; echoesTCP(state.TCP) {
				refused = 0
			}
		}
		assert.True(t, echoes(datagrams), "UDP must not end with the TCP listener")
		after := child.ask(t, "state")
		assert.Less(t, after.CPU-before.CPU, time.Since(began)/5, "the gateway is busy doing nothing")
		child.ask(t, "free")
		require.Eventually(t, serves, settled, 10*time.Millisecond)
		assert.Equal(t, before.Restarts, child.ask(t, "state").Restarts)
	})
}

// Connections come and are put out of the queue by newer ones much faster than
// they are served; however the goroutines that see to it are scheduled, no more
// of them are open than were planned for.
func TestFewDescriptorsWithQueue(t *testing.T) {
	const connects, queue = 2000, 16
	child := startChild(t, queue, Echo)
	before := child.ask(t, "state")
	open := connectAll(before.TCP, connects)
	busy := child.ask(t, "state")
	assert.LessOrEqual(t, busy.Listeners[1].ConnectionsActive, int64(lowLimit/fdsPerConnection))
	assert.Positive(t, busy.Listeners[1].Dropped["queue_full"])
	assert.Zero(t, busy.Listeners[1].Dropped["connections_full"], "short of descriptors")
	for _, c := range open {
		c.Close()
	}
	require.Eventually(t, func() bool { return echoesTCP(before.TCP) }, settled, 10*time.Millisecond)
	after := child.ask(t, "state")
	assert.EqualValues(t, before.Restarts, after.Restarts, "a burst must not end an engine")
	assert.GreaterOrEqual(t, after.Listeners[1].Packets, int64(connects))
}

// As many connections as the descriptor limit allows all work at once, and
// what goes through them in bulk is spliced in both directions, timeouts or not.
func TestFewDescriptorsSplice(t *testing.T) {
	const connects, bulk = lowLimit, 512 << 10
	child := startChild(t, 0, upstreamTCP(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) }))
	addr := child.ask(t, "state").TCP
	open := connectAll(addr, connects)
	var active int64
	require.Eventually(t, func() bool {
		l := child.ask(t, "state").Listeners[1]
		active = l.ConnectionsActive
		return l.Packets == connects && active == l.Forwarded
	}, settled, 10*time.Millisecond)
	assert.Greater(t, active, int64(lowLimit/4), "fewer than the descriptors are good for")
	before := child.copied(t)
	block := randomBytes(bulk)
	var (
		wg      sync.WaitGroup
		relayed atomic.Int64
	)
	for _, c := range open {
		wg.Go(func() {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(ioTimeout))
			go c.Write(block)
			if got := make([]byte, bulk); readAll(c, got) && assert.Equal(t, block, got) {
				relayed.Add(1)
			}
		})
	}
	wg.Wait()
	assert.Equal(t, active, relayed.Load(), "not all that were served got everything")
	assert.Less(t, child.copied(t)-before, 2*relayed.Load()*bulk, "of four times as much, in and out, each direction")
	after := child.ask(t, "state").Listeners[1]
	assert.Zero(t, after.UpstreamErrors)
	assert.EqualValues(t, connects-active, after.Dropped["connections_full"])
}

func readAll(r io.Reader, b []byte) bool {
	_, err := io.ReadFull(r, b)
	return err == nil
}

// copied is how many bytes the child has read and written, a splice aside.
func (c *child) copied(t *testing.T) (sum int64) {
	t.Helper()
	all, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", c.pid))
	require.NoError(t, err)
	var read, written int64
	_, err = fmt.Sscanf(string(all), "rchar: %d\nwchar: %d", &read, &written)
	require.NoError(t, err)
	return read + written
}

// connectAll opens n connections at once and returns those that stayed.
func connectAll(addr netip.AddrPort, n int) (open []net.Conn) {
	var (
		mu sync.Mutex
		wg sync.WaitGroup
	)
	for range n {
		wg.Go(func() {
			c, err := net.DialTimeout("tcp", addr.String(), ioTimeout)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			open = append(open, c)
		})
	}
	wg.Wait()
	return open
}

// echoesTCP says whether a new connection is served.
func echoesTCP(addr netip.AddrPort) bool {
	c, err := net.DialTimeout("tcp", addr.String(), ioTimeout)
	if err != nil {
		return false
	}
	defer c.Close()
	return echoes(c)
}

// echoes says whether a byte comes back.
func echoes(c net.Conn) bool {
	if c.SetDeadline(time.Now().Add(time.Second)) != nil {
		return false
	}
	if _, err := c.Write([]byte("x")); err != nil {
		return false
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err == nil
}

type child struct {
	in  io.WriteCloser
	out *bufio.Reader
	pid int
}

func startChild(t *testing.T, queue int, upstream string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestFewDescriptors$")
	cmd.Env = append(os.Environ(), lowLimitEnv+"="+strconv.Itoa(queue), upstreamEnv+"="+upstream)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		in.Close() // the child ends with its input
		assert.NoError(t, cmd.Wait())
	})
	return &child{in: in, out: bufio.NewReader(out), pid: cmd.Process.Pid}
}

func (c *child) ask(t *testing.T, command string) (state childState) {
	t.Helper()
	_, err := fmt.Fprintln(c.in, command)
	require.NoError(t, err)
	line, err := c.out.ReadBytes('\n')
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(line, &state))
	return state
}

// lowLimitChild serves UDP and TCP and answers commands until its input ends.
func lowLimitChild(in io.Reader, out io.Writer) error {
	queue, err := strconv.Atoi(os.Getenv(lowLimitEnv))
	if err != nil {
		return err
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: lowLimit, Max: lowLimit}); err != nil {
		return err
	}
	e, err := engine.New(engine.Config{
		Default: policy.Policy{Packets: tokenbucket.Limit{Capacity: 1 << 20, RefillPerSecond: 1e6}},
		Load:    engine.NoLoad,
	})
	if err != nil {
		return err
	}
	defer e.Close()
	g, err := StartGateway(GatewayConfig{Engine: e, Listeners: []ListenerConfig{
		{Name: "udp", Protocol: UDP, Listen: loopback(0), Upstream: Echo, UDP: UDPOptions{MaxSessions: 20}},
		{Name: "tcp", Protocol: TCP, Listen: loopback(0), Upstream: os.Getenv(upstreamEnv), TCP: TCPOptions{
			Queue:            queueOf(queue, limiter.NewestFirst),
			FirstByteTimeout: time.Minute,
			IdleTimeout:      time.Minute,
		}},
	}})
	if err != nil {
		return err
	}
	err = answer(g, bufio.NewScanner(in), json.NewEncoder(out))
	return errors.Join(err, g.Close())
}

func answer(g *Gateway, commands *bufio.Scanner, out *json.Encoder) error {
	var hoard []int
	for commands.Scan() {
		switch commands.Text() {
		case "fill":
			for {
				fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
				if err != nil {
					break
				}
				hoard = append(hoard, fd)
			}
		case "free":
			for _, fd := range hoard {
				_ = unix.Close(fd)
			}
			hoard = nil
		}
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			return err
		}
		err := out.Encode(childState{
			UDP: g.Addrs()[0], TCP: g.Addrs()[1],
			Listeners: g.Listeners(),
			Restarts:  g.Restarts(),
			CPU:       time.Duration(u.Utime.Nano() + u.Stime.Nano()),
		})
		if err != nil {
			return err
		}
	}
	return commands.Err()
}
