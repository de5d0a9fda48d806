package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// dial connects a client for the time of a test.
func dial(t *testing.T, network, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial(network, addr)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// echoes sends text and wants it back.
func echoes(t *testing.T, c net.Conn, text string) {
	t.Helper()
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	_, err := c.Write([]byte(text))
	require.NoError(t, err)
	got := make([]byte, len(text))
	_, err = io.ReadFull(c, got)
	require.NoError(t, err)
	require.Equal(t, text, string(got))
}

// get asks the admin server for JSON.
func get(t *testing.T, admin, path string) (status int, body map[string]any) {
	t.Helper()
	status, text := ask(t, admin, path)
	require.NoError(t, json.Unmarshal(text, &body))
	return status, body
}

// fetch asks the admin server for text, with success.
func fetch(t *testing.T, admin, path string) string {
	t.Helper()
	status, text := ask(t, admin, path)
	require.Equal(t, http.StatusOK, status)
	return string(text)
}

func ask(t *testing.T, admin, path string) (status int, body []byte) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	answer, err := client.Get("http://" + admin + path)
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err = io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, body
}
