// The page: what is shown at a moment of a life, and what one can do to it.

import { ACTIONS } from "./room.mjs";
import { Network } from "./network.mjs";
import { Life, probabilities, randomNumbers } from "./life.mjs";
import { RoomMap } from "./map.mjs";
import { Curve, Film, Memory } from "./charts.mjs";

const SPEEDS = [1, 2, 4, 8, 16, 32, Infinity]; // steps per second
const MOST_EPISODES = 200;
const ARROWS = ["•", "↑", "→", "↓", "←"];
const TRIES = [ // what to do once it walks straight, and the event that shows that it was done
  ["goal moved", "Now click on another cell: the goal moves there."],
  ["blank", "Now blank the rewards: does it still know the way?"],
  ["swapped", "Now swap its past for that of another life."],
];
const STRAIGHT = 3; // walks in a row, after which the page says what to try
const prefersStill = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
const $ = (name) => document.getElementById(name);

/** Bytes of base64 text, unpacked if they are a gzip file. */
export async function unpacked(text) {
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

export class Page {
  constructor(checkpoint, network) {
    Object.assign(this, { checkpoint, network, place: 0, isPlaying: false, seed: 1, said: "", jobs: Promise.resolve() });
    const { room, measure, context } = checkpoint;
    this.map = new RoomMap($("map"), room, {
      place: (cell) => this.moveGoal(cell),
      point: (cell) => this.describe(cell),
    });
    this.curve = new Curve($("curve"), measure, (number) => this.showEpisode(number));
    this.memory = new Memory($("memory"), context.length, (cell) => this.map.show(cell));
    this.film = new Film($("film"), room, (number) => this.showEpisode(number));
    this.fillTexts();
    this.listen();
  }

  fillTexts() {
    const { about, room, goals, network, policy, references } = this.checkpoint;
    const [many, learned, heldOut] = [room.size ** 2 - (room.start === null ? 0 : 1), goals.train.length, goals.held_out.length];
    const others = many - learned - heldOut;
    $("facts").textContent =
      `${about.parameters.toLocaleString("en")} weights, all frozen. The memory holds ${this.checkpoint.context.length} ` +
      `steps. Of the ${many} goals in this ${room.size} × ${room.size} room, it was trained on ${learned}, and ${heldOut} were held ` +
      `out to test it.${others > 0 ? ` It was never trained on the other ${others} either.` : ""}`;
    $("name").textContent = `${about.name}, update ${about.step.toLocaleString("en")}`;
    const ends = room.terminates ? `at the goal, or after ${room.max_steps} steps` : `after ${room.max_steps} steps`;
    const starts = room.start === null ? "on a random cell" : "at the same place";
    $("rules").textContent = `An episode ends ${ends}. The next one starts ${starts}, with the memory kept.`;
    $("temperature").value = policy.temperature;
    $("temperaturetext").textContent = policy.temperature.toFixed(2);
    if (network.layers) {
      for (let layer = 0; layer < network.layers; layer++) {
        for (let head = 0; head < network.heads; head++) {
          $("head").add(new Option(`layer ${layer + 1}, head ${head + 1}`, layer * network.heads + head));
        }
      }
    } else document.querySelectorAll(".attention").forEach((part) => (part.hidden = true));
    for (const name of ["source", "average"]) {
      if (references[name]) document.querySelector(`#legend .${name} span`).textContent = references[name].label;
    }
    $("scaled").hidden = !(references.source || references.average);
    $("chances").append(
      ...ACTIONS.map((action, i) => {
        const row = document.createElement("li");
        row.innerHTML = `<span>${ARROWS[i]} ${action}</span><span class="bar"><i></i></span><output></output>`;
        return row;
      }),
    );
  }

  listen() {
    $("play").addEventListener("click", () => this.setPlaying(!this.isPlaying));
    $("step").addEventListener("click", () => this.once(() => this.advance()));
    $("back").addEventListener("click", () => this.once(() => this.show(Math.max(this.place - 1, 0))));
    $("newest").addEventListener("click", () => this.once(() => this.show(this.life.frames.length - 1)));
    $("scrub").addEventListener("input", () => this.once(() => this.show(Number($("scrub").value))));
    $("speed").addEventListener("input", () => this.showSpeed());
    $("newgoal").addEventListener("click", () => this.begin(this.heldOutGoal()));
    $("restart").addEventListener("click", () => this.begin(this.life.goal));
    $("blank").addEventListener("change", () => this.setBlank($("blank").checked));
    $("forget").addEventListener("click", () => this.forget());
    $("swap").addEventListener("click", () => this.swapPast());
    $("temperature").addEventListener("input", () => this.setTemperature(Number($("temperature").value)));
    $("head").addEventListener("change", () => this.render());
    $("try-search").addEventListener("click", () => this.tryIt(() => this.begin(this.heldOutGoal())));
    $("try-move").addEventListener("click", () => this.tryIt(() => this.moveGoal(this.heldOutGoal())));
    $("try-blank").addEventListener("click", () => this.tryIt(() => this.setBlank(true)));
    document.addEventListener("keydown", (event) => {
      if (event.key === " " && !event.target.closest("button, input, select, summary, a")) {
        event.preventDefault();
        this.setPlaying(!this.isPlaying);
      }
    });
    this.showSpeed();
  }

  /** Run `work` after all that was asked for before. */
  queue(work) {
    this.jobs = this.jobs.then(work).catch((error) => this.fail(error));
    return this.jobs;
  }

  /** Pause, then run `work`. */
  once(work) {
    this.setPlaying(false);
    return this.queue(work);
  }

  fail(error) {
    this.setPlaying(false);
    this.say(`The page has failed: ${error.message}. Load it again.`);
    console.error(error);
  }

  /** Start a life with an empty context. */
  begin(goal) {
    return this.queue(async () => {
      const random = randomNumbers(this.seed++);
      $("blank").checked = false;
      this.events = [];
      this.film.clear();
      this.life = new Life(this.checkpoint, this.network, { goal, random, temperature: this.temperature });
      await this.life.start();
      this.show(0);
      const known = this.checkpoint.goals.train.includes(goal) ? "a training goal" : "a goal it was never trained on";
      this.say(`A new life: empty memory, ${known}.`);
    });
  }

  get temperature() {
    return Number($("temperature").value);
  }

  /** A goal that was held out from training, other than the present one if there is another, and far from it. */
  heldOutGoal() {
    const { size } = this.checkpoint.room;
    const now = this.life?.goal;
    const far = (cell) => now === undefined || Math.abs((cell % size) - (now % size)) + Math.abs(cell - now) / size > size / 2;
    const others = this.checkpoint.goals.held_out.filter((cell) => cell !== now);
    const fitting = others.filter(far);
    const from = [fitting, others, [now]].find(({ length }) => length);
    return from[Math.floor(Math.random() * from.length)];
  }

  /** Show the next frame, which is played first if it is not there yet. */
  async advance() {
    const { life } = this;
    if (this.place === life.frames.length - 1) {
      if (life.episodes.length >= MOST_EPISODES) {
        this.setPlaying(false);
        return this.say(`This life has ${MOST_EPISODES} episodes. Start a new one to go on.`);
      }
      const before = life.episodes.length;
      await life.step();
      if (life.episodes.length > before) this.addTile(life.episodes[before]);
    }
    this.show(this.place + 1);
  }

  addTile(episode) {
    const path = this.pathTo(episode.last);
    const found = this.checkpoint.room.terminates ? `${episode.stepsToGoal} steps` : `reward ${episode.return}`;
    const caption = episode.success ? found : "not found";
    this.film.add(episode, path, caption);
    const latest = this.life.episodes.slice(this.events.at(-1)?.episode ?? 0).slice(-STRAIGHT);
    if (latest.length === STRAIGHT && latest.every(({ straight }) => straight)) {
      const next = TRIES.find(([event]) => !this.events.some(({ text }) => text === event));
      this.say(`Three straight walks. ${next?.[1] ?? "Now start a new life with a new goal."}`, true);
    } else if (this.speed <= 8) {
      const what = episode.success ? `the goal was found after ${episode.stepsToGoal} steps` : "the goal was not found";
      this.say(`Episode ${episode.number + 1}: ${what}.`);
    }
  }

  setPlaying(isPlaying) {
    if (isPlaying === this.isPlaying) return;
    this.isPlaying = isPlaying;
    $("play").classList.toggle("playing", isPlaying);
    $("play").querySelector("span").textContent = isPlaying ? "Pause" : "Play";
    if (isPlaying) this.tick();
  }

  get speed() {
    return SPEEDS[$("speed").value];
  }

  showSpeed() {
    const text = this.speed === Infinity ? "as fast as possible" : `${this.speed} steps per second`;
    $("speedtext").textContent = text;
    $("speed").setAttribute("aria-valuetext", text);
    document.body.classList.toggle("fast", this.speed > 8);
  }

  /** Play: a step at a time, or as many as fit between two pictures. */
  async tick() {
    while (this.isPlaying) {
      const start = performance.now();
      await this.queue(async () => {
        do if (this.isPlaying) await this.advance();
        while (this.speed === Infinity && this.isPlaying && performance.now() - start < 25);
      });
      const rest = Math.max(0, 1000 / this.speed - (performance.now() - start));
      await new Promise((resolve) => setTimeout(resolve, rest));
    }
  }

  show(place) {
    this.place = place;
    if (!this.isDue) {
      this.isDue = true;
      requestAnimationFrame(() => {
        this.isDue = false;
        this.render();
      });
    }
  }

  showEpisode(number) {
    this.once(() => this.show(this.life.episodes[number].last));
  }

  /** Do something to the model at the newest frame. */
  intervene(work, text) {
    return this.queue(async () => {
      await work();
      if (text) this.events.push({ episode: this.life.room.episode, text });
      this.show(this.life.frames.length - 1);
    });
  }

  moveGoal(cell) {
    const { start, size } = this.checkpoint.room;
    if (cell === start) return this.say("The goal cannot be where every episode starts.");
    if (cell === this.life.goal) return undefined;
    return this.intervene(() => {
      this.life.moveGoal(cell);
      this.say(`The goal is now in row ${Math.floor(cell / size) + 1}, column ${(cell % size) + 1}. The model is not told.`);
    }, "goal moved");
  }

  setBlank(isBlank) {
    $("blank").checked = isBlank;
    return this.intervene(async () => {
      await this.life.setBlank(isBlank);
      this.say(isBlank ? "The model now reads every reward as 0." : "The model reads the rewards again.");
    }, isBlank ? "blank" : "rewards");
  }

  forget() {
    return this.intervene(async () => {
      await this.life.forget();
      this.say("All before this episode is forgotten.");
    }, "forgot");
  }

  swapPast() {
    return this.intervene(async () => {
      this.say("Another life is lived first …");
      const goal = this.heldOutGoal();
      await this.life.swapPast(goal);
      this.say("Its memory is now that of a life with the goal at the dashed star.");
    }, "swapped");
  }

  setTemperature(temperature) {
    $("temperaturetext").textContent = temperature === 0 ? "0: always the most probable action" : temperature.toFixed(2);
    this.queue(() => {
      this.life.temperature = temperature;
      this.show(this.place);
    });
  }

  async tryIt(work) {
    await work();
    $("stage").scrollIntoView({ block: "start", behavior: prefersStill() ? "auto" : "smooth" });
    this.setPlaying(true);
  }

  /** Show a text below the map; a hint stands out. */
  say(text, isHint = false) {
    this.said = text;
    $("status").textContent = text;
    $("status").classList.toggle("hint", isHint);
  }

  /** Say what is known of the cell below the cursor; null: say again what was said last. */
  describe(cell) {
    if (cell === null || !this.life) {
      $("status").textContent = this.said;
      return;
    }
    const { goals, room } = this.checkpoint;
    const times = this.visits(this.place)[cell];
    const known = goals.train.includes(cell) ? "a training goal" : "never a training goal";
    const where = `Row ${Math.floor(cell / room.size) + 1}, column ${(cell % room.size) + 1}`;
    $("status").textContent = `${where}: ${times} ${times === 1 ? "visit" : "visits"}, ${known}.`;
  }

  /** How often each cell was visited up to a frame. */
  visits(place) {
    const counts = new Array(this.checkpoint.room.size ** 2).fill(0);
    for (let i = 0; i <= place; i++) counts[this.life.frames[i].cell] += 1;
    return counts;
  }

  /** Cells of the episode of a frame, up to it. */
  pathTo(place) {
    const { frames } = this.life;
    const { episode } = frames[place];
    let first = place;
    while (first && frames[first - 1].episode === episode) first -= 1;
    return frames.slice(first, place + 1).map((frame) => frame.cell);
  }

  /** Weight of each step of the context at a frame: of one head, or the mean of all. */
  weights({ attention, context }) {
    if (!attention) return context.map(() => 0);
    const { layers, heads } = this.checkpoint.network;
    const length = context.length;
    const chosen = $("head").value;
    const each = chosen === "mean" ? Array.from({ length: layers * heads }, (_, i) => i) : [Number(chosen)];
    return context.map((_, j) => each.reduce((sum, i) => sum + attention[i * length + j], 0) / each.length);
  }

  render() {
    const { life, place } = this;
    const frame = life.frames[place];
    const seeing = frame.ended ? life.frames[place - 1] : frame; // where an episode ends there is nothing to decide
    const weights = this.weights(seeing);
    const chances = probabilities(seeing.logits, life.temperature);
    this.map.render({
      visits: this.visits(place),
      path: this.pathTo(place),
      looks: this.looks(seeing.context, weights),
      chances: frame.ended ? null : chances,
      cell: frame.cell,
      goal: frame.goal,
      ghost: seeing.context.some(({ episode }) => episode === -1) ? seeing.ghost : null,
      isFound: frame.cell === frame.goal,
    });
    this.renderChances(chances, seeing.action);
    this.renderMemory(seeing, weights, frame.episode);
    this.renderCurve(frame);
    $("scrub").max = life.frames.length - 1;
    $("scrub").value = place;
    const where = `Episode ${frame.episode + 1}, step ${frame.timestep} of ${this.checkpoint.room.max_steps}`;
    $("scrub").setAttribute("aria-valuetext", where);
    const isNow = place >= life.frames.length - (frame.ended ? 2 : 1);
    $("where").textContent = isNow ? where : `${where} (looking back)`;
    $("newest").disabled = isNow;
    $("back").disabled = place === 0;
  }

  /** Cells that attention looks at, the most important first; the present step is left out. */
  looks(context, weights) {
    const total = new Map();
    context.slice(0, -1).forEach(({ cell }, i) => total.set(cell, (total.get(cell) ?? 0) + weights[i]));
    return [...total].filter(([, weight]) => weight > 0.02).sort((one, other) => other[1] - one[1]);
  }

  renderChances(chances, taken) {
    [...$("chances").children].forEach((row, action) => {
      row.querySelector("i").style.width = `${100 * chances[action]}%`;
      row.querySelector("output").textContent = `${Math.round(100 * chances[action])} %`;
      row.classList.toggle("taken", taken === action);
    });
  }

  renderMemory({ context }, weights, episode) {
    const parts = { rewarded: 0, now: 0, foreign: 0, earlier: 0 };
    const shares = [];
    context.forEach((step, i) => {
      const isNow = step.episode === episode || i === context.length - 1;
      parts[step.rewarded ? "rewarded" : step.episode < 0 ? "foreign" : isNow ? "now" : "earlier"] += weights[i];
      if (step.episode >= 0) shares[step.episode] = (shares[step.episode] ?? 0) + weights[i];
    });
    const percent = (share) => `${Math.round(100 * share)} %`;
    const rewards = context.filter((step) => step.rewarded).length;
    const looks = [`${percent(parts.rewarded)} on the ${rewards} with a reward`, `${percent(parts.now)} on this episode`];
    looks.push(`${percent(parts.earlier)} on earlier ones`);
    if (parts.foreign) looks.push(`${percent(parts.foreign)} on the other life`);
    const filled = `${context.length} of ${this.checkpoint.context.length} steps in memory`;
    const text = this.checkpoint.network.layers ? `${filled}. Attention: ${looks.join(", ")}.` : `${filled}.`;
    $("memorytext").textContent = text;
    this.memory.render(context, weights, text);
    this.film.render(episode, shares);
  }

  renderCurve(frame) {
    const { measure, references } = this.checkpoint;
    const { episodes } = this.life;
    const done = episodes.filter((episode) => episode.last <= this.place);
    const goalAt = (number) => episodes[number]?.goal ?? this.life.goal;
    const count = Math.max(20, Math.ceil(episodes.length / 10) * 10);
    const exact = (name) => Array.from({ length: count }, (_, number) => references[name][goalAt(number)]);
    const lines = ["random", "optimum"].map((name) => ({ name, values: exact(name) }));
    const { train, held_out: heldOut } = this.checkpoint.goals;
    for (const [name, goals] of [["source", train], ["average", heldOut]]) {
      if (references[name]) lines.push({ name, values: this.scaled(references[name].values.slice(0, count), goals, exact) });
    }
    if (this.life.plan) lines.push({ name: "plan", values: done.map((episode) => episode.plan[measure.key]) });
    const last = done.at(-1);
    const label =
      `Curve of ${measure.title} by episode: ${done.length} finished` +
      (last ? `, the last one with ${last[measure.key]}, where the optimum has ${exact("optimum")[last.number]}.` : ".");
    this.curve.render({
      lines,
      values: done.map((episode) => episode[measure.key]),
      found: done.map((episode) => episode.success),
      events: this.events.filter(({ episode }) => episode <= frame.episode),
      current: frame.episode,
      label,
    });
    for (const entry of document.querySelectorAll("#legend li:not(.model)")) {
      entry.hidden = !document.querySelector(`#curve .${entry.className}`); // such as what was not played yet
    }
  }

  /** Means over other `goals`, put at the same share of the way from random actions to the optimum, but of the goals here. */
  scaled(values, goals, exact) {
    const { measure, references } = this.checkpoint;
    const [random, optimum] = ["random", "optimum"].map((name) => mean(goals.map((goal) => references[name][goal])));
    const [worst, best] = [exact("random"), exact("optimum")];
    return values.map((value, i) => {
      const share = Math.min((value - random) / (optimum - random), 1);
      return Math.min(Math.max(worst[i] + share * (best[i] - worst[i]), 0), measure.most);
    });
  }
}

/** Open the model that `checkpoint.js` holds, and show its first life. */
export async function main() {
  const { CHECKPOINT: checkpoint, RUNTIME: runtime, ort } = globalThis;
  try {
    if (!checkpoint || !ort) throw new Error("a file of it is missing or damaged");
    ort.env.wasm.numThreads = 1;
    ort.env.wasm.wasmBinary = (await unpacked(runtime)).buffer;
    const network = await Network.open(ort, checkpoint.network, await unpacked(checkpoint.network.content));
    globalThis.page = new Page(checkpoint, network);
    await globalThis.page.begin(checkpoint.goals.first);
    document.body.classList.remove("loading");
    globalThis.page.setPlaying(!prefersStill());
  } catch (error) {
    $("where").textContent = "";
    $("status").textContent = `This page cannot start: ${error.message}. Load it again, in a browser of 2023 or newer.`;
    throw error;
  }
}
