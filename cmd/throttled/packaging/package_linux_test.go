//go:build package

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const patience = 60 * time.Second

// built is the package that `make package` has left.
func built(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(root + "/dist/" + pattern)
	require.NoError(t, err)
	require.Len(t, files, 1, "run make package first")
	path, err := filepath.Abs(files[0])
	require.NoError(t, err)
	return path
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(t, err, "%s %q: %s", name, args, out)
	return string(out)
}

func TestDebHoldsWhatIsNeeded(t *testing.T) {
	deb := built(t, "*.deb")
	files := map[string]string{} // path: mode and owner
	for line := range strings.Lines(output(t, "dpkg-deb", "--contents", deb)) {
		f := strings.Fields(line)
		files[f[5]] = f[0] + " " + f[1]
	}
	for path, mode := range map[string]string{
		"./usr/bin/throttled":                                   "-rwxr-xr-x root/root",
		"./lib/systemd/system/throttled.service":                "-rw-r--r-- root/root",
		"./etc/throttled/throttled.yaml":                        "-rw-r--r-- root/root",
		"./usr/share/throttled/throttled.schema.json":           "-rw-r--r-- root/root",
		"./usr/share/man/man1/throttled.1.gz":                   "-rw-r--r-- root/root",
		"./usr/share/man/man5/throttled.yaml.5.gz":              "-rw-r--r-- root/root",
		"./usr/share/bash-completion/completions/throttled":     "-rw-r--r-- root/root",
		"./usr/share/zsh/vendor-completions/_throttled":         "-rw-r--r-- root/root",
		"./usr/share/fish/vendor_completions.d/throttled.fish":  "-rw-r--r-- root/root",
		"./usr/share/doc/throttled/examples/grafana.json":       "-rw-r--r-- root/root",
		"./usr/share/doc/throttled/examples/source-engine.yaml": "-rw-r--r-- root/root",
		"./usr/share/doc/throttled/examples/mqtt.yaml":          "-rw-r--r-- root/root",
		"./usr/share/doc/throttled/examples/coap.yaml":          "-rw-r--r-- root/root",
		"./usr/share/doc/throttled/README.md":                   "-rw-r--r-- root/root",
		"./usr/share/doc/throttled/CHANGELOG.md":                "-rw-r--r-- root/root",
		"./usr/share/doc/throttled/copyright":                   "-rw-r--r-- root/root",
	} {
		assert.Equal(t, mode, files[path], path)
	}
	_, schema, _ := strings.Cut(strings.SplitN(read(t, "etc/throttled.yaml"), "\n", 2)[0], "$schema=")
	assert.Contains(t, files, "."+schema, "which the configuration names to editors")
	control := t.TempDir()
	output(t, "dpkg-deb", "--control", deb, control)
	assert.Equal(t, "/etc/throttled/throttled.yaml\n", read(t, filepath.Join(control, "conffiles")))
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		output(t, "sh", "-n", filepath.Join(control, script))
	}
	unpacked := t.TempDir()
	output(t, "dpkg-deb", "--extract", deb, unpacked)
	assert.Contains(t, output(t, filepath.Join(unpacked, "usr/bin/throttled"), "check", "-c", "../internal/config/default.yaml"), ": ok: 2 listeners")
	assertStatic(t, filepath.Join(unpacked, "usr/bin/throttled"))
}

// rpm(8) is seldom at hand where debs are made: its lead and a file name in its
// header are what can be seen without it.
func TestRPMIsOne(t *testing.T) {
	data, err := os.ReadFile(built(t, "*.rpm"))
	require.NoError(t, err)
	assert.Equal(t, []byte{0xed, 0xab, 0xee, 0xdb}, data[:4])
	assert.True(t, bytes.Contains(data, []byte("throttled.service\x00")))
}

// A machine is a copy of this one under a systemd of its own.
type machine struct {
	t    *testing.T
	init string // its process id
}

// boot needs a machine that gives namespaces, an overlay and control groups away.
func boot(t *testing.T, deb string) *machine {
	t.Helper()
	for _, tool := range []string{"/lib/systemd/systemd", "unshare", "nsenter", "dpkg", "man"} {
		if _, err := exec.LookPath(tool); err != nil || os.Getuid() != 0 {
			t.Skip("takes root, systemd, dpkg, man and util-linux")
		}
	}
	var log bytes.Buffer
	cmd := exec.Command("unshare", "--fork", "--pid", "--mount", "--uts", "--ipc", "--net", "--cgroup", "--kill-child",
		"sh", "testdata/boot.sh", t.TempDir(), deb)
	cmd.Stdout, cmd.Stderr = &log, &log
	require.NoError(t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	m := &machine{t: t}
	pid := strconv.Itoa(cmd.Process.Pid)
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for late := time.After(patience); ; {
		select {
		case <-look.C:
			children, _ := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children")
			m.init = strings.TrimSpace(string(children))
			if state, _ := m.try("systemctl is-system-running"); state == "running" || state == "degraded" {
				return m
			}
		case <-ended:
			t.Skip("no systemd can be booted here: ", log.String())
		case <-late:
			t.Skip("no systemd comes up here")
		}
	}
}

// try runs a script on the machine.
func (m *machine) try(script string) (out string, err error) {
	data, err := exec.Command("nsenter", "--target", m.init, "--all", "env", "-C", "/root", "sh", "-c", script).CombinedOutput()
	return strings.TrimSpace(string(data)), err
}

// run is try for a script that has to succeed.
func (m *machine) run(script string) string {
	m.t.Helper()
	out, err := m.try(script)
	require.NoError(m.t, err, "%s: %s", script, out)
	return out
}

// fails is try for a script that must not succeed.
func (m *machine) fails(script string) string {
	m.t.Helper()
	out, err := m.try(script)
	require.Error(m.t, err, "%s: %s", script, out)
	return out
}

// The life of the service on a machine: installed, running, reconfigured,
// upgraded with a broken file, removed and purged.
func TestServiceOnAMachine(t *testing.T) {
	m := boot(t, built(t, "*.deb"))
	m.run("dpkg -i throttled_*.deb")
	assert.Equal(t, "active", m.run("systemctl is-active throttled"))
	assert.Equal(t, "enabled", m.run("systemctl is-enabled throttled"))
	assert.Contains(t, m.run("systemctl show -p StatusText throttled"), "2 listeners, 0 sessions")
	assert.Contains(t, m.run("throttled report --text"), "127.0.0.1:7000")
	assert.Equal(t, "throttled", m.run("stat -c %U /proc/$(systemctl show -p MainPID --value throttled)"))
	assert.Equal(t, "hello", m.run(`bash -c 'exec 3<>/dev/tcp/127.0.0.1/7000; echo hello >&3; head -n 1 <&3'`))
	pid := m.run("systemctl show -p MainPID --value throttled")

	m.run("sed -i 's/name: tcp/name: pages/' /etc/throttled/throttled.yaml && systemctl reload throttled")
	assert.Contains(t, m.run("throttled report --text"), "pages")
	m.run("sed -i 's/refill: 32/refill: many/' /etc/throttled/throttled.yaml")
	m.fails("systemctl reload throttled")
	assert.Contains(t, m.run("journalctl -u throttled"), "throttled.yaml:")
	assert.Contains(t, m.run("dpkg -i throttled_*.deb 2>&1"), "not started, the configuration has mistakes")
	assert.Equal(t, pid, m.run("systemctl show -p MainPID --value throttled"), "the gateway that was running")

	// What fails at the start is tried again until the cause is gone.
	m.run("mkdir -p /run/systemd/system/throttled.service.d && cd /run/systemd/system/throttled.service.d &&" +
		"printf '[Service]\nRestartSec=10ms\n' > restart.conf && systemctl daemon-reload")
	m.fails("systemctl restart throttled")
	assert.Eventually(t, func() bool {
		n, err := strconv.Atoi(m.run("systemctl show -p NRestarts --value throttled"))
		return err == nil && n > 5
	}, patience, 100*time.Millisecond)
	m.run("sed -i 's/refill: many/refill: 64/' /etc/throttled/throttled.yaml")
	assert.Eventually(t, func() bool {
		return m.run("systemctl show -p ActiveState --value throttled") == "active"
	}, patience, 100*time.Millisecond)
	m.run("rm /run/systemd/system/throttled.service.d/restart.conf && systemctl daemon-reload && systemctl restart throttled")

	m.run("for f in /usr/share/doc/throttled/examples/*.yaml; do throttled check -c $f || exit 1; done")
	assert.Contains(t, m.run("throttled __complete rel"), "reload")
	m.run("man -w throttled throttled.yaml")

	// A gateway that shows no sign of life is killed and started again.
	m.run("mkdir -p /run/systemd/system/throttled.service.d && cd /run/systemd/system/throttled.service.d &&" +
		"printf '[Service]\nWatchdogSec=1s\nTimeoutAbortSec=1s\n' > watchdog.conf && systemctl daemon-reload && systemctl restart throttled")
	m.run("kill -STOP $(systemctl show -p MainPID --value throttled)")
	assert.Eventually(t, func() bool {
		return m.run("systemctl show -p NRestarts,ActiveState throttled") == "NRestarts=1\nActiveState=active"
	}, patience, 100*time.Millisecond)
	m.run("rm -r /run/systemd/system/throttled.service.d && systemctl daemon-reload")

	// What the unit says that an override needs.
	journal := "journalctl _SYSTEMD_INVOCATION_ID=$(systemctl show -p InvocationID --value throttled)"
	m.run("sed -i 's/127.0.0.1:7000/127.0.0.1:700/; s/kernel_drop: off/kernel_drop: socket/' /etc/throttled/throttled.yaml")
	m.run("systemctl restart throttled")
	assert.Contains(t, m.run(journal), "kernel drop is not available")
	m.run(`mkdir -p /etc/systemd/system/throttled.service.d && { echo '[Service]' &&
		sed -n 's/^#   \(AmbientCap\|CapabilityB\|SystemCallF\)/\1/p' /lib/systemd/system/throttled.service
	} > /etc/systemd/system/throttled.service.d/bpf.conf && systemctl daemon-reload && systemctl restart throttled`)
	assert.Contains(t, m.run("throttled report --text"), "127.0.0.1:700 ")
	assert.NotContains(t, m.run(journal), "kernel drop")
	m.run("dpkg -r throttled")
	assert.Contains(t, m.run("cat /etc/throttled/throttled.yaml"), "pages")
	m.fails("systemctl is-active throttled")
	m.run("dpkg -P throttled")
	assert.Empty(t, m.run("ls -d /etc/throttled /var/lib/throttled /usr/share/doc/throttled 2>/dev/null || true"))
}
