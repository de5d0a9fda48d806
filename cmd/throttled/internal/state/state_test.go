package state

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// locking locks out at the first denial, twice as long each time.
func locking(t *testing.T) *engine.Engine {
	t.Helper()
	e, err := engine.New(engine.Config{Load: engine.NoLoad, Default: policy.Policy{
		Packets:    tokenbucket.Limit{Capacity: 1, RefillPerSecond: 1},
		Escalation: policy.Escalation{MaxSoftViolations: 1, Lockout: time.Minute, Growth: 2},
	}})
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	return e
}

var discard = slog.New(slog.DiscardHandler)

func textLog() (*slog.Logger, *strings.Builder) {
	var b strings.Builder
	return slog.New(slog.NewTextHandler(&b, nil)), &b
}

// C42, C105: what is left of bans and lockouts, and the growth, outlive a
// restart; the time spent down counts, and what ended meanwhile is gone.
func TestRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	synctest.Test(t, func(t *testing.T) {
		client := netip.MustParseAddrPort("192.0.2.1:1")
		first := locking(t)
		require.NoError(t, first.Ban(netip.MustParsePrefix("203.0.113.0/24"), 10*time.Minute, "scanner"))
		require.NoError(t, first.Ban(netip.MustParsePrefix("198.51.100.0/24"), 0, ""))
		require.NoError(t, first.Ban(netip.MustParsePrefix("10.0.0.0/8"), time.Second, "ends while it is down"))
		first.Evaluate(client)
		require.Equal(t, time.Minute, first.Evaluate(client).RetryAfter)
		k := Start(path, time.Hour, first, discard)
		k.Close()
		first.Close()

		time.Sleep(20 * time.Second)
		second := locking(t)
		log, said := textLog()
		Load(path, second, log)
		assert.Contains(t, said.String(), `msg="state loaded"`)
		assert.Contains(t, said.String(), "bans=2 endpoints=1")
		bans := second.Bans()
		require.Len(t, bans, 2)
		assert.Equal(t, 10*time.Minute-20*time.Second, time.Until(bans[1].Until))
		d := second.Evaluate(client)
		assert.Equal(t, 40*time.Second, d.RetryAfter)
		time.Sleep(d.RetryAfter)
		require.True(t, second.Evaluate(client).Allowed)
		assert.Equal(t, 2*time.Minute, second.Evaluate(client).RetryAfter, "the growth was kept")
		second.Close()
	})
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
}

func TestLoadOfNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	log, said := textLog()
	Load(path, locking(t), log)
	assert.Empty(t, said.String(), "the first start")
	assert.NoFileExists(t, path+".bak")
}

// C104: damage is put aside, and the engine starts empty.
func TestLoadOfDamage(t *testing.T) {
	var snapshot bytes.Buffer
	e := locking(t)
	require.NoError(t, e.Ban(netip.MustParsePrefix("203.0.113.0/24"), 0, ""))
	require.NoError(t, e.WriteSnapshot(&snapshot))
	whole := snapshot.Bytes()
	for name, damage := range map[string][]byte{
		"empty":           {},
		"cut":             whole[:len(whole)/2],
		"a byte flipped":  bytes.Replace(whole, []byte{203}, []byte{204}, 1),
		"another version": bytes.Replace(whole, []byte("state-1"), []byte("state-2"), 1),
		"something else":  []byte("bans: []\n"),
	} {
		path := filepath.Join(t.TempDir(), "state")
		require.NoError(t, os.WriteFile(path, damage, 0o600))
		e := locking(t)
		log, said := textLog()
		Load(path, e, log)
		assert.Empty(t, e.Bans(), name)
		assert.Equal(t, 1, strings.Count(said.String(), "level=WARN"), "%s: %s", name, said)
		assert.Contains(t, said.String(), "moved_to="+path+".bak", name)
		assert.NoFileExists(t, path, name)
		aside, err := os.ReadFile(path + ".bak")
		require.NoError(t, err, name)
		assert.Equal(t, damage, aside, name)
	}
}

func TestSavesEachInterval(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	synctest.Test(t, func(t *testing.T) {
		var saves atomic.Int64
		k := start(path, time.Minute, func(w io.Writer) error { saves.Add(1); return nil }, discard)
		synctest.Wait()
		require.EqualValues(t, 1, saves.Load(), "at once")
		time.Sleep(10*time.Minute + time.Second)
		require.EqualValues(t, 11, saves.Load())
		k.Soon()
		synctest.Wait()
		require.EqualValues(t, 12, saves.Load())
		k.Close()
		require.EqualValues(t, 13, saves.Load(), "and at the end")
	})
}

// Who asks waits for a save that began after the question, and many at once for
// the same.
func TestManyAsk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	synctest.Test(t, func(t *testing.T) {
		begun, finish := make(chan int), make(chan error)
		n := 0
		k := start(path, time.Hour, func(io.Writer) error { n++; begun <- n; return <-finish }, discard)
		require.Equal(t, 1, <-begun)
		var answered atomic.Int64
		var group sync.WaitGroup
		for range room {
			group.Go(func() { assert.EqualError(t, k.Save(), "full"); answered.Add(1) })
		}
		synctest.Wait()
		k.Soon() // has no room, and needs none
		finish <- nil
		require.Equal(t, 2, <-begun)
		require.Zero(t, answered.Load(), "the save before the question is no answer")
		finish <- errors.New("full")
		group.Wait()
		go func() { finish <- nil }()
		go func() { <-begun }()
		k.Close()
		require.Equal(t, 3, n)
	})
}

// It is said once that the state cannot be saved, and the file before stays.
func TestCannotSave(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	require.NoError(t, os.WriteFile(path, []byte("before"), 0o600))
	synctest.Test(t, func(t *testing.T) {
		log, said := textLog()
		var failure atomic.Pointer[error]
		full := errors.New("no space left")
		failure.Store(&full)
		k := start(path, time.Minute, func(w io.Writer) error {
			if err := failure.Load(); err != nil {
				w.Write([]byte("half of it"))
				return *err
			}
			_, err := w.Write([]byte("after"))
			return err
		}, log)
		require.ErrorIs(t, k.Save(), full)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, 1, strings.Count(said.String(), "level=WARN"), said.String())
		now, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, "before", string(now))
		_, err = os.Stat(path + ".tmp")
		require.ErrorIs(t, err, fs.ErrNotExist)

		failure.Store(nil)
		require.NoError(t, k.Save())
		require.Equal(t, 1, strings.Count(said.String(), "the state is saved again"))
		k.Close()
	})
	now, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "after", string(now))

	k := start(filepath.Join(path, "below", "a", "file"), time.Hour, func(io.Writer) error { return nil }, discard)
	require.Error(t, k.Save())
	k.Close()
}

// What somebody has put where the unfinished file goes is not written into.
func TestTheUnfinishedFileIsOurOwn(t *testing.T) {
	dir := t.TempDir()
	path, precious := filepath.Join(dir, "state"), filepath.Join(dir, "precious")
	require.NoError(t, os.WriteFile(precious, []byte("precious"), 0o644))
	require.NoError(t, os.Symlink(precious, path+".tmp"))
	require.NoError(t, replace(path, func(w io.Writer) error { _, err := w.Write([]byte("state")); return err }))
	kept, err := os.ReadFile(precious)
	require.NoError(t, err)
	assert.Equal(t, "precious", string(kept))
	assert.NoFileExists(t, path+".tmp")
}

// A link to a file on another disk stays one.
func TestLinkStays(t *testing.T) {
	folder, other := t.TempDir(), t.TempDir()
	link, file := filepath.Join(folder, "state"), filepath.Join(other, "real")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Symlink(file, link))
	want := []byte("content")
	require.NoError(t, replace(link, func(w io.Writer) error { _, err := w.Write(want); return err }))
	target, err := os.Readlink(link)
	require.NoError(t, err)
	assert.Equal(t, file, target)
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

func TestSetInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		saves := 0
		k := start(filepath.Join(t.TempDir(), "state"), time.Hour, func(io.Writer) error { saves++; return nil }, slog.New(slog.DiscardHandler))
		synctest.Wait()
		require.Equal(t, 1, saves)
		k.SetInterval(time.Second)
		time.Sleep(3500 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, 4, saves)
		k.Close()
		require.Equal(t, 5, saves)
		k.SetInterval(time.Minute) // too late, and no matter
	})
}
