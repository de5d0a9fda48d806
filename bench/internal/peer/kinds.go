package peer

import (
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/seed-ee4278a0/throttled/bench/internal/lab"
)

// A Budget is what this project's gateway allows each address.
type Budget struct {
	Capacity, Refill int  // packets at once, and a second
	KernelDrop       bool // who is locked out is dropped in the kernel
}

// Plenty is a budget that nobody uses up, so that every packet is decided on
// and passes.
var Plenty = Budget{Capacity: 1 << 30, Refill: 1_000_000_000}

// Throttled is this project's gateway.
func Throttled(name string, b Budget) Kind {
	return Kind{Name: name, write: func(l *lab.Lab, dir string, r Route) ([]string, error) {
		kernelDrop := ""
		if b.KernelDrop {
			kernelDrop = "kernel_drop: socket"
		}
		path, err := write(dir, "throttled.yaml", fmt.Sprintf(`
admin: {listen: off}
report: {every: 0s}
engine: {adaptive: {enabled: false}}
%s
policies:
  - {name: default, capacity: %d, refill: %d/s, lockout: {base: 1h}}
listeners:
  - {name: bench, protocol: %s, listen: "%v", upstream: "%v"}
`, kernelDrop, b.Capacity, b.Refill, r.Network, r.Listen, r.Upstream))
		if err != nil {
			return nil, err
		}
		if out, err := exec.Command(l.Throttled, "check", "-c", path).CombinedOutput(); err != nil && b.KernelDrop {
			return nil, fmt.Errorf("%w, this build cannot: %s", ErrMissing, out)
		} else if err != nil {
			return nil, fmt.Errorf("%w: %s", err, out)
		}
		return []string{l.Throttled, "run", "-c", path}, nil
	}}
}

// Plain is a server of bench/plain: receive discards, relay forwards what its
// budget lets through, a datagram at a time.
func Plain(name, mode string, b Budget) Kind {
	return Kind{Name: name, write: func(l *lab.Lab, _ string, r Route) ([]string, error) {
		return []string{l.Plain, "-mode", mode, "-listen", r.Listen.String(), "-upstream", r.Upstream.String(),
			"-capacity", fmt.Sprint(b.Capacity), "-refill", fmt.Sprint(b.Refill)}, nil
	}}
}

// Nginx is nginx's stream module with one worker.
func Nginx() Kind {
	const module = "/usr/lib/nginx/modules/ngx_stream_module.so"
	return Kind{
		Name:  "nginx stream",
		needs: need{program: "nginx", file: module, install: "nginx libnginx-mod-stream"},
		write: func(_ *lab.Lab, dir string, r Route) ([]string, error) {
			udp := ""
			if r.Network == "udp" {
				udp = " udp"
			}
			path, err := write(dir, "nginx.conf", fmt.Sprintf(`
load_module %s;
daemon off;
master_process off;
worker_rlimit_nofile 65536;
pid %s;
error_log stderr crit;
events { worker_connections 65536; }
stream {
	server { listen %v%s; proxy_pass %v; proxy_timeout 10m; }
}
`, module, filepath.Join(dir, "nginx.pid"), r.Listen, udp, r.Upstream))
			return []string{"nginx", "-p", dir, "-e", "stderr", "-c", path}, err
		},
	}
}

// HAProxy relays TCP with one thread, with or without splice in the kernel.
func HAProxy(splice bool) Kind {
	name, option := "haproxy", ""
	if splice {
		name, option = "haproxy, splice-auto", "option splice-auto"
	}
	return Kind{
		Name:  name,
		needs: need{program: "haproxy", install: "haproxy"},
		write: func(_ *lab.Lab, dir string, r Route) ([]string, error) {
			path, err := write(dir, "haproxy.cfg", fmt.Sprintf(`
global
	nbthread 1
	maxconn 4000
defaults
	mode tcp
	%s
	timeout connect 5s
	timeout client 1m
	timeout server 1m
listen bench
	bind %v
	server upstream %v
`, option, r.Listen, r.Upstream))
			return []string{"haproxy", "-db", "-f", path}, err
		},
	}
}
