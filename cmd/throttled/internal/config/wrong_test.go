package config

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

const (
	sections = "admin, state, report, engine, exempt, deny, kernel_drop, drain, policies, listeners"
	ofPolicy = "name, capacity, refill, scale, dry_run, initial, bytes, violations, lockout"
	ofPrefix = "allowed: an address or a prefix, such as 203.0.113.7, 203.0.113.0/24 or 2001:db8::/32"
	ofListen = "name, protocol, listen, upstream, policy, dry_run, opcodes, udp, tcp, proxy_protocol"
)

// tooMany is what is said about 3000000000, which is no int where that has 32 bits.
var tooMany = map[int]string{
	32: "is too large; allowed: 1 or more",
	64: "is outside 1..2147483647",
}[strconv.IntSize]

// wrong are files with what is to be said about each: all of it, in order.
var wrong = []struct {
	name, file string
	want       []string
}{
	{"empty", "", []string{"1:1: the file is empty; allowed: the keys " + sections}},
	{"only a comment", "# nothing\n", []string{"1:1: the file is empty; allowed: the keys " + sections}},
	{"null", "~\n", []string{"1:1: no value; allowed: a mapping with the keys " + sections}},
	{"a list", "- a\n", []string{"1:1: a list; allowed: a mapping with the keys " + sections}},
	{"a word", "hello\n", []string{`1:1: "hello"; allowed: a mapping with the keys ` + sections}},
	{"unknown keys", "stats: {path: x}\nlistener: []\nengine:\n  shard: 4\n", []string{
		"1:1: stats: unknown key, did you mean state?; allowed: " + sections,
		"2:1: listener: unknown key, did you mean listeners?; allowed: " + sections,
		"4:3: engine.shard: unknown key, did you mean shards?; allowed: shards, max_endpoints, on_full, stale_after, " +
			"cleanup_interval, ipv4_prefix, ipv6_prefix, key_by_port, adaptive",
	}},
	{"keys of other types", "1: a\n? [a]\n: b\n", []string{"3:1: not valid YAML: found an invalid key for this map"}},
	{"a number as key", "1: a\ntrue: b\n", []string{
		"1:1: 1 as a key; allowed: " + sections,
		"2:1: true as a key; allowed: " + sections,
	}},
	{"odd keys", "\"a\\nb\": 1\n\"\": 2\n", []string{
		`1:1: "a\nb": unknown key; allowed: ` + sections,
		`2:1: "": unknown key; allowed: ` + sections,
	}},
	{"duplicate keys", "drain: {grace: 1s, grace: 2s}\nreport: {}\ndrain: {}\n", []string{
		"1:20: drain.grace: given twice, first in line 1; allowed: once",
		"3:1: drain: given twice, first in line 1; allowed: once",
	}},
	{"no value", "admin:\nreport:\n  every:\ndrain: {grace: }\nlisteners:\n", []string{
		"1:1: admin: no value; allowed: a mapping with the keys listen, token_file",
		"3:3: report.every: no value; allowed: a number and a unit, such as 500ms, 30s, 10m or 1h",
		"4:9: drain.grace: no value; allowed: a number and a unit, such as 500ms, 30s, 10m or 1h",
		"5:1: listeners: no value; allowed: a list",
	}},
	{"wrong shapes", "admin: []\nreport: 10s\nengine: {shards: {a: 1}}\ndrain: {grace: [1s]}\npolicies: {name: a}\nlisteners: [7, {name: []}]\n", []string{
		"1:8: admin: a list; allowed: a mapping with the keys listen, token_file",
		`2:9: report: "10s"; allowed: a mapping with the keys every, path`,
		"3:18: engine.shards: a mapping; allowed: a whole number, 1 or more",
		"4:16: drain.grace: a list; allowed: a number and a unit, such as 500ms, 30s, 10m or 1h",
		"5:11: policies: a mapping; allowed: a list",
		"6:13: listeners[0]: 7; allowed: a mapping with the keys " + ofListen,
		"6:16: listeners[1]: the key protocol is missing",
		"6:16: listeners[1]: the key listen is missing",
		"6:16: listeners[1]: the key upstream is missing",
		"6:23: listeners[1].name: a list; allowed: 1 to 64 letters, digits and signs, without spaces",
	}},

	{"prefixes", "exempt: [127.0.0.1/8, 127.0.0.1/8/8, 1.2.3.4/33, localhost, 'fe80::1%eth0', '::ffff:0:0/90', 10, {}]\ndeny: 10.0.0.0/8\n", []string{
		"1:10: exempt[0]: 127.0.0.1/8 has bits behind its length; allowed: 127.0.0.1 for that address, 127.0.0.0/8 for all that share its first 8 bits",
		`1:23: exempt[1]: "127.0.0.1/8/8" is not a prefix; ` + ofPrefix,
		`1:38: exempt[2]: "1.2.3.4/33" is not a prefix; ` + ofPrefix,
		`1:50: exempt[3]: "localhost" is not a prefix; ` + ofPrefix,
		`1:61: exempt[4]: "fe80::1%eth0" is not a prefix; ` + ofPrefix,
		"1:77: exempt[5]: ::ffff:0:0/90 is shorter than the 96 bits that make an address a mapped one; " + ofPrefix,
		`1:94: exempt[6]: "10" is not a prefix; ` + ofPrefix,
		"1:98: exempt[7]: a mapping; " + ofPrefix,
		`2:7: deny: "10.0.0.0/8"; allowed: a list`,
	}},
	{"prefixes twice", "deny:\n  - 10.0.0.0/8\n  - 192.0.2.1\n  - ::ffff:192.0.2.1\n  - 10.0.0.0/8\n", []string{
		"4:5: deny[2]: 192.0.2.1/32 is given twice, first in line 3; allowed: once",
		"5:5: deny[3]: 10.0.0.0/8 is given twice, first in line 2; allowed: once",
	}},
	{"state", "state: {path: 7, interval: 0s, every: 1s}\n", []string{
		`1:15: state.path: 7 is not a text; allowed: a path to a file in a folder that is there, or "" for no state file`,
		"1:28: state.interval: 0s has no meaning here; allowed: more than 0",
		"1:32: state.every: unknown key; allowed: path, interval",
	}},

	{"tab", "admin:\n\tlisten: off\n", []string{`2:1: not valid YAML: found character '\t' that cannot start any token`}},
	{"open bracket", "a: [1,\n", []string{"1:4: not valid YAML: sequence end token ']' not found"}},
	{"open quote", "a: 'x\n", []string{"1:4: not valid YAML: could not find end character of single-quoted text"}},
	{"two values", "a: b\n c: d\n", []string{"1:4: not valid YAML: mapping value is not allowed in this context"}},
	{"IPv6 without quotes", "admin:\n  listen: [::1]:9190\n", []string{
		"2:16: not valid YAML: value is not allowed in this context (an address such as [::]:7000 needs quotes)",
	}},
	{"two documents", "drain: {}\n---\ndrain: {}\n", []string{"3:1: a second YAML document begins here; allowed: one document in a file"}},
	{"not UTF-8", "drain: {}\n# \xff\n", []string{"2:3: byte 0xff is not text; allowed: UTF-8 without control characters"}},
	{"control character", "drain: {}\x00", []string{"1:10: byte 0x00 is not text; allowed: UTF-8 without control characters"}},
	{"tag", "drain: {grace: !!str 1s}\n", []string{"1:16: drain.grace: a YAML tag; allowed: a number and a unit, such as 500ms, 30s, 10m or 1h"}},
	{"alias without anchor", "drain: *d\n", []string{"1:8: drain: the alias *d with no anchor before it; allowed: a mapping with the keys grace"}},
	{"alias of an odd name", "*|", []string{
		"1:1: the alias *| with no anchor before it; allowed: a mapping with the keys " + sections,
	}},
	{"mistake behind an alias", "policies:\n  - &p {name: p, scale: 0}\n  - <<: *p\n    name: q\n", []string{
		"2:25: policies[0].scale: 0 has no meaning here; allowed: 1 or more",
	}},

	{"durations", "report: {every: 10}\nengine: {stale_after: 0s, cleanup_interval: -5s}\ndrain: {grace: 0}\n", []string{
		"1:17: report.every: 10 has no unit; allowed: a number and a unit, such as 500ms, 30s, 10m or 1h",
		"2:23: engine.stale_after: 0s has no meaning here; allowed: more than 0",
		"2:45: engine.cleanup_interval: -5s is negative; allowed: a number and a unit, such as 500ms, 30s, 10m or 1h",
		"3:16: drain.grace: 0 has no meaning here; allowed: more than 0",
	}},
	{"intervals that would take a core", "report: {every: 999µs}\nstate: {interval: 1ns}\nengine: {cleanup_interval: 1us}\n", []string{
		"1:17: report.every: 999µs is too often; allowed: 1ms or more",
		"2:19: state.interval: 1ns is too often; allowed: 1ms or more",
		"3:28: engine.cleanup_interval: 1us is too often; allowed: 1ms or more",
	}},
	{"long durations", "report: {every: 300000000h}\n", []string{
		`1:17: report.every: "300000000h" is not a duration; allowed: a number and a unit, such as 500ms, 30s, 10m or 1h`,
	}},
	{"counts", "engine: {shards: 3, max_endpoints: 1e6, ipv4_prefix: 33, ipv6_prefix: '64'}\n", []string{
		"1:18: engine.shards: 3 is not a power of two in 1..65536",
		`1:36: engine.max_endpoints: "1e6" is not a whole number; allowed: 1 or more`,
		"1:54: engine.ipv4_prefix: 33 is outside 1..32",
		`1:71: engine.ipv6_prefix: "64" is not a whole number; allowed: 1 or more`,
	}},
	{"more counts", "engine: {shards: 0x10, max_endpoints: 99999999999999999999, ipv4_prefix: 024, ipv6_prefix: -1}\n", []string{
		"1:18: engine.shards: 0x10 is not a decimal whole number; allowed: 1 or more",
		"1:39: engine.max_endpoints: 99999999999999999999 is too large; allowed: 1 or more",
		"1:74: engine.ipv4_prefix: 024 is not a decimal whole number; allowed: 1 or more",
		"1:92: engine.ipv6_prefix: -1 is negative; allowed: 1 or more",
	}},
	{"counts of the engine", "engine: {shards: 131072, max_endpoints: 3000000000, ipv4_prefix: 2.5, ipv6_prefix: 129}\n", []string{
		"1:18: engine.shards: 131072 is not a power of two in 1..65536",
		"1:41: engine.max_endpoints: 3000000000 " + tooMany,
		"1:66: engine.ipv4_prefix: 2.5 is not a decimal whole number; allowed: 1 or more",
		"1:84: engine.ipv6_prefix: 129 is outside 1..128",
	}},
	{"words", "engine: {on_full: drop, key_by_port: yes, adaptive: {enabled: 'true'}}\n", []string{
		`1:19: engine.on_full: "drop" is not known; allowed: evict_idle, deny, allow`,
		`1:38: engine.key_by_port: "yes" is not a truth value; allowed: true, false`,
		`1:63: engine.adaptive.enabled: "true" is not a truth value; allowed: true, false`,
	}},
	{"shares", "engine: {adaptive: {low: 60, high: 120%, floor: half}}\n", []string{
		"1:26: engine.adaptive.low: 60 is more than the whole; allowed: a percentage or a fraction: 60%, 0.6",
		"1:36: engine.adaptive.high: 120% is more than the whole; allowed: a percentage or a fraction: 60%, 0.6",
		`1:49: engine.adaptive.floor: "half" is not a share; allowed: a percentage or a fraction: 60%, 0.6`,
	}},
	{"thresholds", "engine: {adaptive: {low: 90%, high: 60%}}\n", []string{
		"1:20: engine.adaptive: low 0.9 and high 0.6 are not 0 <= low < high <= 1",
	}},
	{"admin", "admin: {listen: localhost:9190}\n", []string{`1:17: admin.listen: "localhost:9190" is not an address; allowed: ip:port, unix:PATH or off`}},
	{"admin socket", "admin: {listen: 'unix:', token_file: 7}\n", []string{
		`1:17: admin.listen: "unix:" is not an address; allowed: ip:port, unix:PATH or off`,
		`1:38: admin.token_file: 7 is not a text; allowed: a path, or "" for no token`,
	}},
	// C119
	{"admin open to the world", "admin: {listen: 0.0.0.0:9190}\n", []string{
		"1:17: admin.listen: 0.0.0.0:9190 is not a loopback address and needs a token_file; " +
			"allowed without one: 127.0.0.1:port, [::1]:port, unix:PATH, off",
	}},
	{"report path", "report: {path: ''}\n", []string{`1:16: report.path: no path; allowed: a path, or "-" for standard output`}},

	{"kernel drop", "kernel_drop: xdp\n", []string{`1:14: kernel_drop: "xdp" is not known; allowed: off, socket`}},
	{"kernel drop as a truth value", "kernel_drop: true\n", []string{"1:14: kernel_drop: true is not known; allowed: off, socket"}},
	{"policy names", "policies:\n  - {name: a}\n  - {name: a}\n  - {capacity: 1}\n  - {name: 7}\n  - {name: 'a b'}\n", []string{
		`3:5: policies[1]: a second policy "a", first in line 2; allowed: one for each name`,
		"4:5: policies[2]: the key name is missing",
		"5:12: policies[3].name: 7 is not a text; allowed: 1 to 64 letters, digits and signs, without spaces (in quotes where it looks like a number)",
		`6:12: policies[4].name: "a b" is not a name; allowed: 1 to 64 letters, digits and signs, without spaces`,
	}},
	{"dry run", "policies: [{name: a, dry_run: on, dryrun: true}]\nlisteners:\n  - {name: a, protocol: udp, listen: 127.0.0.1:1, upstream: echo, dry_run: {}}\n", []string{
		`1:31: policies[0].dry_run: "on" is not a truth value; allowed: true, false`,
		"1:35: policies[0].dryrun: unknown key, did you mean dry_run?; allowed: " + ofPolicy,
		"3:76: listeners[0].dry_run: a mapping; allowed: true, false",
	}},
	{"limits", "policies:\n  - name: a\n    capacity: 0\n    refill: 32\n    scale: 2000000\n    initial: 65\n", []string{
		"3:15: policies[0].capacity: 0 has no meaning here; allowed: 1 or more",
		`4:13: policies[0].refill: "32" is not a rate; allowed: a number for a second, minute or hour: 32/s, 100/m, 1000/h`,
		"5:12: policies[0].scale: 2000000 is outside 1..1000000",
	}},
	{"limits of the engine", "policies:\n  - name: a\n    capacity: 2147483648\n    refill: 2000000000/s\n    initial: x\n", []string{
		"3:15: policies[0].capacity: 2147483648 is outside 1..2147483647",
		"4:13: policies[0].refill: 2e+09 is outside 1e-06..1e+09",
		"5:14: policies[0].initial: \"x\" is not a decimal whole number; allowed: full, empty, or a whole number of tokens of 1 or more",
	}},
	{"several lines", "policies:\n  - {name: a, initial: \"x\\ny\"}\n", []string{
		`2:24: policies[0].initial: "x\ny" is not a decimal whole number; allowed: full, empty, or a whole number of tokens of 1 or more`,
	}},
	{"initial", "policies:\n  - {name: a, initial: 65}\n  - {name: b, capacity: 9, initial: 10}\n  - {name: c, initial: 0}\n  - {name: d, initial: -1}\n", []string{
		"2:24: policies[0].initial: 65 is outside 1..capacity",
		"3:37: policies[1].initial: 10 is outside 1..capacity",
		"4:24: policies[2].initial: 0 has no meaning here; allowed: full, empty, or a whole number of tokens of 1 or more",
		"5:24: policies[3].initial: -1 is negative; allowed: full, empty, or a whole number of tokens of 1 or more",
	}},
	{"rates", "policies:\n  - {name: a, refill: 0/s}\n  - {name: b, refill: 5/d}\n  - {name: c, refill: 1KiB/s}\n  - {name: d, refill: 1e3/s}\n  - {name: e, refill: 0.001/h}\n", []string{
		"2:23: policies[0].refill: 0/s has no meaning here; allowed: more than 0",
		`3:23: policies[1].refill: "5/d" is not a rate; allowed: a number for a second, minute or hour: 32/s, 100/m, 1000/h`,
		`4:23: policies[2].refill: "1KiB/s" is not a rate; allowed: a number for a second, minute or hour: 32/s, 100/m, 1000/h`,
		`5:23: policies[3].refill: "1e3/s" is not a rate; allowed: a number for a second, minute or hour: 32/s, 100/m, 1000/h`,
		"6:23: policies[4].refill: 2.7777777777777776e-07 is outside 1e-06..1e+09",
	}},
	{"bytes", "policies:\n  - {name: a, bytes: {capacity: 64KB}}\n  - {name: b, bytes: {capacity: 1.5KiB, refill: fast}}\n  - {name: c, bytes: {capacity: 4GiB, refill: 1MiB/s}}\n  - {name: d, bytes: {capacity: 9999999999GiB, refill: 1GiB/s}}\n", []string{
		"2:22: policies[0].bytes: the key refill is missing",
		`3:33: policies[1].bytes.capacity: "1.5KiB" is not a size; allowed: a whole number of bytes, also with a unit: 1500, 64KB, 256KiB, 2MiB`,
		`3:49: policies[1].bytes.refill: "fast" is not a rate; allowed: a size for a second, minute or hour: 128KiB/s, 2MiB/s, 60MB/m`,
		"4:33: policies[2].bytes.capacity: 4294967296 is outside 1..2147483647",
		"5:33: policies[3].bytes.capacity: 9999999999GiB is too large; allowed: a whole number of bytes, also with a unit: 1500, 64KB, 256KiB, 2MiB",
		"5:56: policies[3].bytes.refill: 1.073741824e+09 is outside 1e-06..1e+09",
	}},
	{"violations", "policies:\n  - name: a\n    violations: {max: 0, window: 0s, spacing: x, reset_on_success: 1}\n  - name: b\n    violations: {max: 3000000000}\n", []string{
		"3:23: policies[0].violations.max: 0 has no meaning here; allowed: 1 or more",
		"3:34: policies[0].violations.window: 0s has no meaning here; allowed: more than 0",
		`3:47: policies[0].violations.spacing: "x" is not a duration; allowed: a number and a unit, such as 500ms, 30s, 10m or 1h`,
		"3:68: policies[0].violations.reset_on_success: 1 is not a truth value; allowed: true, false",
		"5:23: policies[1].violations.max: 3000000000 " + tooMany,
	}},
	{"lockout", "policies:\n  - {name: a, lockout: never}\n  - {name: b, lockout: false}\n  - {name: c, lockout: {base: 0s, growth: 0, max: 1s}}\n  - {name: d, lockout: {growth: 2000, max: 1s}}\n  - {name: e, lockout: {growth: 0.5, max: x, base: 2s}}\n", []string{
		`2:24: policies[0].lockout: "never" is not known; allowed: off, or a mapping with the keys base, growth, max, forget_after`,
		"3:24: policies[1].lockout: false is not known; allowed: off, or a mapping with the keys base, growth, max, forget_after",
		"4:31: policies[2].lockout.base: 0s has no meaning here; allowed: more than 0",
		"4:43: policies[2].lockout.growth: 0 has no meaning here; allowed: more than 0",
		"5:33: policies[3].lockout.growth: 2000 is outside 1..1000",
		"5:44: policies[3].lockout.max: 1s is below base, 30s",
		"6:33: policies[4].lockout.growth: 0.5 is outside 1..1000",
		`6:43: policies[4].lockout.max: "x" is not a duration; allowed: a number and a unit, such as 500ms, 30s, 10m or 1h`,
	}},

	{"listener", "listeners:\n  - name: a\n    protocol: sctp\n    listen: :7000\n    upstream: 127.0.0.1\n    policy: fast\n    opcode: {}\n", []string{
		`3:15: listeners[0].protocol: "sctp" is not known; allowed: udp, tcp`,
		`4:13: listeners[0].listen: ":7000" has no address; allowed: 0.0.0.0:7000 for every IPv4 address, [::]:7000 for every IPv6 address`,
		`5:15: listeners[0].upstream: "127.0.0.1" is not an upstream; allowed: host:port, or echo`,
		`6:13: listeners[0].policy: there is no policy "fast"; allowed: default`,
		"7:5: listeners[0].opcode: unknown key, did you mean opcodes?; allowed: " + ofListen,
	}},
	{"listeners beside each other", "listeners:\n  - &a {name: a, protocol: udp, listen: 127.0.0.1:1, upstream: echo}\n  - {<<: *a, listen: 127.0.0.1:2}\n  - {name: c, protocol: udp, listen: '[::ffff:127.0.0.1]:1', upstream: echo}\n  - {<<: *a, name: d, protocol: tcp}\n", []string{
		`2:15: listeners[1].name: a second listener "a"; allowed: one for each name`,
		`4:38: listeners[2].listen: listener "a" has udp 127.0.0.1:1 already; allowed: one listener for each protocol and address`,
	}},
	{"listener beneath another", "listeners:\n  - {name: a, protocol: udp, listen: 0.0.0.0:7, upstream: echo}\n  - {name: b, protocol: udp, listen: 127.0.0.1:7, upstream: echo}\n  - {name: c, protocol: tcp, listen: 127.0.0.1:7, upstream: echo}\n  - {name: d, protocol: udp, listen: '[::]:7', upstream: echo}\n  - {name: e, protocol: udp, listen: 224.0.0.1:7, upstream: echo}\n", []string{
		`3:38: listeners[1].listen: listener "a" has udp 0.0.0.0:7 already; allowed: one listener for each protocol and address`,
		`6:38: listeners[4].listen: 224.0.0.1:7 is a multicast or broadcast address; allowed: ip:port, such as 127.0.0.1:7000, 0.0.0.0:7000 or [::]:7000`,
	}},
	{"listener beside the admin server", "listeners: [{name: a, protocol: tcp, listen: 0.0.0.0:9190, upstream: echo}]\n", []string{
		"1:46: listeners[0].listen: the admin server has tcp 127.0.0.1:9190 already; allowed: another address",
	}},
	{"listener in a circle", "listeners: [{name: a, protocol: tcp, listen: 0.0.0.0:80, upstream: localhost:80}]\n", []string{
		"1:68: listeners[0].upstream: localhost:80 is the listener's own address; allowed: the address of a server",
	}},
	{"listeners in a circle", "listeners:\n  - {name: a, protocol: tcp, listen: 127.0.0.1:1, upstream: 127.0.0.1:2}\n  - {name: b, protocol: tcp, listen: 0.0.0.0:2, upstream: localhost:1}\n  - {name: c, protocol: udp, listen: 127.0.0.1:1, upstream: 127.0.0.1:2}\n  - {name: d, protocol: tcp, listen: '[::1]:3', upstream: 0.0.0.0:1}\n", []string{
		`3:38: listeners[1].listen: the upstream of listener "a" is this address; allowed: another one`,
		`3:59: listeners[1].upstream: localhost:1 is the address of listener "a"; allowed: the address of a server`,
		`5:59: listeners[3].upstream: 0.0.0.0:1 is the address of listener "a"; allowed: the address of a server`,
	}},
	{"addresses of many", "listeners:\n  - {name: a, protocol: udp, listen: 255.255.255.255:1, upstream: 224.0.0.1:7}\n  - {name: b, protocol: udp, listen: 127.0.0.1:1, upstream: '[ff02::1]:7'}\n", []string{
		"2:38: listeners[0].listen: 255.255.255.255:1 is a multicast or broadcast address; allowed: ip:port, such as 127.0.0.1:7000, 0.0.0.0:7000 or [::]:7000",
		"2:67: listeners[0].upstream: 224.0.0.1:7 is a multicast or broadcast address; allowed: the address of a server",
		"3:61: listeners[1].upstream: [ff02::1]:7 is a multicast or broadcast address; allowed: the address of a server",
	}},
	{"unix sockets", "admin: {listen: 'unix:@a'}\n", []string{
		"1:17: admin.listen: unix:@a has no path in the file system, which alone says who may connect; allowed: ip:port, unix:PATH or off",
	}},
	{"a long unix socket", "admin: {listen: 'unix:/" + strings.Repeat("x", 103) + "'}\n", []string{
		"1:17: admin.listen: the path of unix:/" + strings.Repeat("x", 54) + "... is longer than 103 bytes, which no unix socket can have",
	}},
	{"caps", "listeners:\n  - {name: a, protocol: udp, listen: 127.0.0.1:1, upstream: echo, udp: {max_sessions: 5000000}}\n  - {name: b, protocol: tcp, listen: 127.0.0.1:1, upstream: echo, tcp: {max_connections: 4194305}}\n", []string{
		"2:87: listeners[0].udp.max_sessions: 5000000 is too large; allowed: 1 to 4194304",
		"3:90: listeners[1].tcp.max_connections: 4194305 is too large; allowed: 1 to 4194304",
	}},
	{"udp", "listeners:\n  - {name: a, protocol: udp, listen: 127.0.0.1:1, upstream: echo, udp: {session_idle: 0s, max_sessions: 0, max_datagram: 65508,\n" +
		"      max_reply_ratio: 1000.5, lockout_requires: nobody, max_reply: 1}}\n  - {name: b, protocol: udp, listen: 127.0.0.1:2, upstream: echo, udp: {max_reply_ratio: -1}}\n", []string{
		"2:87: listeners[0].udp.session_idle: 0s has no meaning here; allowed: more than 0",
		"2:105: listeners[0].udp.max_sessions: 0 has no meaning here; allowed: 1 to 4194304",
		"2:122: listeners[0].udp.max_datagram: 65508 is too large; allowed: 1 to 65507",
		"3:24: listeners[0].udp.max_reply_ratio: 1000.5 is too large; allowed: a decimal number of 0 to 1000: 3, 1.5, or 0 for no bound",
		`3:50: listeners[0].udp.lockout_requires: "nobody" is not known; allowed: any, established`,
		"3:58: listeners[0].udp.max_reply: unknown key; allowed: session_idle, max_sessions, max_datagram, max_reply_ratio, lockout_requires",
		`4:90: listeners[1].udp.max_reply_ratio: "-1" is not a ratio; allowed: a decimal number of 0 to 1000: 3, 1.5, or 0 for no bound`,
	}},
	{"tcp", "listeners:\n  - name: a\n    protocol: tcp\n    listen: 127.0.0.1:1\n    upstream: echo\n    tcp: {max_connections: 0, max_connections_per_ip: -1, dial_timeout: 0s, first_byte_timeout: 1, on_limit: drop, reject: none, lazy: 1}\n", []string{
		"6:28: listeners[0].tcp.max_connections: 0 has no meaning here; allowed: 1 to 4194304",
		"6:55: listeners[0].tcp.max_connections_per_ip: -1 is negative; allowed: 0 or more",
		"6:73: listeners[0].tcp.dial_timeout: 0s has no meaning here; allowed: more than 0",
		"6:97: listeners[0].tcp.first_byte_timeout: 1 has no unit; allowed: a number and a unit, such as 500ms, 30s, 10m or 1h",
		`6:110: listeners[0].tcp.on_limit: "drop" is not known; allowed: pause, close`,
		`6:124: listeners[0].tcp.reject: "none" is not known; allowed: rst, close, silent`,
		"6:130: listeners[0].tcp.lazy: unknown key; allowed: max_connections, max_connections_per_ip, queue, dial_timeout, " +
			"first_byte_timeout, idle_timeout, on_limit, reject",
	}},
	{"proxy_protocol", "listeners:\n" + // C61
		"  - {name: a, protocol: udp, listen: 127.0.0.1:1, upstream: 127.0.0.1:9, proxy_protocol: {send: v1}}\n" +
		"  - {name: b, protocol: tcp, listen: 127.0.0.1:1, upstream: echo, proxy_protocol: {accept_from: 10.0.0.1, timeout: 0s, send: v2}}\n" +
		"  - {name: c, protocol: tcp, listen: 127.0.0.1:2, upstream: echo, proxy_protocol: {accept_from: [lb], send: v3, sent: v2}}\n" +
		"  - {name: d, protocol: tcp, listen: 127.0.0.1:3, upstream: echo, proxy_protocol: v2}\n", []string{
		"2:97: listeners[0].proxy_protocol.send: v1 on a udp listener, which is for tcp alone; allowed: off, v2",
		`3:97: listeners[1].proxy_protocol.accept_from: "10.0.0.1"; allowed: a list`,
		"3:116: listeners[1].proxy_protocol.timeout: 0s has no meaning here; allowed: more than 0",
		"3:126: listeners[1].proxy_protocol.send: v2 to the built-in echo, which would send the header back; allowed: off",
		`4:98: listeners[2].proxy_protocol.accept_from[0]: "lb" is not a prefix; ` + ofPrefix,
		`4:109: listeners[2].proxy_protocol.send: "v3" is not known; allowed: off, v1, v2`,
		"4:113: listeners[2].proxy_protocol.sent: unknown key, did you mean send?; allowed: accept_from, timeout, send",
		`5:83: listeners[3].proxy_protocol: "v2"; allowed: a mapping with the keys accept_from, timeout, send`,
	}},
	{"tcp queue", "listeners:\n" +
		"  - &a {name: a, protocol: tcp, listen: 127.0.0.1:1, upstream: echo, tcp: {queue: {limit: -1, order: fifo, max_wait: 0s, max_wiat: 1s}}}\n" +
		"  - {<<: *a, name: b, listen: 127.0.0.1:2, tcp: {queue: {limit: 1048577, order: 1, max_wait: 5}}}\n" +
		"  - {<<: *a, name: c, listen: 127.0.0.1:3, tcp: {queue: {limit: 1e3, order: [newest_first], max_wait: -5s}}}\n" +
		"  - {<<: *a, name: d, listen: 127.0.0.1:4, tcp: {queue: 7}}\n" +
		"  - {<<: *a, name: e, listen: 127.0.0.1:5, tcp: {queue: {limit: , order: oldest_first}}}\n", []string{
		"2:91: listeners[0].tcp.queue.limit: -1 is negative; allowed: 0 to 1048576",
		`2:102: listeners[0].tcp.queue.order: "fifo" is not known; allowed: oldest_first, newest_first`,
		"2:118: listeners[0].tcp.queue.max_wait: 0s has no meaning here; allowed: more than 0",
		"2:122: listeners[0].tcp.queue.max_wiat: unknown key, did you mean max_wait?; allowed: limit, order, max_wait",
		"3:65: listeners[1].tcp.queue.limit: 1048577 is too large; allowed: 0 to 1048576",
		"3:81: listeners[1].tcp.queue.order: 1 is not known; allowed: oldest_first, newest_first",
		"3:94: listeners[1].tcp.queue.max_wait: 5 has no unit; allowed: a number and a unit, such as 500ms, 30s, 10m or 1h",
		`4:65: listeners[2].tcp.queue.limit: "1e3" is not a whole number; allowed: 0 to 1048576`,
		"4:77: listeners[2].tcp.queue.order: a list; allowed: oldest_first, newest_first",
		"4:103: listeners[2].tcp.queue.max_wait: -5s is negative; allowed: a number and a unit, such as 500ms, 30s, 10m or 1h",
		"5:57: listeners[3].tcp.queue: 7; allowed: a mapping with the keys limit, order, max_wait",
		"6:58: listeners[4].tcp.queue.limit: no value; allowed: a whole number, 0 to 1048576",
	}},
	{"queue without connections", "listeners:\n" +
		"  - {name: a, protocol: udp, listen: 127.0.0.1:1, upstream: echo, tcp: {queue: {limit: 9}}}\n" +
		"  - {name: b, protocol: udp, listen: 127.0.0.1:2, upstream: echo, tcp: {queue: {limit: 0, max_wait: 1s}}}\n" +
		"  - {name: c, protocol: tpc, listen: 127.0.0.1:3, upstream: echo, tcp: {queue: {limit: 9}}}\n" +
		"  - {name: d, listen: 127.0.0.1:4, upstream: echo, tcp: {queue: {limit: 9}}}\n", []string{
		"2:88: listeners[0].tcp.queue.limit: 9 on a udp listener, which has no connections that could wait; allowed: 0",
		`4:25: listeners[2].protocol: "tpc" is not known; allowed: udp, tcp`,
		"5:5: listeners[3]: the key protocol is missing",
	}},
}

func TestMistakes(t *testing.T) {
	for _, c := range wrong {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("f", []byte(c.file))
			assert.EqualError(t, err, "f:"+strings.Join(c.want, "\nf:"))
		})
	}
}

// What would take a parser long, or much of its stack, is refused before.
func TestMistakesOfSize(t *testing.T) {
	laughs := &strings.Builder{}
	laughs.WriteString("policies:\n  - &p0 {name: p}\n")
	for i := range 30 {
		fmt.Fprintf(laughs, "  - &p%d {<<: [*p%d, *p%d, *p%d, *p%d]}\n", i+1, i, i, i, i)
	}
	for name, c := range map[string]struct{ file, want string }{
		"large":          {strings.Repeat("# no\n", 1<<18), "f:1:1: the file is larger than 1048576 bytes"},
		"brackets":       {strings.Repeat("[", 20_000), "f:1:33: not valid YAML: brackets are nested more than 32 deep"},
		"braces":         {strings.Repeat("{a: ", 20_000), "f:1:129: not valid YAML: brackets are nested more than 32 deep"},
		"dashes":         {strings.Repeat("- ", 20_000), "f:1:65: not valid YAML: more than 32 keys, dashes and the like in a line"},
		"keys in a line": {strings.Repeat("a: ", 20_000), "f:1:98: not valid YAML: more than 32 keys, dashes and the like in a line"},
		"colons":         {strings.Repeat(": ", 20_000), "f:1:65: not valid YAML: more than 32 keys, dashes and the like in a line"},
		"anchors":        {strings.Repeat(" : &a ", 20_000), "f:1:98: not valid YAML: more than 32 keys, dashes and the like in a line"},
		"tags":           {strings.Repeat("!x ", 20_000), "f:1:65: not valid YAML: more than 32 keys, dashes and the like in a line"},
		"question marks": {strings.Repeat("? a\n", 20_000), "f:33:1: not valid YAML: more than 32 keys begin with ?"},
		"indents":        {strings.Repeat(" ", 200) + "- a\n", "f:1:201: not valid YAML: the list is nested too deeply"},
		"keys":           {"engine:\n" + strings.Repeat(" a: b\n", 20_000), "f:1002:3: not valid YAML: the mapping has more than 1000 keys"},
		"keys in a list": {"- a: b\n" + strings.Repeat("  a: b\n", 20_000), "f:1001:4: not valid YAML: the mapping has more than 1000 keys"},
		"laughs":         {laughs.String(), "the file repeats itself too often; allowed: 99999 mappings, those that aliases repeat included"},
		"circle":         {"drain: &d {<<: *d}\n", "merges are nested more than 32 deep"},
		"all wrong":      {"listeners: [" + strings.Repeat("1, ", 5000) + "]", "f:1:3010: listeners[999]: more mistakes than 999, those from here on are left out"},
		"self":           {"drain: &d [*d]\n", "f:1:11: drain: a list; allowed: a mapping with the keys grace"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("f", []byte(c.file))
			assert.ErrorContains(t, err, c.want)
		})
	}
}

func TestMistakeRepeatsOnlyTheBeginningOfALongValue(t *testing.T) {
	_, err := Parse("f", []byte("drain: {grace: "+strings.Repeat("x", 5000)+"}"))
	assert.ErrorContains(t, err, strings.Repeat("x", 60)+"...")
	assert.Less(t, len(err.Error()), 300)
}
