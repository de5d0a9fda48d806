package admin

import (
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

// Get returns the body that answers a GET of path.
func (c Client) Get(path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	host := c.Address
	if strings.HasPrefix(host, config.UnixPrefix) {
		host = "localhost"
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+path, nil)
	if err != nil {
		return nil, fmt.Errorf("admin: %w", err)
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
		return nil, fmt.Errorf("admin: no gateway answers at %s: %w", c.Address, err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("admin: %s: %w", c.Address, err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("admin: %s answers %s: %s", c.Address, answer.Status, reason(body))
	}
	return body, nil
}

// reason is what an error answer says.
func reason(body []byte) string {
	var e struct{ Error string }
	if json.Unmarshal(body, &e) == nil && e.Error != "" {
		return e.Error
	}
	return "not an answer of throttled"
}
