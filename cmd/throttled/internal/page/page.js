// What the page shows, and where it gets it. Everything that comes from the
// server goes in as text.

const $ = id => document.getElementById(id);
const tokenKey = "throttled-token", colors = new Set(["in", "out", "soft_throttle", "hard_lockout", "denied", "kernel",
  "sessions_full", "oversize", "self", "bogon", "proxy_header", "upstream_error", "connections_full", "queue_full", "draining"]);

let samples = [], keep = 600, seconds = 1; // newest last
let report = null, chosen = "", cursor = null, timer = null, busy = false, turn = 0;

const packetPlot = new Plot($("plot-packets"), $("legend-packets"), false, look);
const dropPlot = new Plot($("plot-drops"), $("legend-drops"), true, look);

function look(at) {
  if (at === cursor) return;
  cursor = at;
  drawPlots();
}

class Refused extends Error {}

async function ask(path, options = {}) {
  const token = sessionStorage.getItem(tokenKey);
  const headers = token ? { Authorization: "Bearer " + token } : {};
  const answer = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit", signal: AbortSignal.timeout(10000) });
  if (answer.status === 401) throw new Refused();
  const body = await answer.json();
  if (answer.status === 404 && !options.method) return null;
  if (!answer.ok) throw new Error(body.error || answer.statusText);
  return body;
}

// take puts new samples behind those that are there, and begins anew where the
// gateway has.
async function takeHistory() {
  const have = samples.length ? samples[samples.length - 1].Seq : 0;
  let h = await ask("/v1/history?last=" + (have ? 5 : 600));
  if (have && !(h.Samples.length && h.Samples[0].Seq <= have + 1 && h.Samples[h.Samples.length - 1].Seq >= have)) {
    samples = [];
    h = await ask("/v1/history?last=600");
  }
  keep = h.Keep;
  seconds = h.EverySeconds;
  const last = samples.length ? samples[samples.length - 1].Seq : 0;
  samples = samples.concat(h.Samples.filter(s => s.Seq > last)).slice(-keep);
}

// rates are what happened in the second before each sample at the chosen
// listener or at all of them: [{in, out, drops}], null where it is not known.
function rates(name) {
  const all = new Array(keep).fill(null);
  for (let i = 1; i < samples.length; i++) {
    const before = new Map(samples[i - 1].Listeners.map(l => [l.Name, l]));
    const sum = { in: 0, out: 0, bytesIn: 0, bytesOut: 0, dropped: 0, drops: {}, wouldDrop: 0 };
    for (const l of samples[i].Listeners) {
      if (name && l.Name !== name) continue;
      const was = before.get(l.Name) || {};
      sum.in += grown(was.Packets, l.Packets);
      sum.out += grown(was.Replies, l.Replies);
      sum.bytesIn += grown(was.Bytes, l.Bytes);
      sum.bytesOut += grown(was.ReplyBytes, l.ReplyBytes);
      for (const reason in l.Dropped) {
        const n = grown(was.Dropped && was.Dropped[reason], l.Dropped[reason]);
        sum.dropped += n;
        if (n) sum.drops[reason] = (sum.drops[reason] || 0) + n;
      }
      for (const reason in l.WouldDrop) sum.wouldDrop += grown(was.WouldDrop && was.WouldDrop[reason], l.WouldDrop[reason]);
    }
    all[keep - samples.length + i] = sum;
  }
  return all;
}

// grown is the difference for each second; a counter that began anew began at 0.
const grown = (was = 0, is = 0) => (is >= was ? is - was : is) / seconds;

function drawPlots() {
  const all = rates(chosen), newest = all[keep - 1];
  const series = (name, value) => ({ name, color: colors.has(name) ? name : "other", values: all.map(r => r && value(r)) });
  const reasons = [...new Set(all.flatMap(r => r ? Object.keys(r.drops) : []))].sort();
  const drops = reasons.map(reason => series(reason, r => r.drops[reason] || 0));
  const now = newest || { in: 0, out: 0, dropped: 0, drops: {} };
  packetPlot.show([series("in", r => r.in), series("out", r => r.out)], keep, seconds, cursor,
    `Packets per second in the last ten minutes; now ${figure(now.in)} in and ${figure(now.out)} out`);
  dropPlot.show(drops, keep, seconds, cursor, "Drops per second by reason in the last ten minutes; now " +
    (Object.entries(now.drops).map(([reason, n]) => reason + " " + figure(n)).join(", ") || "none"));
  for (const id of ["in", "out", "dropped"]) $(id).textContent = newest ? figure(newest[id]) : "–";
}

// rows fills a table and keeps the rows that stay, and with them the focus.
// Cells are texts, [text, class], or the node that is there already.
function rows(body, items, key, cells) {
  const old = new Map([...body.rows].map(r => [r.dataset.key, r]));
  items.forEach((item, i) => {
    const k = key(item);
    let row = old.get(k);
    if (row) old.delete(k);
    else (row = document.createElement("tr")).dataset.key = k;
    cells(item, row).forEach((cell, c) => {
      const td = row.cells[c] || row.appendChild(document.createElement("td"));
      if (cell instanceof Node) { if (!td.contains(cell)) td.replaceChildren(cell); return; }
      const [text, kind] = Array.isArray(cell) ? cell : [cell, ""];
      if (td.textContent !== text) td.textContent = text;
      td.className = kind;
    });
    if (body.rows[i] !== row) body.insertBefore(row, body.rows[i] || null);
  });
  for (const row of old.values()) row.remove();
}

const named = (policy, dryRun) => policy + (dryRun ? " (dry run)" : "");

const number = x => [figure(x), "n"];

function left(ms) {
  if (ms < 60000) return (ms / 1000).toFixed(1) + " s";
  const s = Math.round(ms / 1000);
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]].filter(([size]) => s >= size).slice(0, 2);
  let rest = s;
  return parts.map(([size, unit]) => { const n = Math.floor(rest / size); rest %= size; return n + " " + unit; }).join(" ");
}

function drawReport() {
  $("endpoints").textContent = figure(report.TrackedEndpoints);
  $("room").textContent = "of " + figure(report.MaxTrackedEndpoints);
  $("locked").textContent = figure(report.HardBlockedCount);
  $("ratio").textContent = Math.round(100 * report.RefillRatio);
  $("meter").value = report.RefillRatio;
  rows($("listeners"), report.Listeners, l => l.Name, l => {
    const r = rates(l.Name)[keep - 1];
    const known = x => r ? number(x(r)) : ["–", "n"];
    return [l.Name, l.Protocol, l.Listen, known(r => r.in), known(r => r.out), known(r => r.bytesIn / 1000), known(r => r.bytesOut / 1000),
      known(r => r.dropped), known(r => r.wouldDrop), number(l.SessionsActive + l.ConnectionsActive), number(l.UpstreamErrors)];
  });
  rows($("top"), report.Top, e => e.Endpoint + " " + e.Policy, e => [e.Endpoint, named(e.Policy, e.DryRun), number(e.Tokens), number(e.SoftViolations),
    e.LockedForMs > 0 ? [left(e.LockedForMs), "n out"] : ["–", "n"], number(e.Denied)]);
  $("top-table").hidden = !report.Top.length;
  $("top-none").hidden = !!report.Top.length;
  offer(report.Listeners.map(l => l.Name));
}

// offer puts the names of the listeners into the choice, where they have changed.
function offer(names) {
  const select = $("listener");
  const have = [...select.options].slice(1).map(o => o.value);
  if (have.join("\n") === names.join("\n")) return;
  select.replaceChildren(select.options[0], ...names.map(name => new Option(name, name)));
  select.value = names.includes(chosen) ? chosen : "";
  chosen = select.value;
}

async function takeBans() {
  const all = await ask("/v1/bans?limit=50");
  $("kept-out").hidden = !all;
  if (!all) return;
  const list = all.bans.map(b => ({ who: b.prefix, kind: b.kind, left: b.left_ms, why: b.note || "", lift: b.kind === "ban" }))
    .concat(all.lockouts.map(l => ({ who: l.endpoint, kind: "lockout", left: l.left_ms, why: "policy " + named(l.policy, l.dry_run), lift: true })));
  rows($("bans"), list, b => b.kind + " " + b.who + " " + b.why, (b, row) => [b.who, b.kind,
    b.left > 0 ? [left(b.left), "n"] : ["no end", "n"], b.why, b.lift ? row.querySelector("button") || liftButton(b.who) : ""]);
  $("bans-table").hidden = !list.length;
  $("bans-none").hidden = !!list.length;
  const more = all.locked_out - all.lockouts.length;
  $("more").textContent = more > 0 ? "and " + figure(more) + " lockouts more" : "";
}

function liftButton(who) {
  const b = document.createElement("button");
  b.type = "button";
  b.textContent = "Unban";
  b.setAttribute("aria-label", "Unban " + who);
  b.addEventListener("click", async () => {
    b.disabled = true;
    try {
      const done = await ask("/v1/bans/" + encodeURIComponent(who), { method: "DELETE" });
      $("done").textContent = who + " is unbanned" + (done.warning ? "; " + done.warning : "");
      await takeBans();
    } catch (e) {
      b.disabled = false;
      $("done").textContent = who + ": " + e.message;
    }
  });
  return b;
}

function say(text, kind) {
  if ($("state").textContent !== text) $("state").textContent = text; // it is read out
  $("state").className = kind;
}

function login(why) {
  sessionStorage.removeItem(tokenKey);
  $("login").hidden = false;
  $("view").hidden = true;
  $("refused").textContent = why;
  say("token needed", "");
  $("token").focus();
}

// run asks each second for the history, which is small, and every other second
// for the rest.
async function run() {
  if (busy) return;
  busy = true;
  clearTimeout(timer);
  timer = null;
  try {
    if (!document.hidden) {
      await takeHistory();
      if (turn++ % 2 === 0) [report] = await Promise.all([ask("/v1/report"), takeBans()]);
      $("login").hidden = true;
      $("view").hidden = false;
      drawPlots();
      drawReport();
      say("live", "live");
    }
  } catch (e) {
    if (e instanceof Refused) return login(sessionStorage.getItem(tokenKey) ? "This is not the token." : "");
    say("the gateway does not answer, trying again", "lost");
  } finally {
    busy = false;
  }
  timer = setTimeout(run, 1000);
}

$("listener").addEventListener("change", e => { chosen = e.target.value; drawPlots(); });
$("ask").addEventListener("submit", e => {
  e.preventDefault();
  sessionStorage.setItem(tokenKey, $("token").value);
  $("token").value = "";
  turn = 0;
  run();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden && timer !== null) run(); });
run();
