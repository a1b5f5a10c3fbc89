"""Film a frozen model that learns a held-out goal: python examples/film_learning.py RUN_FOLDER OUT.gif [GOAL_NUMBER]

The room is on the left, the success over all held-out goals on the right, episode by episode. (For DarkRoom.)
"""

import sys

import gymnasium
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

import icrl

NUM_EPISODES, FRAME_MS, PIXELS = 20, 70, 250


def curve(success: np.ndarray, episode: int) -> np.ndarray:
    """Picture `[PIXELS, ...]` of the success up to `episode`."""
    figure = Figure(figsize=(4, PIXELS / 100), dpi=100, layout="constrained")
    canvas, axes = FigureCanvasAgg(figure), figure.add_subplot()
    axes.plot(np.arange(1, episode + 2), success[: episode + 1], marker="o", color="#0072B2")
    axes.set(xlim=(0.5, NUM_EPISODES + 0.5), ylim=(0, 1.02), xlabel="episode", ylabel="success, held-out goals")
    axes.grid(color="#E0E0E0")
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3]


policy = icrl.load(sys.argv[1])
config, tasks = policy.config.env, policy.tasks
held_out = [tasks["all"][task] for task in tasks["held_out"]]
room = {"size": policy.spec.width, "max_episode_steps": policy.spec.max_episode_steps}
env = icrl.make_env("dark_room", *(f"env.{key}={value}" for key, value in room.items()))
success = icrl.evaluate(policy, env, held_out, NUM_EPISODES).success.mean(axis=(0, 1))

goal = divmod(held_out[int(sys.argv[3]) if len(sys.argv) > 3 else 0][0], policy.spec.width)
single = gymnasium.make("icrl:icrl/DarkRoom-v0", goal=goal, render_mode="rgb_array", **room)
policy.reset()
obs, _ = single.reset(seed=0)
action, frames = policy.act([obs]), []
for episode in range(NUM_EPISODES):
    picture, ended = curve(success, episode), False
    while not ended:
        obs, reward, terminated, truncated, _ = single.step(action[0])
        ended = terminated or truncated
        view = Image.fromarray(single.render()).resize((PIXELS, PIXELS))
        frames += [np.concatenate([np.asarray(view), picture], axis=1)] * (4 if ended else 1)
        if ended:
            obs, _ = single.reset()
        action = policy.act([obs], [reward], [terminated], [truncated])
palette = Image.fromarray(np.concatenate([frames[0], frames[-1]])).quantize(32)  # one for all: colours stay the same
images = [Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
images[0].save(sys.argv[2], save_all=True, append_images=images[1:], duration=FRAME_MS, loop=0, optimize=True)
print(f"{len(images)} frames, success by episode {[round(float(one), 2) for one in success]}")
