// Package lab is where programs are measured: a network namespace of its own,
// whose loopback nobody else uses, with the programs under test on one core and
// the load on another. It is for Linux.
package lab

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/seed-ee4278a0/throttled/bench/internal/proc"
)

// A Lab has what measurements need.
type Lab struct {
	Dir       string // for files, gone when the command ends
	Throttled string // the gateway, built from this checkout
	Plain     string // the servers of bench/plain
	Core      int    // of the programs under test
}

// folder is the variable that tells the command that it is within the lab.
const folder = "THROTTLED_BENCH_LAB"

// module has the gateway that is measured; bench uses the one of its checkout.
const module = "github.com/seed-ee4278a0/throttled"

// Main parses the flags, calls run in the lab and ends the process. Outside of
// the lab it builds the programs, and starts this command again within it.
func Main(run func(*Lab) error) {
	flag.Parse()
	err := enter(run)
	if err == nil {
		os.Exit(0)
	}
	if !errors.Is(err, errTold) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
	}
	os.Exit(1)
}

func enter(run func(*Lab) error) error {
	if dir := os.Getenv(folder); dir != "" {
		return within(dir, run)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "throttled-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := build(ctx, dir); err != nil {
		return err
	}
	return again(ctx, dir)
}

// errTold is an error of the command within the lab, which has said it.
var errTold = errors.New("lab: the command within has failed")

// build is done outside, as within there is no way to a module proxy, and in the
// folder bench.
func build(ctx context.Context, dir string) error {
	at, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return fmt.Errorf("lab: where is the gateway: %w", err)
	}
	for target, in := range map[string]string{"./cmd/throttled": strings.TrimSpace(string(at)), "./plain": ""} {
		c := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", dir+"/", target)
		c.Dir, c.Env = in, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("lab: build %s: %w\n%s", target, err, out)
		}
	}
	return nil
}

// again runs this command in a new network namespace, which goes with it. Who
// is not root needs a user namespace for that, where the machine allows it.
func again(ctx context.Context, dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, self, os.Args[1:]...)
	c.Args[0] = os.Args[0]
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.Env = append(os.Environ(), folder+"="+dir)
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		c.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	runtime.LockOSThread() // Pdeathsig is about the thread
	if err := c.Start(); err != nil {
		return fmt.Errorf("lab: a network namespace needs root, or a kernel that gives it to users: %w", err)
	}
	if c.Wait() != nil {
		return errTold
	}
	return nil
}

func within(dir string, run func(*Lab) error) error {
	cores, err := proc.Cores()
	if err != nil {
		return err
	}
	if len(cores) < 2 {
		return errors.New("lab: needs two cores, one for the load and one for what is measured")
	}
	if err := errors.Join(proc.Pin(cores[1]), loopbackUp(), raiseFiles()); err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	runtime.GOMAXPROCS(4) // the core is shared with threads that block in system calls
	l := &Lab{Dir: dir, Throttled: filepath.Join(dir, "throttled"), Plain: filepath.Join(dir, "plain"), Core: cores[0]}
	return run(l)
}

// loopbackUp switches the namespace's only interface on.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
}

// raiseFiles lets this process, and what it starts, have as many sockets as the
// machine gives.
func raiseFiles() error {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return err
	}
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1 << 17, Max: max(l.Max, 1<<17)}) == nil {
		return nil
	}
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: l.Max, Max: l.Max})
}

// FreePort is one of 127.0.0.1 that nobody is bound to.
func FreePort(network string) (netip.AddrPort, error) {
	var local net.Addr
	if network == "udp" {
		c, err := net.ListenPacket("udp4", "127.0.0.1:0")
		if err != nil {
			return netip.AddrPort{}, err
		}
		defer c.Close()
		local = c.LocalAddr()
	} else {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return netip.AddrPort{}, err
		}
		defer l.Close()
		local = l.Addr()
	}
	return netip.ParseAddrPort(local.String())
}
