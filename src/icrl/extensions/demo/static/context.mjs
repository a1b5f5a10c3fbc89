// The model's context: all that it has read and can learn from. It mirrors `icrl.nn.gpt_policy.GPTPolicy`.

export class Context {
  /** A full context of `length` steps is rebuilt from its newest `kept` ones. */
  constructor(network, { length, kept }) {
    this.network = network;
    this.length = length;
    this.kept = kept;
    this.isBlank = false; // every reward is read as 0
    this.replace([]);
  }

  /** Forget what was read, and take `steps` as the past instead. */
  replace(steps) {
    this.steps = steps;
    this.reread();
  }

  /** Read everything again at the next step. */
  reread() {
    this.cache = this.network.empty();
    this.numRead = 0;
  }

  /** Add the step that the model now acts on; `answer` (action, reward) belongs to the step before. */
  async add(step, answer) {
    if (answer && this.steps.length) Object.assign(this.steps[this.steps.length - 1], answer);
    if (this.steps.length === this.length) this.replace(this.steps.slice(-this.kept));
    this.steps.push(step);
    return this.read();
  }

  /** Logits and attention at the newest step. */
  async read() {
    if (this.numRead === this.steps.length) this.reread();
    const rows = [];
    for (let i = this.numRead; i < this.steps.length; i++) rows.push(this.row(i));
    const { logits, attention, cache } = await this.network.read(rows, this.cache);
    this.cache = cache;
    this.numRead = this.steps.length;
    return { logits, attention };
  }

  row(i) {
    const step = this.steps[i];
    const before = i ? this.steps[i - 1] : { obs: step.obs, timestep: step.timestep, action: 0, reward: 0 };
    return {
      prevObs: before.obs,
      prevAction: before.action,
      prevReward: this.isBlank ? 0 : before.reward,
      prevTimestep: before.timestep,
      obs: step.obs,
      timestep: step.timestep,
      first: i ? 0 : 1,
    };
  }

  /** What each step in the context shows: the cell that the move before it led to, and the reward that was read. */
  shown() {
    return this.steps.map((step, i) => ({
      cell: i ? this.steps[i - 1].reached : step.obs,
      rewarded: i > 0 && !this.isBlank && this.steps[i - 1].reward > 0,
      episode: i ? this.steps[i - 1].episode : step.episode, // -1: the episode of another life
    }));
  }
}
