"""Replay of single transitions of the point game: one learner, one stream, windows of one step.

C stored transitions, W drawn transitions, D numbers in an observation.
"""

from typing import NamedTuple

from torch import Tensor

from icrl.collection.replay import Priorities, Replay
from icrl.contracts import PipelineError
from icrl.point_game.options import TransitionsConfig


class Transitions(NamedTuple):
    """Batch of moves of one role. If a game was truncated, `next_observation` is its last one, for the bootstrap."""

    observation: Tensor  # [W, D]
    action: Tensor  # [W] int64
    reward: Tensor  # [W]
    terminated: Tensor  # [W] bool
    next_observation: Tensor  # [W, D]


def transition_replay(config: TransitionsConfig, like: Transitions) -> Replay[Transitions]:
    """Replay of `replay.size` transitions, drawn uniformly or by priority, in columns `[C, 1, ...]` with the dtypes and
    device of `like`. Raises `PipelineError` if there is not enough memory."""
    try:
        columns = Transitions(*(one.new_zeros(config.size, 1, *one.shape[1:]) for one in like))
    except RuntimeError as error:  # the only type that the allocator raises
        raise PipelineError(f"replay.size={config.size}: there is not enough memory for it; lower it") from error
    rates, device = (config.alpha, config.beta, config.eps), like.action.device
    priorities = Priorities(1, config.size, *rates, device) if config.kind == "prioritised" else None
    return Replay(columns, 1, 1, priorities, from_oldest=False, dtype=like.reward.dtype)


def as_columns(transitions: Transitions) -> Transitions:
    """Transitions `[W, ...]` as columns `[W, 1, ...]` of the single stream of a replay."""
    return Transitions(*(column[:, None] for column in transitions))


def drawn_transitions(columns: Transitions) -> Transitions:
    """Windows `[1, W, ...]` of a replay as transitions `[W, ...]`."""
    return Transitions(*(column[0] for column in columns))
