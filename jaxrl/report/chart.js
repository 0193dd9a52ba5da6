"use strict";
// Lines with bands on axes that can be zoomed; the pointer shows the values.
const SPACE = document.getElementById("space").namespaceURI;

function draw(name, attributes = {}, children = []) {
  const element = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function make(name, attributes = {}, children = []) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

const shortened = (value, digits = 4) => {
  if (value === null || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e15)) return value.toExponential(digits - 1).replace(/\.?0+e/, "e");
  return String(size >= 10 ** digits ? Math.round(value) : Number(value.toPrecision(digits)));
};

const tickText = (value) => {
  const size = Math.abs(value);
  for (const [unit, sign] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= unit && (size >= 1e4 || size % 1000 === 0)) return `${Number((value / unit).toPrecision(6))}${sign}`;
  }
  return shortened(value, 6);
};

function linearTicks(low, high, most) {
  const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) {
    found.push(Number((k * step).toPrecision(12)));
  }
  return found;
}

function logTicks(low, high, most) {
  const from = Math.floor(Math.log10(low)), to = Math.ceil(Math.log10(high));
  const within = (factors, stride) => {
    const found = [];
    for (let power = from; power <= to; power += stride) found.push(...factors.map((factor) => factor * 10 ** power));
    return found.filter((value) => value >= low * 0.9999 && value <= high * 1.0001);
  };
  for (const [factors, stride] of [[[1, 2, 5], 1], [[1, 3], 1], [[1], 1], [[1], 2], [[1], 3], [[1], 6]]) {
    const found = within(factors, stride);
    if (found.length >= 2 && found.length <= most + 2) return found;
  }
  const plain = linearTicks(low, high, most).filter((value) => value > 0);
  return plain.length ? plain : [low, high];
}

class Scale {
  constructor([low, high], [start, end], log) {
    this.log = log;
    this.domain = [low, high];
    this.pass = log ? Math.log10 : (value) => value;
    const [a, b] = [this.pass(low), this.pass(high)];
    this.to = (value) => start + (this.pass(value) - a) / (b - a) * (end - start);
    this.from = (pixel) => {
      const value = a + (pixel - start) / (end - start) * (b - a);
      return log ? 10 ** value : value;
    };
  }

  ticks(most) {
    return this.log ? logTicks(...this.domain, most) : linearTicks(...this.domain, most);
  }
}

class Chart {
  // options: series() -> [{line, label, colour, dash, width, x, y, low, high}], xLabel(), yLabel(), logX(), logY(),
  // name(), yRange (null for that of the values), zoomed(bool), said(text)
  constructor(root, options) {
    this.root = root;
    this.options = options;
    this.view = null;
    this.at = null;
    this.svg = draw("svg", { role: "img" });
    this.tip = make("div", { class: "tip" });
    this.tip.hidden = true;
    root.append(this.svg, this.tip);
    this.clip = `clip-${root.id}`;
    this.listen();
    new ResizeObserver(() => this.draw()).observe(root);
  }

  listen() {
    const place = (event) => {
      const box = this.svg.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    this.svg.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || !this.x) return;
      this.start = place(event);
      this.svg.setPointerCapture(event.pointerId);
    });
    this.svg.addEventListener("pointermove", (event) => {
      const [left, top] = place(event);
      if (this.start) this.select(this.start, [left, top]);
      else this.point(left, top);
    });
    this.svg.addEventListener("pointerup", (event) => {
      if (!this.start) return;
      const [start, end] = [this.start, place(event)];
      this.start = null;
      this.zoomTo(start, end);
    });
    this.svg.addEventListener("pointercancel", () => { this.start = null; this.draw(); });
    this.svg.addEventListener("pointerleave", () => { if (!this.start) this.leave(); });
    this.svg.addEventListener("dblclick", () => this.reset());
    this.root.addEventListener("blur", () => this.leave());
    this.root.addEventListener("keydown", (event) => {
      const keys = { ArrowRight: () => this.step(1), ArrowLeft: () => this.step(-1), Escape: () => this.leave(),
                     "+": () => this.zoomBy(0.5), "=": () => this.zoomBy(0.5), "-": () => this.zoomBy(2),
                     "0": () => this.reset() };
      if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      keys[event.key]();
    });
  }

  shown() {
    const { logX, logY } = this.options;
    return this.options.series().map((series) => {
      const usable = (i) => series.y[i] !== null && (!logY() || series.y[i] > 0) && (!logX() || series.x[i] > 0);
      return { ...series, points: [...series.x.keys()].filter(usable) };
    }).filter((series) => series.points.length);
  }

  extent() {
    const { logX, logY, yRange } = this.options;
    let [left, right, low, high] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const { points, x, y, low: lows, high: highs } of this.drawn) {
      for (const i of points) {
        left = Math.min(left, x[i]);
        right = Math.max(right, x[i]);
        for (const value of [y[i], lows[i], highs[i]]) {
          if (value === null || (logY() && value <= 0)) continue;
          low = Math.min(low, value);
          high = Math.max(high, value);
        }
      }
    }
    if (left > right) return null;
    const widened = (a, b, log, share) => {
      if (log) {
        const factor = a === b ? 2 : (b / a) ** share;
        return [a / factor, b * factor];
      }
      const margin = a === b ? Math.abs(a) * 0.05 || 1 : (b - a) * share;
      return [a - margin, b + margin];
    };
    return { x: widened(left, right, logX(), left === right ? 0.5 : 0),
             y: yRange && !logY() ? yRange : widened(low, high, logY(), 0.04) };
  }

  draw() {
    const width = this.root.clientWidth;
    if (!width) return;
    const height = Math.round(Math.max(240, Math.min(430, width * 0.5)));
    this.drawn = this.shown();
    const extent = this.view || this.extent();
    this.svg.replaceChildren();
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.setAttribute("height", height);
    this.svg.setAttribute("aria-label", this.options.name());
    this.root.setAttribute("aria-label", this.options.name());
    this.options.zoomed(this.view !== null);
    if (!extent) {
      this.x = null;
      this.svg.append(draw("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, [this.options.empty()]));
      return;
    }
    this.box = { left: 68, right: width - 14, top: 10, bottom: height - 46 };
    const { left, right, top, bottom } = this.box;
    this.x = new Scale(extent.x, [left, right], this.options.logX());
    this.y = new Scale(extent.y, [bottom, top], this.options.logY());
    this.drawAxes(width, height);
    this.svg.append(draw("clipPath", { id: this.clip }, [
      draw("rect", { x: left, y: top, width: right - left, height: bottom - top }),
    ]));
    const inside = draw("g", { "clip-path": `url(#${this.clip})` });
    for (const series of this.drawn) inside.append(this.curve(series));
    this.over = draw("g", { "clip-path": `url(#${this.clip})` });
    this.svg.append(inside, this.over);
  }

  drawAxes(width, height) {
    const { left, right, top, bottom } = this.box;
    for (const value of this.x.ticks(Math.max(3, Math.min(8, width / 110)))) {
      const at = this.x.to(value);
      this.svg.append(draw("line", { class: "grid", x1: at, x2: at, y1: top, y2: bottom }),
        draw("text", { x: at, y: bottom + 18, "text-anchor": "middle" }, [tickText(value)]));
    }
    for (const value of this.y.ticks(6)) {
      const at = this.y.to(value);
      this.svg.append(draw("line", { class: "grid", x1: left, x2: right, y1: at, y2: at }),
        draw("text", { x: left - 7, y: at + 4, "text-anchor": "end" }, [tickText(value)]));
    }
    this.svg.append(draw("path", { class: "axis", fill: "none", d: `M${left},${top}V${bottom}H${right}` }),
      draw("text", { x: (left + right) / 2, y: height - 8, "text-anchor": "middle" }, [this.options.xLabel()]),
      draw("text", { transform: `translate(14,${(top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle" },
        [this.options.yLabel()]));
  }

  curve({ line, label, colour, dash, width, points, x, y, low, high }) {
    const group = draw("g", { "data-line": line, style: `color:${colour}` }, [draw("title", {}, [label])]);
    const least = this.y.from(this.box.bottom + 1000), spot = (i, values) =>
      `${this.x.to(x[i]).toFixed(1)},${this.y.to(this.y.log ? Math.max(values[i], least) : values[i]).toFixed(1)}`;
    const parts = [];
    for (const i of points) {
      const last = parts[parts.length - 1];
      if (last && last[last.length - 1] === i - 1) last.push(i);
      else parts.push([i]);
    }
    for (const part of parts) {
      const banded = part.filter((i) => low[i] !== null && high[i] !== null && (!this.y.log || high[i] > 0));
      if (part.length === 1) {
        const [i] = part;
        group.append(draw("circle", { cx: this.x.to(x[i]), cy: this.y.to(y[i]), r: 3.5, fill: "currentColor" }));
        if (banded.length) {
          group.append(draw("path", { stroke: "currentColor", d: `M${spot(i, low)}L${spot(i, high)}` }));
        }
        continue;
      }
      if (banded.length > 1) {
        const edge = [...banded.map((i) => spot(i, high)), ...banded.reverse().map((i) => spot(i, low))];
        group.append(draw("path", { class: "band", fill: "currentColor", d: `M${edge.join("L")}Z`,
          "fill-opacity": this.drawn.length > 4 ? 0.09 : 0.17 }));
      }
      group.append(draw("path", { class: "line", fill: "none", stroke: "currentColor", "stroke-width": width,
        "stroke-dasharray": dash, "stroke-linejoin": "round", d: `M${part.map((i) => spot(i, y)).join("L")}` }));
    }
    return group;
  }

  point(left, top) {
    if (!this.x) return;
    const nearest = ({ points, x }) => points.reduce((best, i) =>
      Math.abs(this.x.to(x[i]) - left) < Math.abs(this.x.to(x[best]) - left) ? i : best);
    let found = this.drawn.map((series) => ({ series, i: nearest(series) }));
    if (!found.length) return;
    const apart = ({ series, i }) => Math.abs(this.y.to(series.y[i]) - top);
    const closest = found.reduce((best, one) =>
      Math.abs(this.x.to(one.series.x[one.i]) - left) < Math.abs(this.x.to(best.series.x[best.i]) - left) ? one : best);
    const value = closest.series.x[closest.i], middle = this.x.to(value);
    this.at = value;
    found.sort((a, b) => apart(a) - apart(b));
    const more = found.length - 12;
    found = found.slice(0, 12);
    found.sort((a, b) => b.series.y[b.i] - a.series.y[a.i]);
    const { top: y1, bottom: y2 } = this.box;
    this.over.replaceChildren(draw("line", { class: "cursor", x1: middle, x2: middle, y1, y2 }));
    const rows = found.map(({ series, i }) => {
      const [cx, cy] = [this.x.to(series.x[i]), this.y.to(series.y[i])];
      this.over.append(draw("circle", { cx, cy, r: 4, fill: series.colour }));
      const dot = make("i");
      dot.style.background = series.colour;
      const here = series.x[i] === value ? "" : ` at ${tickText(series.x[i])}`;
      return make("div", {}, [dot, make("span", {}, [`${series.label}: ${this.text(series, i)}${here}`])]);
    });
    const number = Number.isInteger(value) ? value.toLocaleString("en") : shortened(value, 5);
    const head = make("strong", {}, [`${number} ${this.options.xUnit()}`]);
    this.tip.replaceChildren(head, ...rows, ...(more > 0 ? [make("div", {}, [`and ${more} more`])] : []));
    this.tip.hidden = false;
    const wide = this.tip.offsetWidth, space = this.root.clientWidth - wide - 4;
    const beside = middle + 14 > space ? Math.min(space, middle - wide - 14) : middle + 14;
    this.tip.style.left = `${Math.max(0, beside)}px`;
    this.tip.style.top = `${Math.max(0, Math.min(top + 12, this.box.bottom - this.tip.offsetHeight))}px`;
  }

  text({ y, low, high }, i) {
    const interval = low[i] === null ? "" : ` [${shortened(low[i])}, ${shortened(high[i])}]`;
    return `${shortened(y[i])}${interval}`;
  }

  step(by) {
    const values = [...new Set(this.drawn.flatMap(({ points, x }) => points.map((i) => x[i])))].sort((a, b) => a - b);
    if (!this.x || !values.length) return;
    const next = by > 0 ? values.find((value) => this.at === null || value > this.at)
      : values.reverse().find((value) => this.at === null || value < this.at);
    if (next === undefined) return;
    this.point(this.x.to(next), this.box.top);
    this.options.said(this.tip.innerText.replace(/\n/g, "; "));
  }

  leave() {
    this.at = null;
    this.tip.hidden = true;
    if (this.over) this.over.replaceChildren();
  }

  select([fromX, fromY], [toX, toY]) {
    const { left, right, top, bottom } = this.box;
    const flat = Math.abs(toY - fromY) < 12, held = (value, a, b) => Math.min(Math.max(value, a), b);
    const [x1, x2] = [fromX, toX].map((value) => held(value, left, right)).sort((a, b) => a - b);
    const [y1, y2] = flat ? [top, bottom] : [fromY, toY].map((value) => held(value, top, bottom)).sort((a, b) => a - b);
    this.tip.hidden = true;
    this.over.replaceChildren(draw("rect", { class: "selection", x: x1, y: y1, width: x2 - x1, height: y2 - y1 }));
    return [x1, x2, y1, y2];
  }

  zoomTo(start, end) {
    if (Math.abs(end[0] - start[0]) < 8) return this.draw();
    const [x1, x2, y1, y2] = this.select(start, end);
    this.view = { x: [this.x.from(x1), this.x.from(x2)], y: [this.y.from(y2), this.y.from(y1)] };
    this.leave();
    this.draw();
  }

  zoomBy(factor) {
    if (!this.x) return;
    const about = (scale, at) => {
      const [low, high] = scale.domain.map(scale.pass), middle = scale.pass(at);
      return [low, high].map((edge) => middle + (edge - middle) * factor).map((edge) => scale.log ? 10 ** edge : edge);
    };
    const { left, right, top, bottom } = this.box;
    const centre = this.at === null ? this.x.from((left + right) / 2) : this.at;
    this.view = { x: about(this.x, centre), y: about(this.y, this.y.from((top + bottom) / 2)) };
    this.leave();
    this.draw();
  }

  reset() {
    this.view = null;
    this.leave();
    this.draw();
  }
}
