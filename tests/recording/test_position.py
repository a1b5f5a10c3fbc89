"""Position of the streams of stage one in a checkpoint."""

from typing import Any, NamedTuple

import pytest
import torch
from stage_one import through_file
from torch import Tensor
from worlds import room

from icrl.envs.rollout import Streams
from icrl.randomness import stream_seeds
from icrl.recording.record import Position


class Memory(NamedTuple):
    seen: Tensor
    inner: Any


def position_with(carry: Any) -> Position:
    env = room(size=3)
    return Position(Streams(*env.reset(env.all_tasks()[:3], stream_seeds(0, 3)), carry))


@pytest.mark.parametrize(
    "carry",
    [
        (),
        torch.arange(3),
        (torch.arange(3), torch.ones(3, 2)),
        (torch.ones(3, 2),),
        Memory(torch.arange(3), (torch.zeros(3), Memory(torch.ones(3), ()))),
    ],
)
def test_carries_of_tensors_in_any_tuples_are_restored(carry: Any) -> None:
    saved = through_file(position_with(carry).state_dict())
    fresh = position_with(carry)
    fresh.load_state_dict(saved)
    torch.testing.assert_close(fresh.streams, position_with(carry).streams)
    assert repr(fresh.streams.carry) == repr(carry)
