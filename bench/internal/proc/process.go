package proc

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Process is a program under test.
type Process struct {
	Name string
	cmd  *exec.Cmd
	said tail
	done chan struct{} // closed when it has ended
}

// Start runs a program on one core, from its first instruction on. It ends with
// this process, whatever happens.
func Start(name string, core int, command string, args ...string) (*Process, error) {
	p := &Process{Name: name, cmd: exec.Command(command, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.said, &p.said
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := onCore(core, p.cmd.Start); err != nil {
		return nil, fmt.Errorf("proc: start %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// onCore calls f on a thread that runs on one core; what f starts inherits it.
func onCore(core int, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	one.Set(core)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return err
	}
	return errors.Join(f(), unix.SchedSetaffinity(0, &before))
}

// CPU is the time that the process has been running so far.
func (p *Process) CPU() (time.Duration, error) {
	d, err := CPU(p.cmd.Process.Pid)
	if err != nil {
		return 0, p.ended(err)
	}
	return d, nil
}

// Pause stops the process until Resume.
func (p *Process) Pause() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume lets the process go on.
func (p *Process) Resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// Await asks ready again and again until it is true, and gives up after ten
// seconds or when the process has ended.
func (p *Process) Await(ready func() bool) error {
	for deadline := time.Now().Add(10 * time.Second); !ready(); {
		select {
		case <-p.done:
			return p.ended(nil)
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return p.ended(errors.New("not ready in time"))
		}
	}
	return nil
}

// ended is an error that quotes what the process said last.
func (p *Process) ended(err error) error {
	state := "is running"
	select {
	case <-p.done:
		state = p.cmd.ProcessState.String()
	default:
	}
	return errors.Join(fmt.Errorf("proc: %s: %s: %s", p.Name, state, &p.said), err)
}

// Stop ends the process and waits for it.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(os.Interrupt)
	select {
	case <-p.done:
	case <-time.After(2 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	data []byte
}

func (t *tail) Write(p []byte) (int, error) {
	const keep = 1 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, p...)
	if extra := len(t.data) - keep; extra > 0 {
		t.data = t.data[extra:]
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(bytes.ToValidUTF8(t.data, nil)))
}

// Cores are those that this process may run on.
func Cores() (cores []int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("proc: cores: %w", err)
	}
	for core := range len(set) * bits.UintSize {
		if set.IsSet(core) {
			cores = append(cores, core)
		}
	}
	return cores, nil
}

// Pin puts all threads of this process on one core, and so those that they will
// start.
func Pin(core int) error {
	var one unix.CPUSet
	one.Set(core)
	for pinned := 0; ; { // until no thread has come meanwhile
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("proc: pin: %w", err)
		}
		for _, t := range threads {
			id, err := strconv.Atoi(t.Name())
			if err != nil {
				return fmt.Errorf("proc: pin: %w", err)
			}
			if err := unix.SchedSetaffinity(id, &one); err != nil && err != unix.ESRCH {
				return fmt.Errorf("proc: pin to core %d: %w", core, err)
			}
		}
		if len(threads) == pinned {
			return nil
		}
		pinned = len(threads)
	}
}
