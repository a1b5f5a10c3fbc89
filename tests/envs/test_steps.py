"""Steps of an environment that is not ours: right ones are kept as they are, wrong ones refused by field name."""

import copy
import re
from typing import Any

import pytest
import torch
from gymnasium.spaces import Discrete, MultiDiscrete
from hypothesis import given, settings
from hypothesis import strategies as st
from models import outspoken
from policies import assert_driven_by_hand
from torch import Tensor
from worlds import room

from icrl.envs.steps import step_of
from icrl.nn.gpt import GPT, GPTConfig
from icrl.nn.gpt_policy import GPTPolicy
from icrl.spaces import EnvSpec, discrete_spec

SPEC = discrete_spec(num_obs=9, num_actions=5, reward_values=(0.0, 1.0), width=3, max_episode_steps=6)
POINTS = discrete_spec(9, 5, (0.0, 1.0), 0, 6, points=(2, 1))  # observations of 8 numbers
HIGH = {"obs": 8, "reward": 1, "timestep": 5, "final_obs": 8}  # of SPEC


def fields(spec: EnvSpec = SPEC, **changes: Any) -> dict[str, Tensor]:
    """Fields of a step of 3 streams amid episodes, right but for the `changes`."""
    obs, zero = torch.ones(3, *spec.obs_shape, dtype=torch.long), torch.zeros(3, dtype=torch.long)
    right = {"obs": obs, "reward": zero.float(), "timestep": zero + 2, "final_obs": obs}
    return right | dict.fromkeys(("terminated", "truncated"), zero.bool()) | changes


def policy_of(spec: EnvSpec) -> GPTPolicy:
    form = GPTConfig(context_len=8, embed_dim=16, num_layers=1, num_heads=2, ff_dim=16)
    return GPTPolicy(outspoken(GPT(form, spec)), 1.0, 1.0, 0.5)


@pytest.mark.parametrize("spec", [SPEC, POINTS])
def test_given_fields_are_kept(spec: EnvSpec) -> None:
    given = fields(spec)
    step = step_of(spec, **given)
    assert all(getattr(step, name) is value for name, value in given.items())
    assert step.optimal_action.tolist() == [spec.num_actions] * 3
    first = step_of(spec, obs=given["obs"])
    assert first.obs is first.final_obs is given["obs"]
    for name in ("reward", "timestep", "terminated", "truncated"):
        assert torch.equal(getattr(first, name), torch.zeros_like(given[name]))


@settings(max_examples=60)
@given(st.sampled_from([*HIGH]), st.integers(0, 2), st.integers(-(2**40), 2**40) | st.integers(-1, 9), st.booleans())
def test_values_are_accepted_exactly_if_they_are_in_range(name: str, stream: int, value: int, points: bool) -> None:
    spec = POINTS if points else SPEC
    changed = fields(spec)[name].clone()
    changed.view(3, -1)[stream, -1] = value
    given = fields(spec, **{name: changed})
    if 0 <= value <= HIGH[name]:
        assert torch.equal(getattr(step_of(spec, **given), name), changed)
    else:
        shown, allowed = f"{value}", f"from 0 to {HIGH[name]}"
        if name == "reward":
            shown, allowed = re.escape(f"{float(changed[stream]):g}"), r"one of \(0\.0, 1\.0\)"
        with pytest.raises(ValueError, match=f"^{name} is {shown} in some stream: must be {allowed}$"):
            step_of(spec, **given)


def test_a_first_step_alone_has_reward_0_where_no_action_pays_it() -> None:
    spec = discrete_spec(9, 5, (-1.0, 1.0), 3, 6)
    assert step_of(spec, obs=torch.ones(3, dtype=torch.long)).reward.tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match=r"^reward is 0 in some stream: must be one of \(-1\.0, 1\.0\)$"):
        step_of(spec, **fields(spec))


@pytest.mark.parametrize("number", [0, 1])
def test_each_number_of_an_observation_has_a_range_of_its_own(number: int) -> None:
    spec = EnvSpec(MultiDiscrete([10, 3] if number else [3, 10]), Discrete(2), (0.0, 1.0), 0, 6)
    obs = torch.zeros(3, 2, dtype=torch.long)
    obs[:, 1 - number], obs[1, number] = 9, 5
    with pytest.raises(ValueError, match=r"^obs is 5 in some stream: must be from 0 to \[(2, 9|9, 2)\]$"):
        step_of(spec, obs=obs)
    obs[1, number] = 2
    assert step_of(spec, obs=obs).obs is obs


@pytest.mark.parametrize("spec", [SPEC, POINTS])
@pytest.mark.parametrize("name", [*fields()])
def test_shapes_and_dtypes_are_checked(name: str, spec: EnvSpec) -> None:
    right = fields(spec)[name]
    other = torch.bool if right.dtype == torch.long else torch.long
    for wrong in (right[:2], right[None], right[..., None], right.to(other), right.double(), right.int()):
        with pytest.raises(ValueError, match=r"^(obs|reward|final_obs|" + name + r") is \(.* must be \("):
            step_of(spec, **fields(spec, **{name: wrong}))
    with pytest.raises(ValueError, match=f"^{name} is a ndarray: must be a tensor"):
        step_of(spec, **fields(spec, **{name: right.numpy()}))


def test_a_first_step_has_no_reward_even_where_every_action_has_one() -> None:
    step = step_of(discrete_spec(4, 2, (-1.0, 1.0), 0, 5), obs=torch.tensor([3]))
    assert step.reward.tolist() == [0]


def test_contradictions_are_refused() -> None:
    right = fields()
    for name, missing in (("reward", "timestep"), ("timestep", "reward")):
        with pytest.raises(ValueError, match=f"{missing} is missing"):
            step_of(SPEC, obs=right["obs"], **{name: right[name]})
    for end in ("terminated", "truncated"):
        with pytest.raises(ValueError, match="timestep is 2 where an episode ended: must be 0"):
            step_of(SPEC, **fields(**{end: torch.tensor([False, True, False])}))


def test_a_model_driven_by_hand_acts_as_in_a_rollout() -> None:
    env = room(size=4, max_episode_steps=6, random_start=True)
    assert_driven_by_hand(policy_of(env.spec), env)


@pytest.mark.parametrize("spec", [SPEC, POINTS])
def test_the_model_refuses_wrong_steps(spec: EnvSpec) -> None:
    """And nothing of them comes into its context."""
    policy, step, noise = policy_of(spec), step_of(spec, obs=torch.zeros(3, *spec.obs_shape).long()), torch.zeros(3)
    carry = policy.initial_carry(3)
    before = copy.deepcopy(carry.window)
    for wrong in ({"reward": step.reward + 0.5}, {"timestep": step.timestep - 1}, {"obs": step.obs[:2]}):
        with pytest.raises(ValueError, match=f"^{next(iter(wrong))} is "):
            policy.act(carry, step._replace(**wrong), noise)
    with pytest.raises(ValueError, match=r"noise is \(1,\): must be \(3,\), one number per stream"):
        policy.act(carry, step, noise[:1])
    assert all(torch.equal(now, then) for now, then in zip(carry.window, before, strict=True))
