//go:build !linux

package netx

// pathCount is how many loops a listener has; the plain path can do with one.
func (s *udpServer) pathCount() int { return 1 }

func (s *udpServer) newPath(l *udpLoop) (udpPath, error) { return newPlainPath(l) }
