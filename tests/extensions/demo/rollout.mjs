// Plays the page's own code in Node: a life with given uniform numbers. Reads a request from stdin, writes its frames.

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { runInThisContext } from "node:vm";
import { gunzipSync } from "node:zlib";

const given = JSON.parse(readFileSync(0, "utf-8"));
const load = (path) => import(pathToFileURL(path));
const { Life } = await load(`${given.static}/life.mjs`);
const { Network } = await load(`${given.static}/network.mjs`);
const ort = await load(given.library);
ort.env.wasm.numThreads = 1;
ort.env.wasm.wasmBinary = readFileSync(given.wasm).buffer;
runInThisContext(readFileSync(given.checkpoint, "utf-8"));
const checkpoint = globalThis.CHECKPOINT;
const content = gunzipSync(Buffer.from(checkpoint.network.content, "base64"));
const network = await Network.open(ort, checkpoint.network, new Uint8Array(content));

let place = 0;
const random = () => given.noise[place++ % given.noise.length];
const life = new Life(checkpoint, network, { goal: given.goal, random, temperature: given.temperature });
await life.start();
for (let step = 0; step < given.steps; step++) {
  if (step === given.moveAt) life.moveGoal(given.movedGoal);
  if (step === given.blankAt) await life.setBlank(true);
  if (step === given.forgetAt) await life.forget();
  if (step === given.swapAt) await life.swapPast(given.movedGoal);
  await life.step();
}
const frames = life.frames.filter((frame) => !frame.ended).slice(0, given.steps);
const attention = life.newest.attention;
console.log(
  JSON.stringify({
    cells: frames.map((frame) => frame.cell),
    actions: frames.map((frame) => frame.action),
    logits: frames.map((frame) => Array.from(frame.logits)),
    episodes: life.episodes,
    memory: life.context.shown(),
    attention: attention && Array.from(attention),
  }),
);
