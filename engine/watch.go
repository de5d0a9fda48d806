package engine

import (
	"net/netip"
	"slices"
	"time"

	"github.com/seed-ee4278a0/throttled/policy"
)

// A watch is somebody who keeps a copy of who is kept out.
type watch struct {
	f func(p netip.Prefix, lifted bool)
}

// Watch is for a copy of who is kept out that lives elsewhere, such as in the
// kernel: it calls f where somebody may be kept out for less long than before.
// f is told where to look, and asks Listed and LockedFor for what holds there:
//
//   - After Ban, Unban, Exempt, Deny and ReadSnapshot, for each prefix of which
//     the lists may say something else. Of a new list of exemptions or of the
//     denied it hears of those that are new before those that are no more, so
//     that a copy never limits anybody who is exempt before and after. Watch
//     begins with every prefix that is listed already.
//   - With lifted, after Unban and SetPolicies, where lockouts may have ended
//     before their time: those of the endpoint that p is an address of, those
//     of all endpoints where p is the zero Prefix. After SetPolicies, which gives
//     that, a policy may also have become a dry run, or have ceased to be one.
//
// Nothing is told of what ends by itself when its time has come, nor of lockouts
// that begin.
//
// f is called before the method that made the change returns, one call at a
// time, while other changes wait; decisions do not wait. It must not change the
// engine, nor call Watch or stop. After stop has returned f is not called again.
func (e *Engine) Watch(f func(p netip.Prefix, lifted bool)) (stop func()) {
	w := &watch{f}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.watches = append(e.watches, w)
	for p := range e.prefixes().All() {
		f(p, false)
	}
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.watches = slices.DeleteFunc(e.watches, func(o *watch) bool { return o == w })
	}
}

// changed tells those who watch. The caller holds mu.
func (e *Engine) changed(p netip.Prefix, lifted bool) {
	for _, w := range e.watches {
		w.f(p, lifted)
	}
}

// Listed returns what the lists say of exactly this prefix, whatever they say of
// shorter ones: whether it is exempt, and what is left of its ban, Never where
// that lasts until Unban or the prefix is denied, 0 where there is none. Where
// there are both the exemption counts.
func (e *Engine) Listed(p netip.Prefix) (exempt bool, banned time.Duration) {
	l := e.lists.Load()
	if l == nil || !p.IsValid() {
		return false, 0
	}
	rule, _ := l.prefixes.Get(canonical(p))
	switch {
	case rule.denied || rule.banned && rule.until == forever:
		banned = policy.Never
	case rule.banned:
		banned = time.Duration(max(0, rule.until-e.elapsed()))
	}
	return rule.exempt, banned
}

// LockedFor returns how much longer a lockout keeps the endpoint out under the
// policy: 0 where there is none and where the policy is a dry run. It does not
// look at bans and exemptions, and neither charges nor counts anything.
func (e *Engine) LockedFor(ep netip.AddrPort, id PolicyID) time.Duration {
	if !ep.IsValid() || id > maxPolicyID || e.DryRun(id) {
		return 0
	}
	at, _ := e.now()
	row, ok := e.table.Find(e.key(ep, id), at)
	if !ok {
		return 0
	}
	return time.Duration(max(0, row.State.LockedUntil-row.At.Now))
}

// Denies reports whether it is the list of the denied that keeps an address out,
// by the longest prefix that holds it; not where a ban of a longer one does.
func (e *Engine) Denies(a netip.Addr) bool {
	l := e.lists.Load()
	if l == nil {
		return false
	}
	rule, ok := l.rule(a, e.elapsed())
	return ok && rule.denied && !rule.exempt
}

// ListDecision returns what the lists decide on a packet from an address, under
// every policy; ok is false where they say nothing of it. It neither charges nor
// counts anything.
func (e *Engine) ListDecision(a netip.Addr) (d policy.Decision, ok bool) {
	l := e.lists.Load()
	if l == nil {
		return d, false
	}
	return l.decide(a, e.elapsed())
}

// Config returns what New was given, with the defaults for what was zero. The
// policies may have been replaced since.
func (e *Engine) Config() Config { return e.cfg }
