"""The in-context protocol: many streams of every task, episode after episode, weights frozen.

G tasks, S streams per task, E episodes.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from icrl.collection.pace import BLOCK
from icrl.contracts import Carry, Env, EnvSpec, Policy, Rollout, State
from icrl.data.history_store import Histories
from icrl.envs.episodes import OpenEpisodes, finished_episodes, numbered
from icrl.envs.rollout import Streams, rollout, start_streams
from icrl.envs.tasks import streams_of
from icrl.randomness import Noise, stream_seeds


class Adaptation(NamedTuple):
    """What each episode of each stream came to, `[G, S, E]` each."""

    returns: np.ndarray
    success: np.ndarray  # 1 or 0, as the world defines success (`envs.episodes.is_success`)
    steps_to_goal: np.ndarray  # steps until the success; the episode's length where none came
    lengths: np.ndarray

    def regret(self, optimum: np.ndarray) -> np.ndarray:
        """What was missed up to each episode, given the `optimum`, the best return to expect of each task `[G]`:
        the sum over episodes so far of optimum - return, `[G, S, E]`."""
        return (optimum[:, None, None] - self.returns).cumsum(axis=-1)


def play_episodes(
    policy: Policy[Carry], env: Env[State], tasks: Tensor, num_streams: int, num_episodes: int, seed: int
) -> tuple[Adaptation, Rollout]:
    """Play `num_streams` streams of each of `tasks` `[G, task_dim]` until all have `num_episodes` episodes; also
    returns everything played, `[T, G * S]`."""
    streams, noise = _fresh(policy, env, tasks, num_streams, seed)
    played: list[Rollout] = []
    finished = torch.zeros(len(noise.seeds), dtype=torch.long, device=tasks.device)
    while int(finished.min()) < num_episodes:
        transitions, streams = rollout(policy, env, streams, BLOCK, noise)
        played.append(transitions)
        finished += (transitions.terminated | transitions.truncated).sum(dim=0)
    whole = Rollout(*(torch.cat(column) for column in zip(*played, strict=True)))
    return adaptation_of(whole, len(tasks), num_episodes, env.spec), whole


def play_steps(
    policy: Policy[Carry], env: Env[State], tasks: Tensor, num_streams: int, num_steps: int, seed: int
) -> Rollout:
    """The first `num_steps` steps of what `play_episodes` plays, `[T, G * S]`."""
    streams, noise = _fresh(policy, env, tasks, num_streams, seed)
    return rollout(policy, env, streams, num_steps, noise)[0]


def most_steps(num_episodes: int, spec: EnvSpec) -> int:
    """How many steps of a stream `play_episodes` plays at most."""
    return -(-num_episodes * spec.max_episode_steps // BLOCK) * BLOCK


def _fresh(
    policy: Policy[Carry], env: Env[State], tasks: Tensor, num_streams: int, seed: int
) -> tuple[Streams[State, Carry], Noise]:
    """`num_streams` streams of each of `tasks` `[G, task_dim]`, at their start, and the noise they act with. Their
    purposes are their own: fresh starts and luck, not those that source agents had in training."""
    seeds = stream_seeds(seed, len(tasks) * num_streams, purpose=3).to(tasks.device)
    noise = Noise(stream_seeds(seed, len(seeds), purpose=4).to(tasks.device))
    return start_streams(policy, env, streams_of(tasks, num_streams), seeds), noise


def adaptation_of(
    transitions: Rollout, num_tasks: int, num_episodes: int, spec: EnvSpec, *, last: bool = False
) -> Adaptation:
    """The first `num_episodes` of every stream of `[T, G * S]` transitions, or the `last`; they must hold as many."""
    num_streams = transitions.obs.shape[1]
    episodes, _ = finished_episodes(transitions, OpenEpisodes.none(num_streams), spec)
    number = numbered(episodes.stream)
    if last:
        number += num_episodes - np.bincount(episodes.stream, minlength=num_streams)[episodes.stream]
    kept = (number >= 0) & (number < num_episodes)
    table = np.full((4, num_streams, num_episodes), np.nan)
    values = np.stack([episodes.returns, episodes.success, episodes.steps_to_goal, episodes.length])
    table[:, episodes.stream[kept], number[kept]] = values[:, kept]
    if np.isnan(table).any():
        raise ValueError(f"not every stream has {num_episodes} finished episodes")
    return Adaptation(*table.reshape(4, num_tasks, -1, num_episodes))


def summary_of(adaptation: Adaptation) -> dict[str, float]:
    """One number each: success and return of the first and of the last episode of every stream, averaged, and
    `late_reward`, the reward per env step of the second half of the episodes, which grows with success and with speed
    and so can choose between checkpoints."""
    half = adaptation.returns.shape[-1] // 2
    return {
        "first_success": float(adaptation.success[..., 0].mean()),
        "first_return": float(adaptation.returns[..., 0].mean()),
        "last_success": float(adaptation.success[..., -1].mean()),
        "last_return": float(adaptation.returns[..., -1].mean()),
        "late_reward": float(adaptation.returns[..., half:].sum() / adaptation.lengths[..., half:].sum()),
    }


def source_adaptation(
    histories: Histories, num_tasks: int, num_streams: int, num_episodes: int
) -> tuple[Adaptation, Adaptation]:
    """The source agents on their own tasks, the first `num_tasks` of them: the first and the last `num_episodes` of
    `num_streams` rows per task."""
    rows = np.arange(len(histories.row_tasks)).reshape(len(histories.manifest["tasks"]["train"]), -1)
    rows = rows[:num_tasks, :num_streams].ravel()
    enough = (num_episodes + 1) * histories.spec.max_episode_steps

    def slice_of(steps: slice) -> Rollout:
        columns = (histories.columns[name][rows, steps].swapaxes(0, 1) for name in Rollout._fields)
        return Rollout(*(torch.from_numpy(column.astype(np.int64)) for column in columns))

    first = adaptation_of(slice_of(slice(enough)), num_tasks, num_episodes, histories.spec)
    # This slice may begin amid an episode; it is long enough for all these and one more.
    return first, adaptation_of(slice_of(slice(-enough, None)), num_tasks, num_episodes, histories.spec, last=True)
