"""Histories of one's own agents: Q-learning in NumPy walks the street of my_world.py, and a model learns from its life.

python examples/my_histories.py my_histories.npz
python -m src.import_histories format=npz path=my_histories.npz name=mine WORLD
python -m src.train_gpt name=mine WORLD
python -m src.evaluate name=mine WORLD

with WORLD = env=gymnasium env.id=examples/my_world.py:Street env.max_episode_steps=12 env.width=0 and, in quotes,
env.tasks=[{house: 0}, {house: 1}, {house: 2}, {house: 3}, {house: 5}, {house: 6}, {house: 7}, {house: 8}]
"""

import sys

import numpy as np
from my_world import Street

HOUSES, TASKS, AGENTS, STEPS, TIME_LIMIT = (0, 1, 2, 3, 5, 6, 7, 8), (0, 2, 3, 4, 6), 4, 3000, 12

rng = np.random.default_rng(0)
shape = (len(TASKS) * AGENTS, STEPS)  # a row is the whole life of one agent
columns = {name: np.zeros(shape, np.int64) for name in ("obs", "action", "next_obs", "terminated", "truncated")}
columns["reward"] = np.zeros(shape)
task = np.repeat(TASKS, AGENTS)  # numbers in env.tasks; the other tasks stay held out
for row in range(len(task)):
    env, values = Street(HOUSES[task[row]]), rng.random((9, 2)) * 0.01
    obs, clock = env.reset()[0], 0
    for step in range(STEPS):
        explores = rng.random() < 1 - step / STEPS
        action = int(rng.integers(2) if explores else values[obs].argmax())
        next_obs, reward, terminated, _, _ = env.step(action)
        clock += 1
        truncated = clock == TIME_LIMIT and not terminated
        values[obs, action] += 0.5 * (reward + 0.9 * (1 - terminated) * values[next_obs].max() - values[obs, action])
        now = {"obs": obs, "action": action, "reward": reward, "next_obs": next_obs}
        for name, value in (now | {"terminated": terminated, "truncated": truncated}).items():
            columns[name][row, step] = value
        obs, clock = (env.reset()[0], 0) if terminated or truncated else (next_obs, clock)
np.savez(sys.argv[1], task=task, **columns)
parts = np.array_split(columns["reward"], 5, axis=1)
print(
    f"{shape[0]} rows of {STEPS} steps; mean reward per fifth of a life: {[round(float(p.mean()), 3) for p in parts]}"
)
