"""Models as policies, in a room and in a world with illegal actions, against a slow reference without a cache."""

import pytest
import torch
from gymnasium.spaces import MultiDiscrete
from installed import INDUCTION
from policies import (
    CONTEXT_LEN,
    FRACTIONS,
    NUM_STREAMS,
    Recorded,
    assert_frequencies,
    assert_slow,
    assert_slow_past_full_contexts,
    gpt,
    play,
    slow_logits,
)
from small_models import CONFIG
from torch import Tensor

from icrl import extensions
from icrl.config.options import replace
from icrl.envs import make_env
from icrl.envs.rollout import rollout, start_streams
from icrl.envs.rooms import NUM_ACTIONS, DarkRoom, DarkRoomConfig
from icrl.nn.gpt_policy import GPTPolicy
from icrl.randomness import Noise, stream_seeds
from icrl.spaces import EnvSpec


class MaskedRoom(DarkRoom):
    """A room whose observations are the cell and a flag for each action: legal are all but those into a wall."""

    def __init__(self, size: int, max_episode_steps: int) -> None:
        super().__init__(DarkRoomConfig(size=size, max_episode_steps=max_episode_steps, random_start=True))
        obs = MultiDiscrete([self.num_cells, *[2] * NUM_ACTIONS])
        about = (self.spec.reward_values, 0, max_episode_steps, self.spec.success)
        self.spec = EnvSpec(obs, self.spec.action_space, *about, action_mask=True)

    def observe(self, inner: Tensor) -> Tensor:
        after = self._next_cell[inner[:, None] * NUM_ACTIONS + torch.arange(NUM_ACTIONS)]
        legal = (after != inner[:, None]) | (torch.arange(NUM_ACTIONS) == 0)
        return torch.cat([inner[:, None], legal.long()], dim=1)


ROOM = make_env(replace(CONFIG.env, size=4, max_episode_steps=6, random_start=True))
WORLDS = {"room": ROOM} | ({"mask": MaskedRoom(size=3, max_episode_steps=6)} if "vectors" in extensions.NAMES else {})
MASKED = {"obs_encoding": "coordinates"}
TOKENS, POSITIONS = ("transition", "interleaved", "cross"), ("env_time", "learned", "sinusoidal", "rope", "none")
FORMS = [  # that the cache changes nothing within a context is in `test_gpt.py` for all pairs of tokens and positions
    *(
        ("room", {"tokens": tokens, "position": position})
        for tokens, position in zip(TOKENS * 2, POSITIONS, strict=False)
    ),
    *(("room", {"tokens": tokens, "induction": INDUCTION[-1], "obs_encoding": "framed"}) for tokens in TOKENS),
    ("room", {"tokens": "cross", "num_kv_heads": 1, "position": "rope"}),
    *([("mask", {"tokens": "interleaved", "position": "rope", **MASKED})] if "mask" in WORLDS else []),
]


@pytest.mark.parametrize(("world", "form"), FORMS, ids=str)
def test_logits_equal_the_slow_reference_past_full_contexts(world: str, form: dict) -> None:
    assert_slow_past_full_contexts(WORLDS[world], **form)


@pytest.mark.parametrize(("kept", "num_kept"), [(0.01, 1), (0.3, 2), (0.99, 6)])
def test_any_part_of_the_context_may_be_kept(kept: float, num_kept: int) -> None:
    policy = Recorded(gpt(ROOM.spec), kept=kept)
    played = play(policy, ROOM)
    assert_slow(policy, played, num_kept)
    other = slow_logits(policy.model, played, num_kept % 6 + 1)  # the reference can tell the difference
    assert (policy.noted[CONTEXT_LEN] - other[CONTEXT_LEN]).abs().max() > 1e-3


@pytest.mark.parametrize(("std", "epsilon"), FRACTIONS)
@pytest.mark.parametrize("world", WORLDS)
def test_actions_have_the_frequencies_of_the_policy(world: str, std: float, epsilon: float) -> None:
    form = MASKED if world == "mask" else {}
    assert_frequencies(WORLDS[world], std, epsilon, masked=world == "mask", **form)


def test_two_rollouts_equal_one_and_leave_the_model_untouched() -> None:
    """The policy's memory is in its carry; dropout is off. A stream does not depend on the others."""
    model = gpt(ROOM.spec, residual_dropout=0.5).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    policy = GPTPolicy(model, 1.0, 1.0, 0.5)
    whole = play(policy, ROOM)
    for alone, column in zip(play(policy, ROOM, num_streams=2), whole, strict=True):
        assert torch.equal(alone, column[:, :2])
    streams = start_streams(policy, ROOM, ROOM.all_tasks()[:NUM_STREAMS], stream_seeds(0, NUM_STREAMS))
    noise, done = Noise(stream_seeds(1, NUM_STREAMS)), 0
    for length in (3, 9, 12):
        transitions, streams = rollout(policy, ROOM, streams, length, noise)
        for column, piece in zip(whole, transitions, strict=True):
            assert torch.equal(column[done : done + length], piece)
        done += length
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
