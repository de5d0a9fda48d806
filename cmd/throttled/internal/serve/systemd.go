package serve

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// A supervisor is the service manager that has started the process, where that
// wants to hear how it is (see sd_notify(3)). Without one every message is lost.
type supervisor struct {
	alive time.Duration // between two signs of life; 0 = none wanted
	log   *slog.Logger

	mu    sync.Mutex // guards fault
	fault complaint
}

// newSupervisor reads from the environment who has started the process.
func newSupervisor(log *slog.Logger) *supervisor {
	timeout, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("the service manager's watchdog gets no signs of life", "error", err)
	}
	return &supervisor{alive: timeout / 2, log: log}
}

// tell sends a message, whose lines are VARIABLE=value.
func (s *supervisor) tell(lines ...string) {
	err := notify(strings.Join(lines, "\n"))
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && s.fault.due() {
		s.log.Warn("the service manager cannot be reached", "error", err)
	}
}

// notifyWait is how long a message may wait for a service manager that does not
// read. daemon.SdNotify waits for ever, and with it whoever is to obey signals.
const notifyWait = 100 * time.Millisecond

func notify(message string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetWriteDeadline(time.Now().Add(notifyWait)); err != nil {
		return err
	}
	_, err = c.Write([]byte(message))
	return err
}

// reloading says that another configuration is about to come into force, of which
// ready is the end.
func (s *supervisor) reloading() {
	s.tell(daemon.SdNotifyReloading, daemon.SdNotifyMonotonicUsec())
}

// ready says that everybody is served, at the start or after a reload.
func (p *process) ready() { p.supervisor.tell(daemon.SdNotifyReady, p.status()) }

// isAlive is sent from the loop that also obeys signals, after it has been
// through every shard's lock for the figures: what is stuck there sends nothing.
func (p *process) isAlive() { p.supervisor.tell(daemon.SdNotifyWatchdog, p.status()) }

// stopping says that the end may take as long as the grace.
func (p *process) stopping() {
	p.supervisor.tell(daemon.SdNotifyStopping, p.status())
	p.supervisor.tell(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", (p.config.Load().Grace + 10*time.Second).Microseconds()))
}

// status is a line for people, as `systemctl status` shows it.
func (p *process) status() string {
	sessions, connections := p.gateway.Open()
	e := p.engine.Summary()
	return fmt.Sprintf("STATUS=%d listeners, %d sessions, %d connections, %d endpoints, %d locked out",
		len(p.gateway.Addrs()), sessions, connections, e.TrackedEndpoints, e.HardBlockedCount)
}
