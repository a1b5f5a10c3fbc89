"""Videos of the same held-out goal: the model that learns in context beside a source agent that learns by gradients."""

import torch
from torch import Tensor

from src.contracts import Rollout
from src.envs.base import TensorEnv
from src.evaluation.references import optimal_exact
from src.evaluation.video import write_video
from src.evaluation.walks import Walk, side_by_side, walks_of
from src.schema import Config
from src.training.collect import LocalPlayer, collect, make_learners

SHOWN = (1, 5, 20)  # and the last
NUM_GOALS = 3
FRAMES_PER_SECOND = 4


def write_comparisons(config: Config, env: TensorEnv, tasks: Tensor, played: Rollout, device: torch.device) -> None:
    """Write a video for each of a few of `tasks` `[G, task_dim]`, near ones and far ones, of which `played` holds
    `[T, G * S]` transitions of the model: its episodes 1, 5, 20 and the last above the same of a source agent, which
    is trained on that goal alone, here and for the video only."""
    num_streams = played.obs.shape[1] // len(tasks)
    by_distance = optimal_exact(env, tasks).steps_to_goal.argsort(stable=True).tolist()
    chosen = [by_distance[i * (len(by_distance) - 1) // max(NUM_GOALS - 1, 1)] for i in range(NUM_GOALS)]
    numbers = [number for number in SHOWN if number < config.evaluation.num_episodes]
    for index in dict.fromkeys(chosen):
        ours = walks_of(played, index * num_streams)[: config.evaluation.num_episodes]
        source = walks_of(_source_life(config, env, tasks[index : index + 1], device), 0)
        goal = int(tasks[index, 0])
        frames = side_by_side(
            [("model", _labelled(ours, numbers)), (config.source.name.upper(), _labelled(source, numbers))],
            goal,
            config.env.size,
        )
        row, column = divmod(goal, config.env.size)
        path = config.folder("videos") / "in_context" / f"goal_{row}_{column}.mp4"
        write_video(path, frames, FRAMES_PER_SECOND)


def _labelled(walks: list[Walk], numbers: list[int]) -> list[tuple[str, Walk]]:
    return [(f"episode {number}", walks[number - 1]) for number in [*numbers, len(walks)]]


def _source_life(config: Config, env: TensorEnv, task: Tensor, device: torch.device) -> Rollout:
    """The first environment of a source agent of `task` `[1, task_dim]`, its whole life, `[T, 1]`."""
    learner, streams, noise = make_learners(config, env, task, device)
    loop = collect(config.source, learner, LocalPlayer(config.source, env, learner, streams, noise), seed=config.seed)
    life = [Rollout(*(column[:, :1] for column in transitions)) for transitions, _, _ in loop]
    return Rollout(*(torch.cat(column) for column in zip(*life, strict=True)))
