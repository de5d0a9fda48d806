package netx

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// repliesSettle waits until what was sent to clients is counted, which may be a
// moment after a client has it.
func repliesSettle(t *testing.T, g *Gateway, replies, bytes int64) {
	t.Helper()
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		r := g.Listeners()[0]
		assert.Equal(t, replies, r.Replies)
		assert.Equal(t, bytes, r.ReplyBytes)
	}, ioTimeout, time.Millisecond)
}

func TestUDPRepliesAreCounted(t *testing.T) {
	onEachPath(t, func(t *testing.T, on path) {
		g := on.start(t, newEngine(t, 3), Echo, UDPOptions{})
		c := dialUDP(t, "", g.Addrs()[0])
		for _, payload := range []string{"hello", "", "world!"} {
			_, err := c.Write([]byte(payload))
			require.NoError(t, err)
			require.NoError(t, c.SetReadDeadline(time.Now().Add(ioTimeout)))
			n, err := c.Read(make([]byte, 100))
			require.NoError(t, err)
			require.Len(t, payload, n)
		}
		_, err := c.Write([]byte("denied"))
		require.NoError(t, err)
		require.Eventually(t, func() bool { return g.Listeners()[0].Packets == 4 }, ioTimeout, time.Millisecond)
		repliesSettle(t, g, 3, int64(len("hello")+len("world!")))
	})
}

func TestTCPReplyBytesAreCounted(t *testing.T) {
	const asked, answered = 100, 1 << 20 // the answer is so long that it is spliced
	upstream := upstreamTCP(t, func(c *net.TCPConn) {
		_, _ = io.ReadFull(c, make([]byte, asked))
		_, _ = c.Write(make([]byte, answered))
	})
	g, report := startTCP(t, upstream, TCPOptions{})
	c, err := net.Dial("tcp", g.Addrs()[0].String())
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(ioTimeout)))
	_, err = c.Write(make([]byte, asked))
	require.NoError(t, err)
	got, err := io.Copy(io.Discard, c)
	require.NoError(t, err)
	require.EqualValues(t, answered, got)
	repliesSettle(t, g, 0, answered)
	assert.EqualValues(t, asked, report().Bytes)
}

func TestDropReasons(t *testing.T) {
	names := DropReasons()
	assert.Len(t, names, int(dropReasons))
	assert.Contains(t, names, "soft_throttle")
	assert.Contains(t, names, "kernel")
}
