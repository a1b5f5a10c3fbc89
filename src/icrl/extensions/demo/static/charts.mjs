// The adaptation curve with its references, the memory of the model, and a small map of each episode.

import { centre, draw, star } from "./map.mjs";

const WIDTH = 520;
const HEIGHT = 316;
const MARGIN = { left: 44, right: 12, top: 30, bottom: 50 };
const LEAST_EPISODES = 20; // on the axis
const MOST_ROWS = 4; // of names of events

export class Curve {
  /** `measure`: key, unit, most, and whether less is better, which stands at the top. Calls `pick(episode)`. */
  constructor(element, measure, pick) {
    this.measure = measure;
    this.svg = draw(element, "svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", class: "curve" });
    this.pick = pick;
  }

  y(value) {
    const { most, lessIsBetter } = this.measure;
    const share = lessIsBetter ? value / most : 1 - value / most;
    return MARGIN.top + share * (HEIGHT - MARGIN.top - MARGIN.bottom);
  }

  x(number, count) {
    return MARGIN.left + ((number + 0.5) / count) * (WIDTH - MARGIN.left - MARGIN.right);
  }

  /** Draw lines `{name, values}`, the model's own `values` with `found` or not, and events at episodes. */
  render({ lines, values, found, events, current, label }) {
    const { svg, measure } = this;
    const count = Math.max(LEAST_EPISODES, Math.ceil(values.length / 10) * 10);
    svg.replaceChildren();
    svg.setAttribute("aria-label", label);
    const stride = measure.most > 10 ? Math.ceil(measure.most / 4 / 5) * 5 : Math.ceil(measure.most / 4);
    for (let value = 0; value <= measure.most; value += stride) {
      draw(svg, "line", { x1: MARGIN.left, x2: WIDTH - MARGIN.right, y1: this.y(value), y2: this.y(value), class: "grid" });
      draw(svg, "text", { x: MARGIN.left - 8, y: this.y(value) + 4, class: "tick end" }).textContent = value;
    }
    for (let number = 0; number < count; number++) {
      if (number && (number + 1) % (count > 100 ? 20 : count > 40 ? 10 : 5)) continue;
      draw(svg, "text", { x: this.x(number, count), y: HEIGHT - MARGIN.bottom + 21, class: "tick middle" }).textContent =
        number + 1;
    }
    const titles = [
      [WIDTH - MARGIN.right, HEIGHT - 6, "episode", "end"],
      [MARGIN.left, 18, measure.title, "begin"],
    ];
    for (const [x, y, text, anchor] of titles) draw(svg, "text", { x, y, class: `title ${anchor}` }).textContent = text;
    if (current >= 0 && current < count) {
      const width = (WIDTH - MARGIN.left - MARGIN.right) / count;
      const box = { x: this.x(current, count) - width / 2, y: MARGIN.top, width, height: HEIGHT - MARGIN.top - MARGIN.bottom };
      draw(svg, "rect", { ...box, class: "now" });
    }
    for (const { name, values: line } of lines) this.line(name, line.slice(0, count), count);
    this.line("model", values, count);
    this.events(events, count);
    values.forEach((value, number) => {
      const point = { cx: this.x(number, count), cy: this.y(value), r: 4, class: found[number] ? "dot found" : "dot" };
      draw(svg, "circle", point).addEventListener("click", () => this.pick(number));
    });
  }

  /** Lines at episodes, with names that keep off each other: each in the first row with room for it, if there is one. */
  events(events, count) {
    const texts = new Map();
    for (const { episode, text } of events) texts.set(episode, new Set(texts.get(episode)).add(text));
    const ends = new Array(MOST_ROWS).fill(-Infinity);
    for (const [episode, names] of texts) {
      const at = this.x(Math.min(episode, count - 1), count);
      draw(this.svg, "line", { x1: at, x2: at, y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom, class: "event" });
      const name = draw(this.svg, "text", { class: "eventname middle" });
      name.textContent = [...names].join(", ");
      const { width, height } = name.getBBox();
      const x = Math.max(Math.min(at, WIDTH - width / 2), MARGIN.left + width / 2);
      const row = ends.findIndex((end) => end < x - width / 2);
      if (row < 0) {
        name.remove();
        continue;
      }
      ends[row] = x + width / 2 + 6;
      name.setAttribute("x", x);
      name.setAttribute("y", MARGIN.top + 12 + row * (height + 2));
    }
  }

  /** Draw a line through the episodes, if there are two or more. */
  line(name, values, count) {
    const points = values.map((value, number) => `${this.x(number, count)},${this.y(value)}`);
    if (points.length > 1) draw(this.svg, "polyline", { points: points.join(" "), class: `series ${name}` });
  }
}

export class Memory {
  /** A bar for each step that the context can hold. Calls `point(cell)` for the step below the pointer. */
  constructor(element, length, point) {
    this.length = length;
    this.svg = draw(element, "svg", { viewBox: `0 0 ${length} 30`, preserveAspectRatio: "none", role: "img" });
    this.cells = [];
    const over = (event) => {
      const box = this.svg.getBoundingClientRect();
      point(this.cells[Math.floor(((event.clientX - box.left) / box.width) * length)] ?? null);
    };
    this.svg.addEventListener("pointermove", over);
    this.svg.addEventListener("pointerleave", () => point(null));
  }

  /** Draw the `steps` of `Context.shown` with the attention `weights` of each. */
  render(steps, weights, label) {
    const { svg, length } = this;
    this.cells = steps.map((step) => step.cell);
    svg.replaceChildren();
    svg.setAttribute("aria-label", label);
    draw(svg, "rect", { width: length, height: 30, class: "track" });
    const most = Math.max(...weights, 1e-9);
    steps.forEach((step, i) => {
      const foreign = step.episode < 0 ? " foreign" : "";
      draw(svg, "rect", { x: i, y: 26, width: 0.86, height: 4, class: `base${step.rewarded ? " rewarded" : foreign}` });
      const height = 24 * Math.sqrt((weights[i] ?? 0) / most);
      draw(svg, "rect", { x: i, y: 25 - height, width: 0.86, height, class: `weight${step.rewarded ? " rewarded" : ""}` });
      if (i && step.episode !== steps[i - 1].episode) draw(svg, "rect", { x: i - 0.1, width: 0.2, height: 30, class: "cut" });
    });
  }
}

export class Film {
  /** A button for each episode. Calls `pick(episode)`. */
  constructor(element, room, pick) {
    Object.assign(this, { element, room, pick, tiles: [], current: -1 });
  }

  clear() {
    this.tiles = [];
    this.element.replaceChildren();
  }

  /** Add a tile for a finished episode: its `path` of cells, and what it came to in a `caption`. */
  add({ number, goal, success }, path, caption) {
    const { size } = this.room;
    const item = this.element.appendChild(document.createElement("li"));
    const button = item.appendChild(document.createElement("button"));
    button.type = "button";
    button.setAttribute("aria-label", `Show episode ${number + 1}: ${caption}`);
    button.addEventListener("click", () => this.pick(number));
    const svg = draw(button, "svg", { viewBox: `0 0 ${size * 4} ${size * 4}`, "aria-hidden": "true" });
    draw(svg, "rect", { width: size * 4, height: size * 4, rx: 1.5, class: "cell" });
    draw(svg, "polyline", { points: path.map((cell) => centre(size, cell, 4).join(",")).join(" "), class: "path" });
    draw(svg, "path", { d: star(2.6), transform: `translate(${centre(size, goal, 4)})`, class: success ? "goal" : "ghost" });
    const text = button.appendChild(document.createElement("span"));
    text.innerHTML = `<b>${number + 1}</b>${caption}`;
    const bar = button.appendChild(document.createElement("i"));
    this.tiles.push({ button, bar });
    this.element.scrollLeft = this.element.scrollWidth;
  }

  /** Mark the present episode, and show how much attention goes to each. */
  render(current, shares) {
    this.tiles.forEach(({ button, bar }, number) => {
      bar.style.width = `${Math.round(100 * (shares[number] ?? 0))}%`;
      if (number === current) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
    });
  }
}
