"""From transitions to episodes: what each episode of each stream returned, and how long it took."""

from typing import NamedTuple

import numpy as np

from src.contracts import Rollout


class Episodes(NamedTuple):
    """Finished episodes, ordered by stream and then by time; arrays of one number an episode."""

    stream: np.ndarray
    returns: np.ndarray
    length: np.ndarray
    steps_to_reward: np.ndarray  # steps until the first reward; where none came, the episode's length


class OpenEpisodes(NamedTuple):
    """What the unfinished episode of each stream has so far, `[B]` each."""

    returns: np.ndarray
    first_reward: np.ndarray  # steps until the first reward, or a number no episode reaches

    @classmethod
    def none(cls, num_streams: int) -> "OpenEpisodes":
        return cls(np.zeros(num_streams, np.int64), np.full(num_streams, _NEVER))


_NEVER = np.iinfo(np.int64).max


def finished_episodes(rollout: Rollout, before: OpenEpisodes) -> tuple[Episodes, OpenEpisodes]:
    """The episodes that end in `rollout` `[T, B]`; `before` holds what the first episode of each stream brought along
    from earlier rollouts, and what is returned beside the episodes is the same for the next."""
    reward, timestep, done = (
        column.T.cpu().numpy()
        for column in (rollout.reward, rollout.timestep, (rollout.terminated | rollout.truncated).bool())
    )  # [B, T]
    num_streams, num_steps = done.shape
    # Cut the flattened [B * T] steps where a stream begins and after each end; a segment is an episode's part.
    begins = np.zeros((num_streams, num_steps), bool)
    begins[:, 0] = True
    begins[:, 1:] = done[:, :-1]
    start = np.flatnonzero(begins)
    stream = start // num_steps
    last = np.append(start[1:], done.size) - 1
    returns = np.add.reduceat(reward.ravel(), start)
    first_reward = np.minimum.reduceat(np.where(reward > 0, timestep + 1, _NEVER).ravel(), start)
    opening = start % num_steps == 0
    returns[opening] += before.returns
    first_reward[opening] = np.minimum(first_reward[opening], before.first_reward)
    ended = done.ravel()[last]
    length = timestep.ravel()[last] + 1
    episodes = Episodes(
        stream[ended], returns[ended], length[ended], np.where(first_reward == _NEVER, length, first_reward)[ended]
    )
    still_open = OpenEpisodes.none(num_streams)
    still_open.returns[stream[~ended]] = returns[~ended]
    still_open.first_reward[stream[~ended]] = first_reward[~ended]
    return episodes, still_open


def numbered(stream: np.ndarray) -> np.ndarray:
    """For episodes ordered by stream: 0, 1, 2, ... within each stream."""
    _, first, inverse = np.unique(stream, return_index=True, return_inverse=True)
    return np.arange(len(stream)) - first[inverse]
