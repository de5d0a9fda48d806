package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const allowedStatePath = `a path to a file in a folder that is there, or "" for no state file`

// State is the file in which bans, lockouts and their growth outlive a restart.
type State struct {
	Path     string // "" = none
	Interval time.Duration
}

func (d *decoder) state(s *State, v value) {
	at := places{}
	d.mapping(v, at, []field{
		{"path", "path", text(&s.Path, allowedStatePath)},
		{"interval", "", interval(&s.Interval)},
	})
	if s.Path == "" {
		return
	}
	if err := d.outside.checkState(s.Path); err != nil {
		d.wrong(d.resolve(at["path"]), "%s; allowed: %s", err, allowedStatePath)
	}
}

// checkState refuses a path that no file can be at.
func checkState(path string) error {
	folder := filepath.Dir(path)
	info, err := os.Stat(folder)
	switch {
	case err != nil:
		return fmt.Errorf("the folder cannot be used: %w", err)
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder", folder)
	}
	info, err = os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is there and is no file", path)
	}
	return nil
}
