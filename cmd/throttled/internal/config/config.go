// Package config reads the configuration of the gateway: a YAML file becomes an
// engine.Config and netx listeners, or a list of everything that is wrong with
// it, each mistake with its line, its column and what is allowed.
//
// The decoder walks the syntax tree by hand, because a decoder into structs
// stops at the first mistake. A range that the engine knows is not written down
// here a second time: its Validate errors are brought back to the line that
// caused them.
package config

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/netx"
)

//go:embed default.yaml
var defaultFile []byte

// Schema is the JSON schema of a file, for editors and for documents.
//
//go:embed schema.json
var Schema []byte

// DefaultAdmin is where the admin server listens unless something else is said.
const DefaultAdmin = "127.0.0.1:9190"

// A Config is what `throttled run` serves.
type Config struct {
	Admin    Admin
	State    State
	Report   Report
	Engine   engine.Config
	Adaptive Adaptive       // what Engine.Load was made of
	Exempt   []netip.Prefix // the never limited
	Deny     []netip.Prefix // those who are kept out
	// KernelDrop says who drops the datagrams of those who are banned or locked out.
	KernelDrop netx.KernelDrop
	Grace      time.Duration // how long a drain waits for sessions and connections
	Listeners  []Listener
	Warnings   []string // what the file says to no effect, as file:line:column: warning: path: text
}

// Admin is the admin server.
type Admin struct {
	Listen    string // ip:port, unix:PATH or off
	TokenFile string // "" = no token
	Token     string // what the file holds; Load reads it, Parse does not
}

// Report is the JSON report.
type Report struct {
	Every time.Duration // 0 = never
	Path  string        // "-" = standard output
}

// A Listener is one listener of the gateway; its policies have numbers only once
// there is an engine.
type Listener struct {
	netx.ListenerConfig
	PolicyName     string
	OpcodePolicies map[uint32]string // the names of Opcodes.Policies, which is empty so far
}

// New is the configuration of an empty file: no listener, and the default
// everywhere else.
func New() *Config {
	c := &Config{
		Admin:    Admin{Listen: DefaultAdmin},
		State:    State{Interval: 30 * time.Second},
		Report:   Report{Every: 10 * time.Second, Path: "-"},
		Adaptive: usualAdaptive,
		Grace:    30 * time.Second,
	}
	c.Engine.Default.Name = defaultPolicy
	return c
}

// Default is the embedded configuration, which `throttled run` serves where
// nothing else is asked for.
func Default() *Config {
	c, err := Parse("default.yaml", defaultFile)
	if err != nil {
		panic(err) // a test parses the embedded file
	}
	return c
}

// Load reads a file, and the token file that it names. The error of a file that
// was read and is wrong is a *Mistakes.
func Load(path string) (*Config, error) {
	data, err := contents(path)
	if err != nil {
		return nil, err
	}
	return parseFile(path, data, outside{ReadToken, checkState})
}

// LoadAlone is Load for who serves nothing: it does not look at what the file
// names, which may be on another machine.
func LoadAlone(path string) (*Config, error) {
	data, err := contents(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// contents reads a file, not much more than may be in it.
func contents(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return data, nil
}

// ParseListener reads LISTEN=UPSTREAM, a listener under the default policy.
func ParseListener(p netx.Protocol, spec string) (Listener, error) {
	listen, upstream, found := strings.Cut(spec, "=")
	if !found {
		return Listener{}, fmt.Errorf("%q is not LISTEN=UPSTREAM; allowed: an address and an upstream, such as 127.0.0.1:7000=echo", spec)
	}
	l := Listener{PolicyName: defaultPolicy}
	var errListen, errUpstream error
	l.Name = p.String() + ":" + listen
	l.Protocol = p
	l.Listen, errListen = parseListen(listen)
	l.Upstream, errUpstream = parseUpstream(upstream)
	return l, errors.Join(errListen, errUpstream)
}

// Add adds a listener to those of the file.
func (c *Config) Add(l Listener) error {
	for _, k := range c.conflicts(l, c.Listeners) {
		return fmt.Errorf("config: listener %s: %s", l.Name, k.text)
	}
	c.Listeners = append(c.Listeners, l)
	return nil
}

// Gateway gives the listeners as netx takes them, with the policies of e, which
// was made from c.Engine.
func (c *Config) Gateway(e *engine.Engine) ([]netx.ListenerConfig, error) {
	listeners := make([]netx.ListenerConfig, len(c.Listeners))
	var missing error
	for i, l := range c.Listeners {
		number := func(name string) engine.PolicyID {
			id, ok := e.Policy(name)
			if !ok {
				missing = fmt.Errorf("config: listener %s: no policy %q", l.Name, name)
			}
			return id
		}
		listeners[i] = l.ListenerConfig
		listeners[i].Policy = number(l.PolicyName)
		if len(l.OpcodePolicies) > 0 {
			listeners[i].Opcodes.Policies = make(map[uint32]engine.PolicyID, len(l.OpcodePolicies))
		}
		for opcode, name := range l.OpcodePolicies {
			listeners[i].Opcodes.Policies[opcode] = number(name)
		}
	}
	if missing != nil {
		return nil, missing
	}
	return listeners, nil
}
