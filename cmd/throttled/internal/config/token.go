package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

const maxToken = 4096

// ReadToken reads the token that a file holds, without the space around it.
func ReadToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(data))
	if err := checkToken(token); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return token, nil
}

// checkToken refuses what does not fit into an HTTP header.
func checkToken(s string) error {
	if s == "" {
		return errors.New("the file is empty; allowed: a token of printable ASCII characters")
	}
	if len(s) > maxToken {
		return fmt.Errorf("the token is longer than %d bytes", maxToken)
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("the token is not in one word; allowed: printable ASCII characters without spaces")
	}
	return nil
}
