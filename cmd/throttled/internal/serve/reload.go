package serve

import (
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/admin"
	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/config"
	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/netx"
	"github.com/seed-ee4278a0/throttled/policy"
)

const (
	errNoFile   admin.Conflict = "the gateway runs without a configuration file: there is nothing to read again"
	errDraining admin.Conflict = "the gateway is draining: it takes no other configuration"
)

// reloads obeys SIGHUP, one after the other. Those that come while one waits to
// be obeyed are the same one.
func (p *process) reloads() {
	for range p.hangups {
		_, _ = p.reload() // which has logged what there is to say
	}
}

// reload reads the configuration again and makes it the one that runs, or
// changes nothing. It returns what in it has no effect, or none so far.
func (p *process) reload() (warnings []string, err error) {
	p.reloading.Lock()
	defer p.reloading.Unlock()
	switch {
	case p.reread == nil:
		err = errNoFile
	case p.draining.Load():
		err = errDraining
	default:
		p.supervisor.reloading()
		warnings, err = p.replace()
		if !p.draining.Load() {
			p.ready()
		}
	}
	if errors.Is(err, netx.ErrDraining) || errors.Is(err, net.ErrClosed) {
		err = errDraining
	}
	if _, unread := errors.AsType[admin.Conflict](err); !unread {
		p.reloaded.Store(err == nil)
	}
	p.logReload(warnings, err)
	return warnings, err
}

func (p *process) replace() (warnings []string, err error) {
	c, err := p.reread()
	if err != nil {
		return nil, err
	}
	warnings = slices.Clone(c.Warnings)
	for _, key := range c.KeepFixed(p.config.Load()) {
		warnings = append(warnings, key+": takes effect at a restart")
	}
	if err := p.apply(c); err != nil {
		return nil, err
	}
	return warnings, nil
}

// apply makes c the configuration that runs. What can fail comes first, and the
// policies that are there change last: they could not be changed back without a
// trace. New ones are there before the listeners that want them.
func (p *process) apply(c *config.Config) error {
	old := p.config.Load()
	if err := p.engine.SetPolicies(between(old.Engine, c.Engine)); err != nil {
		return err
	}
	listeners, err := c.Gateway(p.engine)
	if err == nil {
		err = p.gateway.Reload(listeners, c.Grace)
	}
	if err != nil {
		return errors.Join(err, p.engine.SetPolicies(old.Engine.Default, old.Engine.Policies))
	}
	err = errors.Join(
		p.engine.SetPolicies(c.Engine.Default, c.Engine.Policies),
		p.engine.Exempt(c.Exempt...),
		p.engine.Deny(c.Deny...),
	)
	if err != nil {
		return err
	}
	if p.state != nil {
		p.state.SetInterval(c.State.Interval)
	}
	p.config.Store(c)
	select {
	case p.changed <- struct{}{}:
	default: // the loop has yet to hear of the one before
	}
	return nil
}

// between are the policies while the listeners change: the old ones, and the new
// ones that have other names. Who will be a dry run is one already, so that nothing
// is dropped where a listener ceases to be one.
func between(old, c engine.Config) (def policy.Policy, named []policy.Policy) {
	dry, known := map[string]bool{}, map[string]bool{}
	for _, p := range c.Policies {
		dry[p.Name] = p.DryRun
	}
	for _, p := range old.Policies {
		known[p.Name] = true
		p.DryRun = p.DryRun || dry[p.Name]
		named = append(named, p)
	}
	for _, p := range c.Policies {
		if !known[p.Name] {
			named = append(named, p)
		}
	}
	def = old.Default
	def.DryRun = def.DryRun || c.Default.DryRun
	return def, named
}

// logReload has a line for each mistake, so that none is read over.
func (p *process) logReload(warnings []string, err error) {
	for _, w := range warnings {
		p.log.Warn("configuration", "warning", w)
	}
	if err == nil {
		c := p.config.Load()
		p.log.Info("configuration reloaded", "listeners", len(c.Listeners), "policies", len(c.Engine.Policies)+1,
			"exempt", len(c.Exempt), "deny", len(c.Deny))
		return
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		p.log.Error("configuration", "error", line)
	}
	p.log.Error("the configuration is not reloaded, what ran goes on")
}
