// A life of the model in the room: episode after episode, with the context kept, frame by frame.

import { CoveringPlan, distance, Room } from "./room.mjs";
import { Context } from "./context.mjs";

/** Uniform numbers in [0, 1) from a seed (mulberry32). */
export function randomNumbers(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let x = Math.imul(state ^ (state >>> 15), state | 1);
    x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
    return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Action probabilities at a temperature; at 0 the most probable action has probability 1. */
export function probabilities(logits, temperature) {
  const best = Math.max(...logits);
  if (temperature === 0) {
    const first = logits.indexOf(best);
    return Array.from(logits, (_, action) => (action === first ? 1 : 0));
  }
  const weights = Array.from(logits, (logit) => Math.exp((logit - best) / temperature));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return weights.map((weight) => weight / total);
}

/** The action whose part of [0, 1) holds the uniform number `u`; never one of probability 0. */
export function sample(chances, u) {
  let action = 0;
  let last = 0;
  let sum = 0;
  for (let i = 0; i < chances.length; i++) {
    sum += chances[i];
    if (i < chances.length - 1 && sum <= u) action = i + 1;
    if (chances[i] > 0) last = i;
  }
  return Math.min(action, last);
}

export class Life {
  /** Frames show the model before each action, and once more where an episode ended. Call `start` first. */
  constructor(checkpoint, network, { goal, random, temperature }) {
    this.checkpoint = checkpoint;
    this.network = network;
    this.random = random;
    this.temperature = temperature;
    this.room = new Room(checkpoint.room, goal, random);
    this.context = new Context(network, checkpoint.context);
    this.plan = checkpoint.plan && new CoveringPlan(checkpoint.room.size, checkpoint.plan);
    this.planRoom = checkpoint.plan && new Room(checkpoint.room, goal, random);
    this.frames = [];
    this.episodes = []; // finished ones
    this.success = false; // in the present episode
    this.total = 0; // its rewards
    this.stepsToGoal = null;
    this.ghost = null; // goal of the other life whose past is in the context
  }

  get goal() {
    return this.room.goal;
  }

  get newest() {
    return this.frames[this.frames.length - 1];
  }

  async start() {
    this.show(await this.context.add(this.present()));
    return this;
  }

  /** The step that the model acts on, as the context keeps it. */
  present() {
    return { obs: this.room.cell, timestep: this.room.timestep, episode: this.room.episode };
  }

  /** Add a frame, or replace the newest one. */
  show({ logits, attention }, again = false) {
    if (again) this.frames.pop();
    this.frames.push({
      episode: this.room.episode,
      timestep: this.room.timestep,
      cell: this.room.cell,
      goal: this.goal,
      ghost: this.ghost,
      logits,
      attention,
      context: this.context.shown(),
    });
  }

  /** Let the model act once. */
  async step() {
    const frame = this.newest;
    const chances = probabilities(frame.logits, this.temperature);
    frame.action = sample(chances, this.random());
    const { episode, timestep } = this.room;
    const result = this.room.step(frame.action);
    const answer = { action: frame.action, reward: result.reward, reached: result.reached };
    this.total += result.reward;
    if (result.reward && this.stepsToGoal === null) this.stepsToGoal = timestep + 1;
    if (result.terminated || result.truncated) {
      this.frames.push({ episode, timestep: timestep + 1, cell: result.reached, goal: this.goal, ended: result });
      this.finish(episode, timestep + 1);
    }
    this.show(await this.context.add(this.present(), answer));
  }

  finish(number, length) {
    const goal = this.goal;
    const begun = this.frames.find((frame) => frame.episode === number).cell;
    this.episodes.push({
      number,
      goal,
      length,
      return: this.total,
      success: this.stepsToGoal !== null,
      stepsToGoal: this.stepsToGoal ?? length,
      straight: this.stepsToGoal === Math.max(distance(this.checkpoint.room.size, begun, goal), 1),
      last: this.frames.length - 1,
      plan: this.plan && this.playPlan(goal),
    });
    this.total = 0;
    this.stepsToGoal = null;
  }

  /** One episode of the covering plan with the same goal. */
  playPlan(goal) {
    const room = this.planRoom;
    const { episode } = room;
    room.goal = goal;
    let steps = 0;
    let total = 0;
    let found = null;
    while (room.episode === episode) {
      const result = room.step(this.plan.act(room.cell, room.timestep));
      this.plan.learn(result);
      steps += 1;
      total += result.reward;
      if (result.reward) found ??= steps;
    }
    return { return: total, stepsToGoal: found ?? steps };
  }

  /** Move the goal. The model is not told. */
  moveGoal(cell) {
    this.room.goal = cell;
    this.newest.goal = cell;
  }

  /** Read every reward as 0, those of the past too, or read them again as they were. */
  async setBlank(isBlank) {
    this.context.isBlank = isBlank;
    this.context.reread();
    this.show(await this.context.read(), true);
  }

  /** Steps of the present episode that are in the context, with the one that the model acts on. */
  ownSteps() {
    return this.context.steps.filter((step) => step.episode === this.room.episode);
  }

  /** Forget all that was before the present episode, as if the life had begun with it. */
  async forget() {
    this.context.replace(this.ownSteps());
    this.show(await this.context.read(), true);
  }

  /** Replace what was before this episode by the past of a life of the same model with another goal. */
  async swapPast(goal) {
    const other = new Life({ ...this.checkpoint, plan: null }, this.network, {
      goal,
      random: this.random,
      temperature: this.temperature,
    });
    await other.start();
    const { kept, length } = this.checkpoint.context;
    const past = [];
    const enough = () => past.length >= kept && other.episodes.at(-1).success;
    while (other.episodes.length < 40 && !(other.room.timestep === 0 && other.episodes.length && enough())) {
      await other.step();
      past.push({ ...other.context.steps.at(-2), episode: -1 });
    }
    const own = this.ownSteps();
    this.context.replace([...past.slice(Math.min(own.length - kept, -1)), ...own].slice(-length));
    this.ghost = goal;
    this.show(await this.context.read(), true);
  }
}
