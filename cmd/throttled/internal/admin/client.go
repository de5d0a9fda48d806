package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/config"
)

// maxAnswer bounds what a Client reads of an answer.
const maxAnswer = 64 << 20

// A Client asks the admin server at Address.
type Client struct {
	Address string // host:port or unix:PATH
	Token   string
}

// A StatusError is an answer that is an error.
type StatusError struct {
	Address string // who has answered
	Status  int
	Reason  string // what the answer says
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("admin: %s answers %d %s: %s", e.Address, e.Status, http.StatusText(e.Status), e.Reason)
	if e.Status == http.StatusUnauthorized {
		text += "; --token-file names the file that has it"
	}
	return text
}

// Get returns the body that answers a GET of path.
func (c Client) Get(path string) ([]byte, error) { return c.Do(http.MethodGet, path, nil) }

// Do returns the body that answers a request for the path, which is escaped where
// that is needed. A body that is not nil goes with it as JSON. The error for an
// answer that says that something is wrong is a *StatusError.
func (c Client) Do(method, path string, body any) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	host := c.Address
	if strings.HasPrefix(host, config.UnixPrefix) {
		host = "localhost"
	}
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("admin: %w", err)
		}
		content = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+host+path, content)
	if err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.Token)
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dial(ctx, c.Address)
		},
	}
	answer, err := transport.RoundTrip(r)
	if err != nil {
		return nil, fmt.Errorf("admin: no gateway answers at %s (--admin names another address): %w", c.Address, err)
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("admin: %s: %w", c.Address, err)
	}
	if answer.StatusCode/100 != 2 {
		return nil, &StatusError{c.Address, answer.StatusCode, reason(got)}
	}
	return got, nil
}

// reason is what an error answer says.
func reason(body []byte) string {
	var e struct{ Error string }
	if json.Unmarshal(body, &e) == nil && e.Error != "" {
		return e.Error
	}
	return "not an answer of throttled"
}
