package config

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/goccy/go-yaml/ast"
)

// Parse reads a configuration from memory and touches no other file; file is
// its name in errors. The error is a *Mistakes with everything that is wrong.
func Parse(file string, data []byte) (*Config, error) {
	return parseFile(file, data, outside{
		readToken:  func(string) (string, error) { return "", nil },
		checkState: func(string) error { return nil },
	})
}

func parseFile(file string, data []byte, o outside) (*Config, error) {
	c := New()
	body, m := parse(data)
	switch {
	case m != nil:
		return nil, &Mistakes{file, []Mistake{*m}}
	case body == nil:
		return nil, &Mistakes{file, []Mistake{{1, 1, "", "the file is empty; allowed: the keys " + keys(c.fields())}}}
	}
	d := &decoder{targets: map[*ast.AliasNode]ast.Node{}, outside: o}
	ast.Walk(anchors{map[string]ast.Node{}, d.targets}, body)
	if root := (value{node: body}); d.mapping(root, nil, c.fields()) {
		d.checkListeners(c)
		if len(d.mistakes) == 0 {
			d.judge(c.Engine, nil, root)
		}
	}
	if len(d.mistakes) > 0 {
		return nil, &Mistakes{file, sorted(d.mistakes)}
	}
	for _, w := range sorted(d.warnings) {
		c.Warnings = append(c.Warnings, w.in(file, "warning: "))
	}
	return c, nil
}

// fields are the sections of a file.
func (c *Config) fields() []field {
	return []field{
		{"admin", "", func(d *decoder, v value) { d.admin(&c.Admin, v) }},
		{"state", "", func(d *decoder, v value) { d.state(&c.State, v) }},
		{"report", "", func(d *decoder, v value) { d.report(&c.Report, v) }},
		{"engine", "", func(d *decoder, v value) { d.engine(c, v) }},
		{"exempt", "", prefixes(&c.Exempt, func(*decoder, value, netip.Prefix) {})},
		{"deny", "", prefixes(&c.Deny, func(d *decoder, v value, p netip.Prefix) {
			if slices.Contains(c.Exempt, p) {
				d.warn(v, "has no effect: %s is exempt, too", p)
			}
		})},
		{"kernel_drop", "", choice(&c.KernelDrop, kernelDropWords)},
		{"drain", "", func(d *decoder, v value) {
			d.mapping(v, nil, []field{{"grace", "", duration(&c.Grace)}})
		}},
		{"policies", "", func(d *decoder, v value) { d.policies(&c.Engine, v) }},
		{"listeners", "", list(func(d *decoder, v value) { d.listener(c, v) })},
	}
}

func (d *decoder) report(r *Report, v value) {
	d.mapping(v, nil, []field{
		{"every", "", parsed(&r.Every, allowedDuration, ParseEvery)},
		{"path", "", parsed(&r.Path, allowedReportPath, parseReportPath)},
	})
}

func (d *decoder) admin(a *Admin, v value) {
	at := places{}
	d.mapping(v, at, []field{
		{"listen", "listen", parsed(&a.Listen, allowedAdmin, ParseAdmin)},
		{"token_file", "token_file", text(&a.TokenFile, `a path, or "" for no token`)},
	})
	if a.TokenFile != "" {
		var err error
		if a.Token, err = d.outside.readToken(a.TokenFile); err != nil {
			d.wrong(d.resolve(at["token_file"]), "%s", err)
		}
	}
	if a.TokenFile == "" && NeedsToken(a.Listen) {
		d.wrong(d.resolve(at["listen"]), "%s is not a loopback address and needs a token_file; allowed without one: 127.0.0.1:port, [::1]:port, unix:PATH, off", a.Listen)
	}
}

const allowedReportPath = `a path, or "-" for standard output`

func parseReportPath(s string) (string, error) {
	if s == "" {
		return "", errors.New("no path; allowed: " + allowedReportPath)
	}
	return s, nil
}
