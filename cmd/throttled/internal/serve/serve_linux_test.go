package serve

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/config"
	"github.com/seed-ee4278a0/throttled/netx"
)

// most is longer than an end at once takes, and shorter than what it would wait for.
const most = 4 * time.Second

func listening(t *testing.T, upstream string) *config.Config {
	t.Helper()
	c := config.New()
	c.Admin.Listen, c.Report.Every = config.AdminOff, 0
	l, err := config.ParseListener(netx.UDP, netip.MustParseAddrPort("127.0.0.1:0").String()+"="+upstream)
	require.NoError(t, err)
	require.NoError(t, c.Add(l))
	return c
}

// serve runs in the background; ended gives what came of it.
func serve(c *config.Config, reread func() (*config.Config, error)) (ended <-chan error) {
	end := make(chan error, 1)
	go func() { end <- Run(c, reread, io.Discard, slog.New(slog.DiscardHandler)) }()
	return end
}

// TestMain keeps signals that come before Run listens to them from ending the test.
func TestMain(m *testing.M) {
	signal.Notify(make(chan os.Signal, 1), watched...)
	os.Exit(m.Run())
}

func raise(t *testing.T, s syscall.Signal) {
	t.Helper()
	require.NoError(t, syscall.Kill(os.Getpid(), s))
}

func endsSoon(t *testing.T, ended <-chan error) {
	t.Helper()
	select {
	case err := <-ended:
		assert.NoError(t, err)
	case <-time.After(most):
		t.Error("it does not end")
	}
}

// Signals end a gateway also while it looks up an upstream at the start.
func TestSignalAtStart(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		asked := make(chan struct{}, 100)
		was := net.DefaultResolver
		net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			asked <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		ended := serve(listening(t, "name.invalid.:1"), nil)
		<-asked
		raise(t, syscall.SIGHUP)
		raise(t, s)
		endsSoon(t, ended)
		net.DefaultResolver = was
	}
}

// A file that cannot be read to its end, as a named pipe, does not hold up the end.
func TestSignalWhileRereading(t *testing.T) {
	reading, hang := make(chan struct{}), make(chan struct{})
	defer close(hang)
	c := listening(t, "echo")
	begun := sync.OnceFunc(func() { close(reading) })
	ended := serve(c, func() (*config.Config, error) {
		begun()
		<-hang
		return nil, io.ErrUnexpectedEOF
	})
	for hung := false; !hung; { // the first may come before it listens to signals
		select {
		case <-reading:
			hung = true
		default:
			raise(t, syscall.SIGHUP)
			time.Sleep(time.Millisecond)
		}
	}
	raise(t, syscall.SIGINT)
	endsSoon(t, ended)
}
