"""In-context protocol: many streams of every task, episode after episode, with frozen weights.

G tasks, S streams per task, E episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
import torch
from pydantic import Field, PlainValidator, model_validator
from torch import Tensor

from icrl.config.options import NO_EFFECT, Options, option, refuse
from icrl.contracts import AnyState, Carry, Env, Policy, Rollout
from icrl.data.columns import rollout_of
from icrl.data.history_store import Histories
from icrl.envs.rollout import OpenEpisodes, Streams, finished_episodes, numbered, rollout, start_streams
from icrl.nn.gpt_policy import GPTPolicy
from icrl.randomness import Noise, stream_seeds
from icrl.runs.processes import Progress
from icrl.spaces import EnvSpec

LEAST_TEMPERATURE = 0.001  # a colder one overflows, and is greedy
_BLOCK = 64  # most env steps that an evaluation plays between two checks whether all streams have played enough


def _check_which(value: Any) -> str | int:
    if value not in ("best", "last") and (type(value) is not int or value < 0):
        raise ValueError
    return value


Which = Annotated[str | int, PlainValidator(_check_which), "best, last, or the number of an update"]


class EvaluationConfig(Options):
    checkpoint: Which = option(
        "last", "checkpoint to roll out: the best in evaluations, the last, or that of an update, such as a snapshot"
    )
    tasks: Literal["test", "development"] = option(
        "test", "test: held-out tasks, and development tasks too; development: only the latter, to choose a recipe"
    )
    num_episodes: int = option(40, "episodes per stream", ge=2, le=10**6)
    num_streams: int = option(20, "streams per held-out task (or development task)", ge=1, le=10**5)
    num_train_tasks: int = option(0, "training tasks of the model that are also played, for comparison (0: all)", ge=0)
    sample_probability: float = option(1.0, "probability of sampling at policy.temperature, else greedy", ge=0, le=1)
    temperatures: list[Annotated[float, Field(ge=0)]] = option([0.0, 0.5], "other temperatures to compare (0: greedy)")
    ablations: bool = option(True, "also play with a context that is blanked, shuffled, wiped, or that of another task")
    moved_goal: bool = option(
        True,
        "in DarkRoom also move the goal to that of the next task after half of the episodes, keeping the context",
    )
    num_probe_streams: int = option(
        4,
        "streams per held-out task for each ablation, other temperature and moved goal, and streams per training or "
        "development task that is played for comparison",
        ge=1,
        le=10**5,
    )
    num_bootstrap: int = option(2000, "bootstrap resamples of the intervals", ge=100, le=10**5)
    videos: bool = option(True, "write videos of the model next to the source agent", may_change=True)

    former = {"calibration": NO_EFFECT, "num_train_streams": NO_EFFECT, "reward_ablations": False, "confidence": 0.95}

    @model_validator(mode="after")
    def _check(self) -> Self:
        given, must = self.temperatures, f"evaluation.temperatures={self.temperatures}: must"
        low = any(0 < temperature < LEAST_TEMPERATURE for temperature in given)
        refuse(low, f"{must} be 0 or at least {LEAST_TEMPERATURE}")
        refuse(len(set(given)) < len(given), f"{must} have no duplicates")
        return self


Job = tuple[str, Callable[[], Any]]  # a name, and what is played

_STREAMS = 250  # that the model plays in one job: with fewer, a step costs about as much


class Adaptation(NamedTuple):
    """Outcome of each episode of each stream, `[G, S, E]` each."""

    returns: np.ndarray
    success: np.ndarray  # 1 or 0, as the world defines success (`envs.rollout.is_success`)
    steps_to_goal: np.ndarray  # steps until the success; the episode's length if there was none
    lengths: np.ndarray


def play_episodes(
    policy: Policy[Carry],
    env: Env[AnyState],
    tasks: Tensor,
    num_streams: int,
    num_episodes: int,
    seed: int,
    first_task: int = 0,
    progress: Progress | None = None,
) -> tuple[Adaptation, Rollout]:
    """Play `num_streams` streams of each of `tasks` `[G, task_dim]` until all have `num_episodes` episodes; also
    return all transitions, `[T, G * S]`. Tasks from number `first_task` on may be played apart from those before, with
    the same result. `progress` counts the episodes that all streams have played."""
    streams, noise = _new_streams(policy, env, tasks, num_streams, seed, first_task)
    played: list[Rollout] = []
    finished = torch.zeros(len(noise.seeds), dtype=torch.long, device=tasks.device)
    while (left := num_episodes - int(finished.min())) > 0:
        transitions, streams = rollout(policy, env, streams, min(_BLOCK, left * env.spec.max_episode_steps), noise)
        played.append(transitions)
        finished += (transitions.terminated | transitions.truncated).sum(dim=0)
        if progress:
            progress.advance(left - max(num_episodes - int(finished.min()), 0))
            progress.tell("")
    whole = Rollout.joined(played)
    return adaptation_of(whole, len(tasks), num_episodes, env.spec), whole


def jobs_playing(
    name: str,
    policy: Policy[Any],
    env: Env[Any],
    tasks: Tensor,
    num_streams: int,
    num_episodes: int,
    seed: int,
) -> Iterator[Job]:
    """Jobs that play parts of `tasks` `[G, task_dim]`, see `play_episodes`. The model itself plays a few tasks at a
    time, so that there is work for all processes."""
    at_a_time = max(1, _STREAMS // num_streams) if isinstance(policy, GPTPolicy) and tasks.is_cpu else len(tasks)
    for first in range(0, len(tasks), at_a_time):
        rows = tasks[first : first + at_a_time]
        yield name, partial(play_episodes, policy, env, rows, num_streams, num_episodes, seed, first)


def play_steps(
    policy: Policy[Carry], env: Env[AnyState], tasks: Tensor, num_streams: int, num_steps: int, seed: int
) -> Rollout:
    """The first `num_steps` steps that `play_episodes` plays, `[T, G * S]`."""
    streams, noise = _new_streams(policy, env, tasks, num_streams, seed)
    return rollout(policy, env, streams, num_steps, noise)[0]


def joined(parts: Sequence[tuple[Adaptation, Rollout]]) -> tuple[Adaptation, Rollout]:
    """Results of `play_episodes` on tasks that were played apart. Steps after the end of a part are zeros."""
    adaptations, rollouts = zip(*parts, strict=True)
    longest = max(len(rollout.obs) for rollout in rollouts)

    def padded(column: Tensor) -> Tensor:
        return torch.cat([column, column.new_zeros(longest - len(column), *column.shape[1:])])

    transitions = Rollout.joined((rollout.each(padded) for rollout in rollouts), dim=1)
    return Adaptation(*map(np.concatenate, zip(*adaptations, strict=True))), transitions


def seeds_of_play(seed: int, num_streams: int) -> Tensor:
    """Seeds `[B]` of the streams that `play_episodes` plays."""
    return stream_seeds(seed, num_streams, 3)


def _new_streams(
    policy: Policy[Carry], env: Env[AnyState], tasks: Tensor, num_streams: int, seed: int, first_task: int = 0
) -> tuple[Streams[AnyState, Carry], Noise]:
    """Streams at their start, and their noise; both differ from those of source agents in training."""
    first, end = first_task * num_streams, (first_task + len(tasks)) * num_streams
    seeds, noise = seeds_of_play(seed, end)[first:], stream_seeds(seed, end, 4)[first:]
    streams = start_streams(policy, env, tasks.repeat_interleave(num_streams, dim=0), seeds.to(tasks.device))
    return streams, Noise(noise.to(tasks.device))


def adaptation_of(
    transitions: Rollout, num_tasks: int, num_episodes: int, spec: EnvSpec, *, last: bool = False
) -> Adaptation:
    """The first (or `last`) `num_episodes` of the streams of `[T, G * S]` steps; `ValueError` if one has fewer."""
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
    """Mean success and return of first and last episodes, and `late_reward`: reward per env step in the second half of
    the episodes. It grows with success and with speed, so it ranks checkpoints."""
    half = adaptation.returns.shape[-1] // 2
    summary = {"late_reward": float(adaptation.returns[..., half:].sum() / adaptation.lengths[..., half:].sum())}
    for name, episode in (("first", 0), ("last", -1)):
        summary[f"{name}_success"] = float(adaptation.success[..., episode].mean())
        summary[f"{name}_return"] = float(adaptation.returns[..., episode].mean())
    return summary


def source_adaptation(
    histories: Histories, tasks: Sequence[int], num_streams: int, num_episodes: int
) -> tuple[Adaptation, Adaptation]:
    """First and last `num_episodes` of source agents, in `num_streams` rows of each of the training tasks `tasks`."""
    rows = np.concatenate([np.flatnonzero(histories.row_tasks == task)[:num_streams] for task in tasks])
    enough = (num_episodes + 1) * histories.spec.max_episode_steps  # one more, as the last part may begin mid-episode

    def part(steps: slice) -> Rollout:
        columns = {name: column[rows, steps].swapaxes(0, 1) for name, column in histories.columns.items()}
        return rollout_of(histories.spec, columns)

    first = adaptation_of(part(slice(enough)), len(tasks), num_episodes, histories.spec)
    return first, adaptation_of(part(slice(-enough, None)), len(tasks), num_episodes, histories.spec, last=True)
