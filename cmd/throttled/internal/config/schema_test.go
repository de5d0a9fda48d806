package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/netx"
)

// A schemaNode is a part of schema.json.
type schemaNode struct {
	Description string                 `json:"description"`
	Default     any                    `json:"default"`
	Ref         string                 `json:"$ref"`
	Properties  map[string]*schemaNode `json:"properties"`
	Items       *schemaNode            `json:"items"`
	AnyOf       []*schemaNode          `json:"anyOf"`
	Defs        map[string]*schemaNode `json:"$defs"`
}

func readSchema(t *testing.T) *schemaNode {
	t.Helper()
	data, err := os.ReadFile("schema.json")
	require.NoError(t, err)
	root := new(schemaNode)
	require.NoError(t, json.Unmarshal(data, root))
	return root
}

// members are the keys of a mapping, and whether it stands in a list.
func (root *schemaNode) members(n *schemaNode) (keys map[string]*schemaNode, listed bool) {
	if n.Ref != "" {
		return root.members(root.Defs[strings.TrimPrefix(n.Ref, "#/$defs/")])
	}
	if n.Items != nil {
		keys, _ = root.members(n.Items)
		return keys, true
	}
	for _, a := range n.AnyOf {
		if keys, _ := root.members(a); keys != nil {
			return keys, false
		}
	}
	return n.Properties, false
}

// allowedKeys asks the decoder which keys a mapping may have; around is the file
// that has the mapping where %s is. It is nil where there is no mapping.
func allowedKeys(around string) []string {
	const unknown = "nonesuch"
	_, err := Parse("f", []byte(strings.Replace(around, "%s", "{"+unknown+": 1}", 1)))
	mistakes, ok := errors.AsType[*Mistakes](err)
	if !ok {
		return nil
	}
	for _, m := range mistakes.List {
		if _, list, found := strings.Cut(m.Text, "unknown key; allowed: "); found && strings.HasSuffix(m.Path, unknown) {
			return strings.Split(list, ", ")
		}
	}
	return nil
}

// Every key of the decoder is in the schema, and the other way round.
func TestSchemaHasTheDecodersKeys(t *testing.T) {
	root := readSchema(t)
	keys := 0
	var walk func(path, around string, n *schemaNode)
	walk = func(path, around string, n *schemaNode) {
		members, listed := root.members(n)
		if listed && members != nil {
			around = strings.Replace(around, "%s", "[%s]", 1)
		}
		got := slices.Sorted(maps.Keys(members))
		want := slices.Sorted(slices.Values(allowedKeys(around)))
		if !assert.Equal(t, want, got, "the keys that schema.json has in %q", path) {
			return
		}
		for key, m := range members {
			keys++
			assert.NotEmpty(t, m.Description, "description of %s", join(path, key))
			walk(join(path, key), strings.Replace(around, "%s", "{"+key+": %s}", 1), m)
		}
	}
	walk("", "%s", root)
	assert.Greater(t, keys, 60)
}

// The defaults that the schema names are those that are in force.
func TestSchemaHasTheDefaults(t *testing.T) {
	root := readSchema(t)
	c, err := Parse("defaults", mustMarshal(t, root.defaults(root)))
	require.NoError(t, err)
	empty := New()

	assert.Equal(t, empty.Admin, c.Admin)
	assert.Equal(t, empty.State, c.State)
	assert.Equal(t, empty.Report, c.Report)
	assert.Equal(t, empty.Grace, c.Grace)
	assert.Equal(t, empty.KernelDrop, c.KernelDrop)
	assert.Equal(t, empty.Adaptive, c.Adaptive)
	assert.Empty(t, c.Exempt)
	assert.Empty(t, c.Deny)
	assert.Equal(t, inForce(t, empty), inForce(t, c))
	require.Len(t, c.Listeners, 1)
	assert.Equal(t, "default", c.Listeners[0].PolicyName)
	assert.Equal(t, netx.UDPOptions{
		SessionIdle: netx.DefaultSessionIdle, MaxSessions: netx.DefaultMaxSessions, MaxDatagram: netx.DefaultMaxDatagram,
	}, c.Listeners[0].UDP)
	tcp := netx.TCPOptions{MaxConnections: netx.DefaultMaxConnections, DialTimeout: netx.DefaultDialTimeout}
	tcp.Queue.MaxWait = netx.DefaultQueueMaxWait
	assert.Equal(t, tcp, c.Listeners[0].TCP)
}

// defaults is a file with every default written out, and one policy and one
// listener.
func (root *schemaNode) defaults(n *schemaNode) any {
	members, listed := root.members(n)
	if members == nil {
		return n.Default
	}
	mapping := map[string]any{}
	for key, m := range members {
		if d := root.defaults(m); d != nil {
			mapping[key] = d
		}
	}
	switch {
	case len(mapping) == 0:
		return nil
	case listed:
		mapping["name"] = "default"
		if _, ok := members["upstream"]; ok {
			maps.Copy(mapping, map[string]any{"protocol": "udp", "listen": "127.0.0.1:7", "upstream": "echo"})
		}
		return []any{mapping}
	}
	return mapping
}

// inForce is the engine that c makes.
func inForce(t *testing.T, c *Config) engine.Config {
	t.Helper()
	config := c.Engine
	config.Load = engine.NoLoad
	e, err := engine.New(config)
	require.NoError(t, err)
	defer e.Close()
	got := e.Config()
	got.Default = got.Default.WithDefaults()
	return got
}

func mustMarshal(t *testing.T, x any) []byte {
	t.Helper()
	data, err := json.Marshal(x)
	require.NoError(t, err)
	return data
}

// validate holds a file against the schema.
func validate(t *testing.T, file []byte) error {
	t.Helper()
	compiler := jsonschema.NewCompiler()
	source, err := os.Open("schema.json")
	require.NoError(t, err)
	defer source.Close()
	document, err := jsonschema.UnmarshalJSON(source)
	require.NoError(t, err)
	require.NoError(t, compiler.AddResource("schema.json", document))
	schema, err := compiler.Compile("schema.json")
	require.NoError(t, err, "the schema itself")
	asJSON, err := yaml.YAMLToJSON(file)
	require.NoError(t, err)
	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	require.NoError(t, err)
	return schema.Validate(instance)
}

func TestSchemaTakesWhatTheDecoderTakes(t *testing.T) {
	files, err := filepath.Glob("../../packaging/*/*.yaml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 4)
	samples := map[string][]byte{"default.yaml": defaultFile, "full": []byte(full)}
	for _, file := range []string{
		"{}", "admin: {listen: 'unix:/run/throttled/admin'}", "admin: {listen: '[::1]:9190'}", "report: {every: 0}",
		"drain: {grace: 1h30m}", "drain: {grace: .5s}", "state: {interval: 1000µs}", "drain: {grace: 100µs}", "report: {every: '0'}",
		"engine: {shards: 1, adaptive: {low: 0, high: 1, floor: 100%}}", "engine: {adaptive: {floor: '0.5'}}",
		"deny: [192.0.2.1, '2001:db8::/32', '::ffff:192.0.2.0/120']", "exempt: &x [192.0.2.7]",
		"policies: [{name: 'Grüße!', refill: 0.5/s, initial: 7, bytes: {capacity: 1500, refill: .5MB/m}, lockout: {growth: 1.5}}]",
		"policies: [{name: x, refill: 100/m, bytes: {capacity: 1B, refill: 1000/h}, violations: {spacing: 0}}]",
		"listeners: [{name: '1', protocol: udp, listen: '[::]:0', upstream: 'host-1.example.:7', proxy_protocol: {}}]",
		"listeners: [{name: a, protocol: tcp, listen: 127.0.0.1:1, upstream: '[::1]:7', tcp: {idle_timeout: 0s, queue: {}}}]",
		"policies: [&p {name: a, capacity: 5}, {<<: *p, name: b}]",
	} {
		samples[file] = []byte(file)
	}
	for _, name := range files {
		samples[name], err = os.ReadFile(name)
		require.NoError(t, err)
	}
	for name, sample := range samples {
		c, err := Parse(name, sample)
		require.NoError(t, err, name)
		assert.NoError(t, validate(t, sample), name)
		assert.NoError(t, validate(t, mustMarshal(t, c.Tree())), "%s, as /v1/config shows it", name)
	}
}

func TestSchemaRefusesWhatTheDecoderRefuses(t *testing.T) {
	policy := func(s string) string { return "policies: [{name: default, " + s + "}]" }
	listener := func(s string) string {
		return "listeners: [{name: x, protocol: udp, listen: 127.0.0.1:7, upstream: echo, " + s + "}]"
	}
	require.NoError(t, validate(t, []byte(policy("refill: 1/s"))))
	require.NoError(t, validate(t, []byte(listener("policy: default"))))
	for _, file := range []string{
		"admn: {}", "admin: {listen: nowhere}", "report: {path: ''}", "drain: {grace: 0s}", "drain: {grace: 30}",
		"engine: {shards: 3}", "engine: {ipv4_prefix: 33}", "engine: {key_by_port: 'yes'}", "engine: {adaptive: {floor: 1.5}}",
		"exempt: 127.0.0.1", "deny: [example.com]", "deny: [192.0.2.1, 192.0.2.1]", "kernel_drop: xdp",
		"policies: [{capacity: 1}]", policy("capacity: 0"), policy("refill: 32"), policy("refill: 0/s"), policy("refill: 32/d"),
		policy("initial: half"), policy("bytes: {capacity: 1KiB}"), policy("bytes: {refill: 0KiB/s}"), policy("lockout: never"),
		policy("lockout: {base: 0s}"), policy("lockout: {growth: 0.5}"), policy("violations: {max: 0}"),
		"listeners: [{name: x}]", listener("policy: 'a b'"), listener("udp: {max_datagram: 65508}"),
		listener("udp: {max_reply_ratio: 1001}"), listener("udp: {lockout_requires: all}"), listener("dry_run: 1"), policy("dry_run: 'on'"),
		listener("opcodes: {}"), listener("opcodes: {policies: {}}"), listener("opcodes: {policies: {x: default}}"),
		listener("opcodes: {size: 5, policies: {1: default}}"), listener("opcodes: {offset: 65507, policies: {1: default}}"),
		listener("proxy_protocol: {send: v3}"), listener("proxy_protocol: {accept_from: [balancer]}"),
		listener("tcp: {queue: {order: random}}"), listener("tcp: {reject: politely}"), listener("tcp: {idle_timeout: 5}"),
	} {
		_, err := Parse("f", []byte(file))
		assert.Error(t, err, file)
		assert.Error(t, validate(t, []byte(file)), file)
	}
}
