// The map: visit counts, the path of the episode, attention to past moves, the model with its next action, the goal.

import { MOVES } from "./room.mjs";

const UNIT = 10; // length of a cell's side in the drawing
const MOST_RINGS = 12;

/** A new SVG element below `parent`. */
export function draw(parent, tag, attributes = {}) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return parent.appendChild(element);
}

/** Centre of a cell, in cells times `unit`. */
export function centre(size, cell, unit) {
  return [((cell % size) + 0.5) * unit, (Math.floor(cell / size) + 0.5) * unit];
}

export class RoomMap {
  /** Calls `place(cell)` when somebody puts the goal on a cell, and `point(cell)` where the cursor is (null: nowhere). */
  constructor(element, room, { place, point }) {
    const { size, start } = room;
    Object.assign(this, { element, size, place, point, cursor: Math.floor(size / 2) * size, isDragging: false });
    const side = size * UNIT;
    this.svg = draw(element, "svg", { viewBox: `-1 -1 ${side + 2} ${side + 2}`, "aria-hidden": "true" });
    const cells = draw(this.svg, "g");
    this.visits = Array.from({ length: size * size }, (_, cell) => {
      const box = { x: (cell % size) * UNIT + 0.35, y: Math.floor(cell / size) * UNIT + 0.35, width: 9.3, height: 9.3 };
      draw(cells, "rect", { ...box, rx: 1.3, class: "cell" });
      return draw(cells, "rect", { ...box, rx: 1.3, class: "visit", opacity: 0 });
    });
    if (start !== null) {
      const [x, y] = centre(size, start, UNIT);
      draw(this.svg, "circle", { cx: x, cy: y, r: 1.1, class: "start" });
    }
    this.path = draw(this.svg, "polyline", { class: "path" });
    this.rings = draw(this.svg, "g", { class: "rings" });
    this.ghost = draw(this.svg, "path", { d: star(3.3), class: "ghost" });
    this.star = draw(this.svg, "path", { d: star(3.6), class: "goal" });
    this.agent = draw(this.svg, "g", { class: "agent" });
    this.arrows = MOVES.map(([row, column], action) => {
      const turn = (Math.atan2(row, column) * 180) / Math.PI;
      return action ? draw(this.agent, "path", { class: "arrow", transform: `rotate(${turn})` }) : null;
    });
    this.stay = draw(this.agent, "circle", { r: 3.2, class: "stay" });
    draw(this.agent, "circle", { r: 2.3, class: "body" });
    const frame = { width: 9.3, height: 9.3, rx: 1.3, class: "cursor", visibility: "hidden" };
    this.frame = draw(this.svg, "rect", frame);
    this.listen();
  }

  listen() {
    const { element } = this;
    const cellOf = (event) => {
      const box = this.svg.getBoundingClientRect();
      const at = (offset, length) => Math.floor(((offset / length) * (this.size * UNIT + 2) - 1) / UNIT);
      const row = at(event.clientY - box.top, box.height);
      const column = at(event.clientX - box.left, box.width);
      return row >= 0 && row < this.size && column >= 0 && column < this.size ? row * this.size + column : null;
    };
    this.svg.addEventListener("pointerdown", (event) => {
      const cell = cellOf(event);
      if (cell === null || event.button) return;
      this.isDragging = true;
      this.svg.setPointerCapture(event.pointerId);
      this.show(cell);
    });
    this.svg.addEventListener("pointermove", (event) => {
      const cell = cellOf(event);
      if (cell !== null) this.show(cell);
    });
    this.svg.addEventListener("pointerup", (event) => {
      const cell = cellOf(event);
      if (this.isDragging && cell !== null) this.place(cell);
      this.isDragging = false;
    });
    this.svg.addEventListener("pointercancel", () => (this.isDragging = false));
    element.addEventListener("pointerleave", () => this.show(null));
    element.addEventListener("blur", () => this.show(null));
    element.addEventListener("focus", () => element.matches(":focus-visible") && this.show(this.cursor));
    element.addEventListener("keydown", (event) => {
      const action = ["ArrowUp", "ArrowRight", "ArrowDown", "ArrowLeft"].indexOf(event.key);
      if (action >= 0) {
        const [row, column] = MOVES[action + 1];
        const clip = (x) => Math.min(Math.max(x, 0), this.size - 1);
        const next = clip(Math.floor(this.cursor / this.size) + row) * this.size + clip((this.cursor % this.size) + column);
        this.show(next);
      } else if (event.key === "Enter") this.place(this.cursor);
      else return;
      event.preventDefault();
    });
  }

  /** Show the cursor on a cell, or hide it. */
  show(cell) {
    this.frame.setAttribute("visibility", cell === null ? "hidden" : "visible");
    if (cell !== null) {
      this.cursor = cell;
      this.frame.setAttribute("x", (cell % this.size) * UNIT + 0.35);
      this.frame.setAttribute("y", Math.floor(cell / this.size) * UNIT + 0.35);
    }
    this.point(cell);
  }

  /** Draw a moment: counts of visits, cells of the path, `[cell, weight]` of attention, action chances or null. */
  render({ visits, path, looks, chances, cell, goal, ghost, isFound }) {
    const most = Math.max(...visits, 1);
    visits.forEach((count, i) => this.visits[i].setAttribute("opacity", Math.sqrt(count / most).toFixed(3)));
    const at = (here) => centre(this.size, here, UNIT);
    this.path.setAttribute("points", path.map((here) => at(here).join(",")).join(" "));
    this.rings.replaceChildren();
    for (const [here, weight] of looks.slice(0, MOST_RINGS)) {
      const [cx, cy] = at(here);
      const width = 0.4 + 1.8 * Math.sqrt(weight);
      draw(this.rings, "circle", { cx, cy, r: 4.3 - width / 2, "stroke-width": width, opacity: 0.35 + 0.65 * weight });
    }
    this.star.setAttribute("transform", `translate(${at(goal)})`);
    this.star.classList.toggle("found", isFound);
    this.ghost.setAttribute("visibility", ghost === null ? "hidden" : "visible");
    if (ghost !== null) this.ghost.setAttribute("transform", `translate(${at(ghost)})`);
    const [x, y] = at(cell);
    this.agent.style.transform = `translate(${x}px, ${y}px)`;
    this.arrows.forEach((arrow, action) => arrow?.setAttribute("d", petal(chances ? chances[action] : 0)));
    this.stay.setAttribute("stroke-width", chances ? (2.4 * chances[0]).toFixed(3) : 0);
  }
}

/** A pointer to the right whose length is a probability. */
function petal(chance) {
  if (chance < 0.005) return "";
  const length = 6.2 * chance;
  return `M2.7,-1.7 L${3.2 + length},0 L2.7,1.7 Z`;
}

/** A star of five points. */
export function star(radius) {
  const points = Array.from({ length: 10 }, (_, i) => {
    const angle = (i * Math.PI) / 5 - Math.PI / 2;
    const length = i % 2 ? radius * 0.45 : radius;
    return `${(length * Math.cos(angle)).toFixed(2)},${(length * Math.sin(angle)).toFixed(2)}`;
  });
  return `M${points.join("L")}Z`;
}
