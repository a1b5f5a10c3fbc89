// Rules of DarkRoom, the same as `icrl.envs.rooms.DarkRoom`, and the covering plan of `icrl.extensions.searchers.explorers`.
// A cell is row * size + column.

export const ACTIONS = ["stay", "up", "right", "down", "left"];
export const MOVES = [[0, 0], [-1, 0], [0, 1], [1, 0], [0, -1]]; // rows down, columns right

/** Cell that an action leads to, clipped at the walls. */
export function nextCell(size, cell, action) {
  const clip = (x) => Math.min(Math.max(x, 0), size - 1);
  return clip(Math.floor(cell / size) + MOVES[action][0]) * size + clip((cell % size) + MOVES[action][1]);
}

/** First action of a shortest path: rows first, then columns, then stay. */
export function firstMove(size, cell, target) {
  const rows = Math.floor(target / size) - Math.floor(cell / size);
  const columns = (target % size) - (cell % size);
  if (rows) return rows < 0 ? 1 : 3;
  return columns ? (columns > 0 ? 2 : 4) : 0;
}

/** Moves between two cells. */
export function distance(size, one, other) {
  return Math.abs(Math.floor(one / size) - Math.floor(other / size)) + Math.abs((one % size) - (other % size));
}

/** One stream of episodes: a clock, a hidden goal that may be moved at any time, and a reset after each episode. */
export class Room {
  /** `rules`: size, max_steps, terminates, and start (null: a random cell, by `random()` in [0, 1)). */
  constructor(rules, goal, random) {
    this.rules = rules;
    this.goal = goal;
    this.random = random;
    this.episode = 0;
    this.begin();
  }

  begin() {
    const { size, start } = this.rules;
    this.cell = start ?? Math.floor(this.random() * size * size);
    this.timestep = 0;
  }

  /** Take an action; returns where it led. The next episode begins at once after the end of one. */
  step(action) {
    const { size, max_steps: maxSteps, terminates } = this.rules;
    const reached = nextCell(size, this.cell, action);
    const reward = reached === this.goal ? 1 : 0;
    this.cell = reached;
    this.timestep += 1;
    const terminated = terminates && reward === 1;
    const truncated = this.timestep >= maxSteps;
    if (terminated || truncated) {
      this.episode += 1;
      this.begin();
    }
    return { reached, reward, terminated, truncated };
  }
}

/** The best searcher that knows the room but not the goal: episode k walks path k, until a reward shows the goal. */
export class CoveringPlan {
  /** `walks`: the cells of each path, from the start on. */
  constructor(size, walks) {
    this.size = size;
    this.walks = walks;
    this.goal = null;
    this.episode = 0; // since the start, or since the goal was missed
  }

  act(cell, timestep) {
    return firstMove(this.size, cell, this.goal ?? this.nextOfPath(cell, timestep));
  }

  /** The next cell of the path; pushed off it, the first that can be reached in time. */
  nextOfPath(cell, timestep) {
    const walk = this.walks[this.episode % this.walks.length];
    for (let t = timestep + 1; t < walk.length; t++) {
      if (distance(this.size, cell, walk[t]) <= t - timestep) return walk[t];
    }
    return walk[walk.length - 1];
  }

  /** Learn from what a move showed: a reward shows the goal, none where it should be takes it back. */
  learn({ reached, reward, terminated, truncated }) {
    if (reward) this.goal = reached;
    else if (reached === this.goal) {
      this.goal = null;
      this.episode = 0;
    }
    if (terminated || truncated) this.episode += 1;
  }
}
