//go:build unix

package state

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
)

// beSaver names the file of a child process that saves until it is killed.
const beSaver = "TEST_BINARY_SAVES_TO"

func TestMain(m *testing.M) {
	if path := os.Getenv(beSaver); path != "" {
		saveForever(path)
	}
	os.Exit(m.Run())
}

// saveForever loads the file, and then bans one more and saves, again and again.
// It prints how many bans a save that has returned is to hold.
func saveForever(path string) {
	e, err := engine.New(engine.Config{Load: engine.NoLoad})
	if err != nil {
		panic(err)
	}
	Load(path, e, discard)
	for i := range 200 { // some content, so that a write takes its time
		e.Evaluate(netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 1))
	}
	k := Start(path, time.Millisecond, e, discard)
	for n := len(e.Bans()); ; n++ {
		if err := e.Ban(nth(n), 0, ""); err != nil {
			panic(err)
		}
		if err := k.Save(); err != nil {
			panic(err)
		}
		fmt.Println(n + 1)
	}
}

func nth(n int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 32)
}

// C104: killed at any moment, a hundred times over, the file is whole, and has
// what a save had promised.
func TestKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	promised := 0
	for round := range 100 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), beSaver+"="+path, "GORACE=atexit_sleep_ms=0")
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		require.True(t, lines.Scan(), "round %d: the child has saved nothing", round)
		kill := time.AfterFunc(rand.N(5*time.Millisecond), func() { cmd.Process.Kill() })
		for more := true; more; more = lines.Scan() {
			promised, err = strconv.Atoi(lines.Text())
			require.NoError(t, err)
		}
		kill.Stop()
		cmd.Process.Kill()
		require.Error(t, cmd.Wait(), "it was killed")

		e, err := engine.New(engine.Config{Load: engine.NoLoad})
		require.NoError(t, err)
		require.NoError(t, read(path, e), "round %d", round)
		require.GreaterOrEqual(t, len(e.Bans()), promised, "round %d", round)
		require.NoError(t, e.Close())
	}
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.LessOrEqual(t, len(left), 2, "unfinished files do not pile up")
}
