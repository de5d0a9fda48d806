package engine

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/shard"
)

// topEndpoints is the most that Report.Top lists.
const topEndpoints = 20

// A Report says what the engine has done since it was made and whom it holds
// back now. Its JSON has the names of the fields. The limits at its head are
// those of the default policy.
type Report struct {
	UtcNow               time.Time
	CapacityTokens       int64
	RefillPerSecond      float64
	TokenScale           int64
	Shards               int
	HardLockoutSeconds   float64
	StaleEntrySeconds    float64
	CleanupIntervalSecs  float64
	MaxTrackedEndpoints  int
	TrackedEndpoints     int     // (endpoint, policy) pairs
	PeakTrackedEndpoints int     // the most there have been at one time
	HardBlockedCount     int     // of them locked out now
	SoftWarningCount     int     // of them not locked out, with denials in an open window
	TotalCleaned         int64   // forgotten by the janitor
	RefillRatio          float64 // of the load source, 0..1
	Evaluated            int64   // Allowed + SoftThrottled + HardLocked
	Allowed              int64
	SoftThrottled        int64
	HardLocked           int64 // locked out, banned, invalid, or new to a full table with Deny
	Lockouts             int64 // begun
	Overflowed           int64 // packets that shared the overflow bucket or passed untracked
	Invalid              int64 // without a valid address, policy or size; part of HardLocked
	Evicted              int64 // places given to a newcomer in a full table
	Policies             []PolicyReport
	// Top are those who are locked out, then those who were denied most; at
	// most 20, none who was never denied.
	Top []EndpointReport
}

// A PolicyReport is the part that one policy has in a Report.
type PolicyReport struct {
	Name               string
	CapacityTokens     int64
	RefillPerSecond    float64
	TokenScale         int64
	HardLockoutSeconds float64
	Evaluated          int64
	Allowed            int64
	SoftThrottled      int64
	HardLocked         int64
	DryRun             bool `json:",omitempty"` // what is denied passes
}

// An EndpointReport is what is known of an endpoint under a policy.
type EndpointReport struct {
	Endpoint       string // an address, a prefix where it stands for more than one, with its port where that counts
	Policy         string
	Tokens         int64 // whole packet tokens
	SoftViolations int   // denials in the open window
	LockedForMs    int64 // left of a lockout, rounded up
	Denied         int64 // packets, since the endpoint was last forgotten
	DryRun         bool  `json:",omitempty"` // of the policy: what is denied passes
}

// Report returns the engine's report. It copies what it looks at, a few entries
// under one hold of a lock, so that decisions go on meanwhile.
func (e *Engine) Report() Report {
	n := e.names.Load()
	def := n.rules[0].Policy()
	r := Report{
		CapacityTokens:      def.Packets.Capacity,
		RefillPerSecond:     def.Packets.RefillPerSecond,
		TokenScale:          def.Packets.Scale,
		Shards:              e.cfg.Shards,
		HardLockoutSeconds:  lockoutSeconds(def),
		StaleEntrySeconds:   e.cfg.StaleAfter.Seconds(),
		CleanupIntervalSecs: e.cfg.CleanupInterval.Seconds(),
		MaxTrackedEndpoints: e.cfg.MaxTrackedEndpoints,
		RefillRatio:         e.refill.load().ratio,
		Policies:            []PolicyReport{},
		Top:                 []EndpointReport{},
	}
	e.addEndpoints(&r)
	e.addCounts(&r, n)
	r.TrackedEndpoints = e.table.Len()
	r.PeakTrackedEndpoints = e.table.Peak()
	r.UtcNow = e.time().UTC()
	return r
}

func lockoutSeconds(p policy.Policy) float64 {
	if p.Escalation.Disabled {
		return 0
	}
	return p.Escalation.Lockout.Seconds()
}

func (e *Engine) addCounts(r *Report, n *names) {
	stats := e.table.Stats()
	r.Invalid = e.invalid.Load()
	r.HardLocked = r.Invalid
	r.Lockouts, r.Overflowed = stats.Lockouts, stats.Overflowed
	r.Evicted, r.TotalCleaned = stats.Evicted, stats.Cleaned
	for id, c := range stats.Rules {
		r.Allowed += c.Allowed
		r.SoftThrottled += c.SoftThrottled
		r.HardLocked += c.HardLocked
		r.addPolicy(n.rule(PolicyID(id)), c)
	}
	r.Evaluated = r.Allowed + r.SoftThrottled + r.HardLocked
}

// addPolicy adds what was decided under a rule, nil where the policy is no
// more. The default policy may have a second id.
func (r *Report) addPolicy(rule *policy.Rule, c shard.Counts) {
	if rule == nil {
		return
	}
	p, i := rule.Policy(), 0
	if len(r.Policies) == 0 || r.Policies[0].Name != p.Name {
		i = len(r.Policies)
		r.Policies = append(r.Policies, PolicyReport{
			Name:               p.Name,
			CapacityTokens:     p.Packets.Capacity,
			RefillPerSecond:    p.Packets.RefillPerSecond,
			TokenScale:         p.Packets.Scale,
			HardLockoutSeconds: lockoutSeconds(p),
			DryRun:             p.DryRun,
		})
	}
	row := &r.Policies[i]
	row.Evaluated += c.Allowed + c.SoftThrottled + c.HardLocked
	row.Allowed += c.Allowed
	row.SoftThrottled += c.SoftThrottled
	row.HardLocked += c.HardLocked
}

func (e *Engine) addEndpoints(r *Report) {
	top := worst{limit: topEndpoints}
	e.walk(func(row shard.Row) {
		switch {
		case locked(row):
			r.HardBlockedCount++
		case row.Rule.Violations(&row.History, row.At) > 0:
			r.SoftWarningCount++
		case row.State.Denied == 0:
			return
		}
		top.add(row)
	})
	for _, row := range top.sorted() {
		r.Top = append(r.Top, e.endpointReport(row))
	}
}

// Endpoints returns at most limit of the tracked endpoints, those who are locked
// out first and then by denials, and how many there are of either. A limit of
// less than 1 is none. Like Report it copies a few entries under one hold of a
// lock, and it keeps no more than twice the limit.
func (e *Engine) Endpoints(limit int) (rows []EndpointReport, tracked, lockedOut int) {
	top := worst{limit: max(0, limit)}
	e.walk(func(row shard.Row) {
		tracked++
		if locked(row) {
			lockedOut++
		}
		top.add(row)
	})
	for _, row := range top.sorted() {
		rows = append(rows, e.endpointReport(row))
	}
	return rows, tracked, lockedOut
}

// worst collects the rows that come first in the order of worse.
type worst struct {
	limit int
	rows  []shard.Row // up to twice the limit; the first ones sorted once there were so many
	full  bool        // rows[limit-1] is the last that counts
}

func (w *worst) add(row shard.Row) {
	if w.limit == 0 || w.full && worse(row, w.rows[w.limit-1]) >= 0 {
		return
	}
	if w.rows = append(w.rows, row); len(w.rows) == 2*w.limit {
		w.rows = w.sorted()
		w.full = true
	}
}

func (w *worst) sorted() []shard.Row {
	slices.SortFunc(w.rows, worse)
	return w.rows[:min(len(w.rows), w.limit)]
}

func locked(row shard.Row) bool { return row.At.Now < row.State.LockedUntil }

// worse orders those who are locked out before the others and then by denials.
func worse(a, b shard.Row) int {
	if locked(a) != locked(b) {
		if locked(a) {
			return -1
		}
		return 1
	}
	return cmp.Compare(b.State.Denied, a.State.Denied)
}

func (e *Engine) endpointReport(row shard.Row) EndpointReport {
	left := time.Duration(max(0, row.State.LockedUntil-row.At.Now))
	p := row.Rule.Policy()
	return EndpointReport{
		Endpoint:       e.endpoint(row.Key),
		Policy:         p.Name,
		DryRun:         p.DryRun,
		Tokens:         row.Rule.Tokens(&row.State, row.At),
		SoftViolations: row.Rule.Violations(&row.History, row.At),
		LockedForMs:    int64(left/time.Millisecond) + min(1, int64(left%time.Millisecond)),
		Denied:         int64(row.State.Denied),
	}
}

// Lookup returns what is known of an endpoint under the default policy; not of
// one that is not tracked.
func (e *Engine) Lookup(ep netip.AddrPort) (EndpointReport, bool) {
	if !ep.IsValid() {
		return EndpointReport{}, false
	}
	at, _ := e.now()
	row, ok := e.table.Find(e.key(ep, 0), at)
	if !ok {
		return EndpointReport{}, false
	}
	return e.endpointReport(row), true
}

// WriteReport writes the report as text for people.
func (e *Engine) WriteReport(w io.Writer) error { return e.Report().WriteText(w) }

// WriteText writes the report as text for people: a line for each figure, then
// tables of the policies and the endpoints.
func (r Report) WriteText(w io.Writer) error {
	p := &printer{w: w}
	p.printf("[%s] TokenBucketLimiter Status:\n", r.UtcNow.UTC().Format(time.DateTime))
	p.line("CapacityTokens", r.CapacityTokens)
	p.line("RefillPerSecond", r.RefillPerSecond)
	p.line("TokenScale", r.TokenScale)
	p.line("Shards", r.Shards)
	p.line("HardLockoutSeconds", r.HardLockoutSeconds)
	p.line("StaleEntrySeconds", r.StaleEntrySeconds)
	p.line("CleanupIntervalSecs", r.CleanupIntervalSecs)
	p.line("MaxTrackedEndpoints", r.MaxTrackedEndpoints)
	p.line("TrackedEndpoints", r.TrackedEndpoints)
	p.line("PeakTrackedEndpoints", r.PeakTrackedEndpoints)
	p.line("HardBlockedCount", r.HardBlockedCount)
	p.line("SoftWarningCount", r.SoftWarningCount)
	p.line("TotalCleaned", r.TotalCleaned)
	p.line("RefillRatio", math.Round(1000*r.RefillRatio)/1000)
	p.line("Evaluated", r.Evaluated)
	p.line("Allowed", r.Allowed)
	p.line("SoftThrottled", r.SoftThrottled)
	p.line("HardLocked", r.HardLocked)
	p.line("Lockouts", r.Lockouts)
	p.line("Overflowed", r.Overflowed)
	p.line("Invalid", r.Invalid)
	p.line("Evicted", r.Evicted)
	p.policies(r.Policies)
	p.endpoints(r.Top)
	return p.err
}

// A printer writes until the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

func (p *printer) line(label string, value any) { p.printf("%-20s: %v\n", label, value) }

func (p *printer) policies(rows []PolicyReport) {
	p.printf("Policies:\n  %-20s %10s %12s %12s %12s %12s\n",
		"Name", "Capacity", "Refill/s", "Allowed", "Throttled", "LockedOut")
	for _, r := range rows {
		p.printf("  %-20s %10d %12g %12d %12d %12d\n",
			named(r.Name, r.DryRun), r.CapacityTokens, r.RefillPerSecond, r.Allowed, r.SoftThrottled, r.HardLocked)
	}
}

// named is a policy in the text.
func named(policy string, dryRun bool) string {
	if dryRun {
		return policy + " (dry run)"
	}
	return policy
}

func (p *printer) endpoints(rows []EndpointReport) {
	if len(rows) == 0 {
		return
	}
	p.printf("Top:\n  %-39s %-16s %8s %10s %12s %12s\n",
		"Endpoint", "Policy", "Tokens", "Violations", "LockedForMs", "Denied")
	for _, r := range rows {
		p.printf("  %-39s %-16s %8d %10d %12d %12d\n",
			r.Endpoint, named(r.Policy, r.DryRun), r.Tokens, r.SoftViolations, r.LockedForMs, r.Denied)
	}
}
