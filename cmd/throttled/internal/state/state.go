// Package state keeps in a file what a restart of the gateway must not lose:
// bans that somebody gave, lockouts, their growth, and what is left of budgets.
//
// Whenever the process ends or the machine goes down, the file is a whole one:
// the last that was saved, or the one before. What is written is the engine's
// snapshot, with a version and a checksum; a file that is damaged is put aside,
// not deleted. One gateway has the file, not several.
package state

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/seed-ee4278a0/throttled/engine"
)

// Load gives the engine what the file holds, if there is one. A file that cannot
// be read is moved to path.bak, with a warning, and the engine starts without.
func Load(path string, e *engine.Engine, log *slog.Logger) {
	err := read(path, e)
	switch {
	case err == nil:
		log.Info("state loaded", "path", path, "bans", len(e.Bans()), "endpoints", e.Report().TrackedEndpoints)
		return
	case errors.Is(err, fs.ErrNotExist):
		return
	}
	aside := path + ".bak"
	if moveErr := os.Rename(path, aside); moveErr != nil {
		log.Warn("the state file cannot be read, starting without", "path", path, "error", err, "not_moved", moveErr)
		return
	}
	log.Warn("the state file cannot be read, starting without", "path", path, "error", err, "moved_to", aside)
}

func read(path string, e *engine.Engine) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return e.ReadSnapshot(f)
}

// A Keeper saves the state of an engine, from Start until Close. Its methods are
// safe for concurrent use; Close is to be called once.
type Keeper struct {
	path     string
	snapshot func(io.Writer) error
	log      *slog.Logger
	failing  bool              // of the goroutine: the last save went wrong
	asks     chan chan<- error // nil: nobody waits for the answer
	interval chan time.Duration
	stop     chan struct{}
	done     chan struct{}
}

// room is how many can ask at once without waiting to have asked.
const room = 16

// Start saves the state now and then after each interval. That it cannot be
// saved is said once, and once when it can be again.
func Start(path string, interval time.Duration, e *engine.Engine, log *slog.Logger) *Keeper {
	return start(path, interval, e.WriteSnapshot, log)
}

func start(path string, interval time.Duration, snapshot func(io.Writer) error, log *slog.Logger) *Keeper {
	k := &Keeper{
		path:     path,
		snapshot: snapshot,
		log:      log,
		asks:     make(chan chan<- error, room),
		interval: make(chan time.Duration),
		stop:     make(chan struct{}),
		done:     make(chan struct{}),
	}
	go k.run(interval)
	return k
}

// errClosed is what Save says after Close.
var errClosed = fmt.Errorf("state: %w", fs.ErrClosed)

// Save returns when all that was so before the call is in the file, or cannot be
// put there. Those who ask at the same time wait for one and the same save.
func (k *Keeper) Save() error {
	answer := make(chan error, 1)
	select {
	case k.asks <- answer:
	case <-k.done:
		return errClosed
	}
	select {
	case err := <-answer:
		return err
	case <-k.done:
		return errClosed
	}
}

// Soon has the state saved without waiting for it.
func (k *Keeper) Soon() {
	select {
	case k.asks <- nil:
	default: // those who wait have it saved
	}
}

// SetInterval changes the time between two saves.
func (k *Keeper) SetInterval(interval time.Duration) {
	select {
	case k.interval <- interval:
	case <-k.done:
	}
}

// Close saves the state once more.
func (k *Keeper) Close() {
	close(k.stop)
	<-k.done
}

func (k *Keeper) run(interval time.Duration) {
	defer close(k.done)
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	k.save()
	for {
		select {
		case <-ticks.C:
			k.save()
		case interval := <-k.interval:
			ticks.Reset(interval)
		case answer := <-k.asks:
			k.saveFor(answer)
		case <-k.stop:
			k.saveFor(nil)
			return
		}
	}
}

// saveFor saves for the first who asks and all who have asked meanwhile.
func (k *Keeper) saveFor(first chan<- error) {
	waiting := []chan<- error{first}
	for range len(k.asks) {
		waiting = append(waiting, <-k.asks)
	}
	err := k.save()
	for _, answer := range waiting {
		if answer != nil {
			answer <- err
		}
	}
}

func (k *Keeper) save() error {
	err := replace(k.path, k.snapshot)
	switch {
	case err != nil && !k.failing:
		k.log.Warn("the state cannot be saved; it is tried again and again", "path", k.path, "error", err)
	case err == nil && k.failing:
		k.log.Info("the state is saved again", "path", k.path)
	}
	k.failing = err != nil
	return err
}

// replace puts a new file into the place of the one at path, if there is one.
// Until it is whole and on the disk it has another name, always the same one, so
// that processes that are killed leave no more than one behind. A link at path
// stays, and the file that it leads to is replaced.
func replace(path string, content func(io.Writer) error) (err error) {
	if file, err := filepath.EvalSymlinks(path); err == nil {
		path = file
	}
	unfinished := path + ".tmp"
	if err := os.Remove(unfinished); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(unfinished, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(unfinished)
		}
	}()
	if err := errors.Join(content(f), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(unfinished, path); err != nil {
		return err
	}
	syncFolder(filepath.Dir(path))
	return nil
}

// syncFolder has the new name on the disk, too. Not every file system can do
// that; without it a machine that goes down may come up with the file before.
func syncFolder(path string) {
	if folder, err := os.Open(path); err == nil {
		folder.Sync()
		folder.Close()
	}
}
