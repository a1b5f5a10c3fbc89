"""Episodes from transitions: the return, success and length of each episode of each stream."""

from typing import Any, NamedTuple

import numpy as np

from icrl.contracts import EnvSpec, Rollout

Column = Any  # a tensor or an array, which share these operators
_NEVER = np.iinfo(np.int64).max  # step of a success that did not come


class Episodes(NamedTuple):
    """Finished episodes, ordered by stream and then by time; arrays with one number per episode."""

    stream: np.ndarray
    returns: np.ndarray  # float
    success: np.ndarray  # bool
    length: np.ndarray
    steps_to_goal: np.ndarray  # steps until the success; without one, the length of the episode


class OpenEpisodes(NamedTuple):
    """Progress of the unfinished episode of each stream, `[B]` each."""

    returns: np.ndarray
    won_at: np.ndarray  # steps until the success, or `_NEVER`

    @classmethod
    def none(cls, num_streams: int) -> "OpenEpisodes":
        return cls(np.zeros(num_streams), np.full(num_streams, _NEVER))


def is_success(spec: EnvSpec, value: Column, terminated: Column, last: Column, best: Column) -> Column:
    """Whether a step makes its episode a success, by `spec.success`; all arguments have one shape.

    `reward`: its value is positive; `goal`: that, and it ends the task; `end`: it ends the task; `survival`: it is the
    `last` of the episode and does not end the task; `best_action`: it is the `last` and its action was optimal."""
    match spec.success:
        case "best_action":
            return best & last
        case "end":
            return terminated
        case "survival":
            return last & ~terminated
    return (value > 0) & terminated if spec.success == "goal" else value > 0


def finished_episodes(rollout: Rollout, before: OpenEpisodes, spec: EnvSpec) -> tuple[Episodes, OpenEpisodes]:
    """Episodes that end in `rollout` `[T, B]`, and the progress of those that do not.

    `before` is the progress of the first episode of each stream in earlier rollouts."""
    reward, timestep, terminated, truncated, action, optimal_action = (
        getattr(rollout, name).T.cpu().numpy()
        for name in ("reward", "timestep", "terminated", "truncated", "action", "optimal_action")
    )  # [B, T]
    value, ends = np.array(spec.reward_values)[reward], terminated.astype(bool)
    done = ends | truncated.astype(bool)
    won = is_success(spec, value, ends, done, action == optimal_action)
    num_streams, num_steps = done.shape
    # Cut the flattened [B * T] steps where a stream begins and after each end: a segment is a part of one episode.
    begins = np.zeros((num_streams, num_steps), bool)
    begins[:, 0] = True
    begins[:, 1:] = done[:, :-1]
    start = np.flatnonzero(begins)
    stream, last = start // num_steps, np.append(start[1:], done.size) - 1
    returns = np.add.reduceat(value.ravel(), start)
    won_at = np.minimum.reduceat(np.where(won, timestep.astype(np.int64) + 1, _NEVER).ravel(), start)
    opening = start % num_steps == 0
    returns[opening] += before.returns
    won_at[opening] = np.minimum(won_at[opening], before.won_at)
    ended = done.ravel()[last]
    length, success = timestep.ravel()[last].astype(np.int64) + 1, won_at != _NEVER
    columns = (stream, returns, success, length, np.where(success, won_at, length))
    still_open = OpenEpisodes.none(num_streams)
    still_open.returns[stream[~ended]] = returns[~ended]
    still_open.won_at[stream[~ended]] = won_at[~ended]
    return Episodes(*(column[ended] for column in columns)), still_open


def numbered(stream: np.ndarray) -> np.ndarray:
    """Numbers 0, 1, 2, ... of episodes within each stream, for episodes ordered by stream."""
    _, first, inverse = np.unique(stream, return_index=True, return_inverse=True)
    return np.arange(len(stream)) - first[inverse]
