// A plot of the last ten minutes: lines, or areas on top of each other. Series
// are {name, color, values}; values[0] is the oldest second, null where nothing
// is known.

const plotHeight = 200, plotLeft = 52, plotRight = 10, plotTop = 8, plotBottom = 24;

function svg(tag, attributes, text) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const name in attributes) e.setAttribute(name, attributes[name]);
  if (text !== undefined) e.textContent = text;
  return e;
}

// figure writes a rate or a count for people.
function figure(x) {
  if (x > 0 && x < 10 && !Number.isInteger(x)) return x.toFixed(1);
  return Math.round(x).toLocaleString("en");
}

function short(x) {
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (x >= size) return +(x / size).toPrecision(3) + unit;
  }
  return String(+x.toPrecision(3));
}

// steps gives round numbers from 0 until they reach max, three to five of them.
function steps(max) {
  const raw = Math.max(max, 1) / 4, size = 10 ** Math.floor(Math.log10(raw));
  const step = size * [1, 2, 2.5, 5, 10].find(f => f * size >= raw);
  const all = [];
  for (let i = 0; i === 0 || all[i - 1] < max; i++) all.push(i * step);
  return all;
}

// stack puts each series on top of those before it.
function stack(series, length) {
  const under = new Array(length).fill(0);
  return series.map(s => {
    const from = under.slice();
    s.values.forEach((v, i) => { under[i] += v || 0; });
    return { from, to: under.slice() };
  });
}

// runs are the stretches of values that have no hole in them.
function runs(values) {
  const all = [];
  for (let i = 0, from = 0; i <= values.length; i++) {
    if (i < values.length && values[i] !== null) continue;
    if (i > from) all.push([from, i]);
    from = i + 1;
  }
  return all;
}

class Plot {
  // moved is called with the second that the reader looks at, or null.
  constructor(element, legend, stacked, moved) {
    Object.assign(this, { element, legend, stacked, moved, series: [], length: 1, cursor: null, seconds: 1 });
    element.addEventListener("pointermove", e => this.point(e.clientX));
    element.addEventListener("pointerleave", () => moved(null));
    element.addEventListener("blur", () => moved(null));
    element.addEventListener("keydown", e => this.key(e));
    new ResizeObserver(() => this.draw()).observe(element);
  }

  point(clientX) {
    const box = this.element.getBoundingClientRect();
    const part = (clientX - box.left - plotLeft) / (box.width - plotLeft - plotRight);
    this.moved(Math.min(this.length - 1, Math.max(0, Math.round(part * (this.length - 1)))));
  }

  key(e) {
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -30, PageDown: 30 }[e.key];
    if (e.key === "Escape") this.moved(null);
    if (by === undefined) return;
    e.preventDefault();
    const at = this.cursor === null ? this.length - 1 : this.cursor;
    this.moved(Math.min(this.length - 1, Math.max(0, at + by)));
  }

  show(series, length, seconds, cursor, label) {
    Object.assign(this, { series, length, seconds, cursor });
    this.element.setAttribute("aria-label", label);
    this.draw();
  }

  draw() {
    const width = this.element.clientWidth;
    if (!width) return;
    const stacked = this.stacked ? stack(this.series, this.length) : null;
    const tops = stacked ? stacked.slice(-1).map(s => s.to) : this.series.map(s => s.values);
    const ticks = steps(Math.max(0, ...tops.flat()));
    const max = ticks[ticks.length - 1];
    const x = i => plotLeft + i / (this.length - 1) * (width - plotLeft - plotRight);
    const y = v => plotTop + (1 - v / max) * (plotHeight - plotTop - plotBottom);
    const parts = this.axes(ticks, x, y, width);
    this.series.forEach((s, n) => {
      const d = runs(s.values).map(run => stacked ? area(stacked[n], run, x, y) : line(s.values, run, x, y)).join("");
      parts.push(svg("path", { d, class: (stacked ? "area" : "line") + " c-" + s.color, "data-series": s.name }));
    });
    if (this.cursor !== null) {
      parts.push(svg("line", { x1: x(this.cursor), x2: x(this.cursor), y1: plotTop, y2: y(0), class: "cursor" }));
    }
    this.element.replaceChildren(...parts);
    this.explain();
  }

  axes(ticks, x, y, width) {
    const parts = [];
    for (const v of ticks) {
      parts.push(svg("line", { x1: plotLeft, x2: width - plotRight, y1: y(v), y2: y(v), class: "grid" }));
      parts.push(svg("text", { x: plotLeft - 6, y: y(v) + 4, "text-anchor": "end" }, short(v)));
    }
    const minutes = Math.round(this.length * this.seconds / 60), every = width < 500 ? 5 : 2;
    for (let m = 0; m <= minutes; m += every) {
      const at = x(Math.max(0, this.length - 1 - m * 60 / this.seconds));
      const anchor = m === 0 ? "end" : m === minutes ? "start" : "middle";
      parts.push(svg("text", { x: at, y: plotHeight - 6, "text-anchor": anchor }, m === 0 ? "now" : m + " min ago"));
    }
    return parts;
  }

  // explain writes the legend, with the values under the cursor or the newest.
  explain() {
    const at = this.cursor === null ? this.length - 1 : this.cursor;
    const items = this.series.map(s => {
      const item = document.createElement("li"), swatch = document.createElement("i"), value = document.createElement("b");
      swatch.className = "c-" + s.color;
      value.textContent = s.values[at] === null ? "–" : figure(s.values[at]);
      item.append(swatch, s.name + " ", value, " /s");
      return item;
    });
    const when = document.createElement("li");
    const ago = (this.length - 1 - at) * this.seconds;
    when.textContent = this.series.length === 0 ? "none in the last ten minutes" :
      this.cursor === null ? "" : Math.floor(ago / 60) + " min " + Math.round(ago % 60) + " s ago";
    this.legend.replaceChildren(...items, when);
  }
}

function line(values, [from, to], x, y) {
  let d = "";
  for (let i = from; i < to; i++) d += (i === from ? "M" : "L") + x(i).toFixed(1) + " " + y(values[i]).toFixed(1);
  return to - from === 1 ? d + "h1" : d;
}

function area(layer, [from, to], x, y) {
  let there = "", back = "";
  for (let i = from; i < to; i++) {
    there += (i === from ? "M" : "L") + x(i).toFixed(1) + " " + y(layer.to[i]).toFixed(1);
    back = "L" + x(i).toFixed(1) + " " + y(layer.from[i]).toFixed(1) + back;
  }
  return there + back + "Z";
}
