package proc

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseSchedstat(t *testing.T) {
	d, err := parseSchedstat("1174835 10672871 15\n")
	require.NoError(t, err)
	assert.Equal(t, 1174835*time.Nanosecond, d)
	for _, bad := range []string{"", "1 2", "x 2 3", "1 2 3 4"} {
		_, err := parseSchedstat(bad)
		assert.Error(t, err, "%q", bad)
	}
}

func TestParseSockets(t *testing.T) {
	const udp = `   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  377: 0100007F:1B58 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 3818036 2 000000005def323b 12
  378: 00000000:1B58 00000000:0000 07 00000000:00000300 00:00000000 00000000     0        0 3818037 2 000000005def323c 30
  379: 0100007F:1B59 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 3818038 2 000000005def323d 400
`
	s, err := parseSockets(udp, 7000)
	require.NoError(t, err)
	assert.Equal(t, Sockets{Bound: 2, Queued: 0x300, Drops: 42}, s)
	const tcp = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1B58 00000000:0000 0A 00000000:00000001 00:00000000 00000000     0        0 3818037 2 000000008d263474 100 0 0 10 0
   1: 0100007F:1B58 0100007F:86FC 06 00000000:00000000 03:00000D91 00000000     0        0 0 3 00000000f695f6e1
`
	s, err = parseSockets(tcp, 7000)
	require.NoError(t, err)
	assert.Equal(t, Sockets{Bound: 1}, s)
	for _, bad := range []string{"header\na b c", "h\n 0: 0100007F:XY 0 07 0 0 0 0 0 0 0 0 0", "drops\n 0: 0:1B58 0 07 0 0 0 0 0 0 0 0 x"} {
		_, err := parseSockets(bad, 7000)
		assert.Error(t, err, "%q", bad)
	}
	s, err = parseSockets("header", 7000)
	require.NoError(t, err)
	assert.Zero(t, s)
}

func TestBoundSeesASocket(t *testing.T) {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	port := c.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	s, err := Bound("udp", port)
	require.NoError(t, err)
	assert.Equal(t, 1, s.Bound)
	require.NoError(t, c.Close())
	s, err = Bound("udp", port)
	require.NoError(t, err)
	assert.Zero(t, s.Bound)
}

func TestCPUGrows(t *testing.T) {
	before, err := CPU(os.Getpid())
	require.NoError(t, err)
	for deadline := time.Now().Add(10 * time.Second); ; {
		after, err := CPU(os.Getpid())
		require.NoError(t, err)
		if after > before {
			break
		}
		require.True(t, time.Now().Before(deadline))
	}
	_, err = CPU(1 << 30)
	assert.Error(t, err)
}

func TestProcessRunsOnItsCore(t *testing.T) {
	cores, err := Cores()
	require.NoError(t, err)
	p, err := Start("shell", cores[0], "/bin/sh", "-c", "grep Cpus_allowed_list /proc/self/status; exit 3")
	require.NoError(t, err)
	err = p.Await(func() bool { return false })
	require.ErrorContains(t, err, "exit status 3")
	require.Regexp(t, `Cpus_allowed_list:\s\d+$`, p.said.String())
	p.Stop()
}
