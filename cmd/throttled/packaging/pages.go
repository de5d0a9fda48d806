package main

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

//go:embed recipes/source-engine.yaml
var exampleFile string

// A page is a man page in the making, with the macros of man(7).
type page struct{ strings.Builder }

func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// section begins a part of the page.
func (p *page) section(title string) { p.line(".SH %s", strings.ToUpper(title)) }

// paragraphs writes text as it stands in a help, where an empty line is the end
// of a paragraph.
func (p *page) paragraphs(text string) {
	for i, paragraph := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			p.line(".PP")
		}
		p.line("%s", roff(paragraph))
	}
}

// entry writes what a list says about a term.
func (p *page) entry(term, text string) {
	p.line(".TP\n%s", roff(term))
	p.line("%s", roff(text))
}

// example writes what is to stay as it is.
func (p *page) example(text string) {
	p.line(".PP\n.EX")
	p.line("%s", escape(strings.Trim(text, "\n")))
	p.line(".EE")
}

var code = regexp.MustCompile("`[^`]*`")

// roff gives a text whose code stands between backticks.
func roff(text string) string {
	return code.ReplaceAllStringFunc(escape(text), func(s string) string { return `\fB` + strings.Trim(s, "`") + `\fR` })
}

// escape keeps what is text from being taken for a request.
func escape(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}

// commandPage is throttled(1), of a date such as 2026-11-30.
func commandPage(root *cobra.Command, date string) string {
	p := new(page)
	p.line(`.TH THROTTLED 1 "%s" throttled "User Commands"`, date)
	p.section("name")
	p.line(`throttled \- stands in front of a UDP or TCP server and throttles whoever floods it`)
	p.section("synopsis")
	p.line(".B throttled\n.I command\n.RI [ flags ]")
	p.section("description")
	p.paragraphs(`Each remote endpoint has a budget of packets, connections and bytes. Beyond it, it is
throttled; if it keeps on, it is locked out for a while. The gateway is started with
` + "`throttled run`" + `, and told what to do by a file, see throttled.yaml(5). The other
commands check such a file, try it on a capture, or ask and tell a gateway that runs.`)
	p.section("commands")
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			p.command(c)
		}
	}
	p.section("environment")
	p.paragraphs("Every flag has a variable: `--report-every` is `THROTTLED_REPORT_EVERY`. A flag wins over its variable.")
	p.section("exit status")
	p.entry("0", "Done.")
	p.entry("1", "Failed.")
	p.entry("2", "Wrong usage or configuration.")
	p.section("signals")
	p.entry("SIGTERM", "Take nobody new, and end when the last session and connection has ended or the grace is over; a second one ends at once.")
	p.entry("SIGINT", "End at once.")
	p.entry("SIGHUP", "Read the configuration again.")
	p.entry("SIGUSR1", "Write a report line to standard output.")
	p.section("files")
	p.entry("/etc/throttled/throttled.yaml", "The configuration of the service `throttled.service`.")
	p.entry("/etc/default/throttled", "Variables of the service, such as `THROTTLED_ADMIN=unix:/run/throttled/admin`.")
	p.entry("/var/lib/throttled/state", "Bans and lockouts that outlive a restart.")
	p.entry("/usr/share/doc/throttled/examples", "Configurations for a game server, for MQTT and for CoAP, and a Grafana dashboard.")
	p.section("see also")
	p.line(".BR throttled.yaml (5)")
	return p.String()
}

func (p *page) command(c *cobra.Command) {
	p.line(".SS %s", escape(c.UseLine()))
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	p.paragraphs(text)
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && !f.Hidden {
			p.entry(flagTerm(f))
		}
	})
	if c.Example != "" {
		p.example(c.Example)
	}
}

// flagTerm is how a flag is written, and what it is for.
func flagTerm(f *pflag.Flag) (term, text string) {
	kind, text := pflag.UnquoteUsage(f)
	term = strings.TrimSpace("--" + f.Name + " " + kind)
	if f.Shorthand != "" {
		term = "-" + f.Shorthand + ", " + term
	}
	if f.DefValue != "" && f.DefValue != "false" {
		text += " (default " + f.DefValue + ")"
	}
	return "`" + term + "`", text
}

// filePage is throttled.yaml(5).
func filePage(keys []key, date string) string {
	p := new(page)
	p.line(`.TH THROTTLED.YAML 5 "%s" throttled "File Formats"`, date)
	p.section("name")
	p.line(`throttled.yaml \- configuration of the gateway throttled`)
	p.section("description")
	p.paragraphs("A YAML file. `throttled check -c FILE` names every mistake in it with its place and what is allowed there;\n" +
		"unknown keys are mistakes. Keys may be left out, but for `name` of policies and `name`, `protocol`, `listen`\n" +
		"and `upstream` of listeners. `throttled reload` takes a changed file over.")
	p.entry("duration", "A number and a unit: `500ms`, `30s`, `10m`, `1h`, `1h30m`.")
	p.entry("rate", "A number for a second, minute or hour: `32/s`, `100/m`, `1000/h`.")
	p.entry("size", "Bytes, also with a unit: `1500`, `64KB`, `256KiB`, `2MiB`.")
	p.entry("share", "A percentage or a fraction: `60%`, `0.6`.")
	p.section("keys")
	for _, k := range keys {
		term := "`" + k.path + "`: " + k.value
		if k.missing != "" {
			term += "; default `" + k.missing + "`"
		}
		p.entry(term, k.meaning)
	}
	p.section("example")
	p.example(exampleFile)
	p.section("files")
	p.entry("/usr/share/throttled/throttled.schema.json", "A JSON schema of the file, for editors.")
	p.entry("/usr/share/doc/throttled/examples", "Configurations for a game server, for MQTT and for CoAP.")
	p.section("see also")
	p.line(".BR throttled (1)")
	return p.String()
}
