package proc

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Sockets are those of a network namespace that are bound to a local port.
type Sockets struct {
	Bound  int    // a connection counts too, a connection in TIME_WAIT does not
	Queued uint64 // bytes of datagrams, the kernel's own included, that nobody has read yet
	Drops  uint64 // datagrams that the kernel dropped at them: full buffers, and filters
}

// Bound looks a port up in /proc/net; network is udp or tcp, IPv4.
func Bound(network string, port uint16) (Sockets, error) {
	file := "/proc/thread-self/net/" + network
	data, err := os.ReadFile(file)
	if err != nil {
		return Sockets{}, fmt.Errorf("proc: %w", err)
	}
	s, err := parseSockets(string(data), port)
	if err != nil {
		return Sockets{}, fmt.Errorf("proc: %s: %w", file, err)
	}
	return s, nil
}

// timeWait is the state that /proc/net/tcp shows for TIME_WAIT.
const timeWait = "06"

func parseSockets(table string, port uint16) (s Sockets, err error) {
	header, table, _ := strings.Cut(table, "\n")
	counts := strings.HasSuffix(strings.TrimSpace(header), "drops") // of UDP only
	for i, line := range strings.Split(strings.TrimSpace(table), "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields) < 12 {
			return s, fmt.Errorf("line %d has %d fields", i+2, len(fields))
		}
		_, hex, _ := strings.Cut(fields[1], ":")
		local, err := strconv.ParseUint(hex, 16, 16)
		if err != nil {
			return s, fmt.Errorf("line %d: %w", i+2, err)
		}
		if uint16(local) != port || fields[3] == timeWait {
			continue
		}
		s.Bound++
		if counts {
			_, hex, _ = strings.Cut(fields[4], ":") // behind what is to be sent
			queued, err := strconv.ParseUint(hex, 16, 64)
			if err != nil {
				return s, fmt.Errorf("line %d: %w", i+2, err)
			}
			s.Queued += queued
			drops, err := strconv.ParseUint(fields[len(fields)-1], 10, 64)
			if err != nil {
				return s, fmt.Errorf("line %d: %w", i+2, err)
			}
			s.Drops += drops
		}
	}
	return s, nil
}
