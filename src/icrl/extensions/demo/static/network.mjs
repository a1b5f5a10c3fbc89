// The transformer in the browser: ONNX Runtime Web runs the exported graph, one step or many at a time.

const NUM_NUMBERS = 6; // of a step: previous obs, action and time step, obs, time step, 1 at the first step
const ARRAYS = { float32: Float32Array, int64: BigInt64Array };

export class Network {
  /** `form` describes the graph: its columns of the cache, layers and heads (none in a recurrent trunk). */
  static async open(ort, form, content) {
    const session = await ort.InferenceSession.create(content, { executionProviders: ["wasm"] });
    return new Network(ort, session, form);
  }

  constructor(ort, session, form) {
    this.ort = ort;
    this.session = session;
    this.form = form;
  }

  /** Cache of an empty context. */
  empty() {
    return this.form.columns.map(({ type, shape }) => {
      const size = shape.reduce((product, length) => product * length, 1);
      return new this.ort.Tensor(type, new ARRAYS[type](size), shape);
    });
  }

  /** Read rows of steps after those in the cache. Returns logits and attention of the last one, and the longer cache. */
  async read(rows, cache) {
    if (this.form.one_at_a_time && rows.length > 1) {
      let found;
      for (const row of rows) {
        found = await this.read([row], cache);
        cache = found.cache;
      }
      return found;
    }
    const steps = new Int32Array(rows.length * NUM_NUMBERS);
    rows.forEach((row, i) => {
      const numbers = [row.prevObs, row.prevAction, row.prevTimestep, row.obs, row.timestep, row.first];
      steps.set(numbers, i * NUM_NUMBERS);
    });
    const feeds = {
      steps: new this.ort.Tensor("int32", steps, [rows.length, NUM_NUMBERS]),
      prev_reward: new this.ort.Tensor("float32", Float32Array.from(rows, (row) => row.prevReward), [rows.length]),
    };
    cache.forEach((column, i) => (feeds[`cache_${i}`] = column));
    const out = await this.session.run(feeds);
    const numActions = out.logits.dims[1];
    return {
      logits: out.logits.data.slice(-numActions),
      attention: out.attention ? lastOf(out.attention) : null,
      cache: cache.map((_, i) => out[`grown_${i}`]),
    };
  }
}

/** Attention of the newest step, layer by layer and head by head, of `[layers, heads, new steps, steps]`. */
function lastOf({ data, dims }) {
  const [layers, heads, fresh, steps] = dims;
  const found = new Float32Array(layers * heads * steps);
  for (let i = 0; i < layers * heads; i++) {
    found.set(data.subarray((i * fresh + fresh - 1) * steps, (i + 1) * fresh * steps), i * steps);
  }
  return found;
}
