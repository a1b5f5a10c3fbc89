"""Steps from outside: right ones are taken as they are, wrong ones refused by the name of the field."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import TINY
from hypothesis import given, settings
from hypothesis import strategies as st
from models import outspoken
from point_worlds import point_game
from torch import Tensor

from icrl.config.compose import load_config
from icrl.config.options import replace
from icrl.config.paths import PROJECT
from icrl.config.root import Config
from icrl.contracts import EnvSpec, Step
from icrl.envs import make_env
from icrl.envs.rollout import rollout, start_streams
from icrl.envs.steps import step_of
from icrl.nn.gpt import GPT
from icrl.nn.gpt_policy import GPTPolicy
from icrl.randomness import Noise, stream_seeds

SPEC = EnvSpec(num_obs=9, num_actions=5, reward_values=(0.0, 1.0), width=3, max_episode_steps=6)
POINTS = SPEC._replace(width=0, points=(2, 1))  # observations of 8 numbers
CONFIG = load_config()
ENV = make_env(replace(CONFIG.env, size=4, max_episode_steps=6, random_start=True))
FORM = {"context_len": 8, "embed_dim": 16, "num_layers": 1, "num_heads": 2, "ff_dim": 16}
HIGH = {"obs": 8, "reward": 1, "timestep": 5, "final_obs": 8}  # of SPEC


def fields(num_streams: int = 3, spec: EnvSpec = SPEC, **changes: Any) -> dict[str, Tensor]:
    """Of a step amid episodes that is right but for the `changes`."""
    obs, zero = torch.ones(num_streams, *spec.obs_shape, dtype=torch.long), torch.zeros(num_streams, dtype=torch.long)
    right = {"obs": obs, "reward": zero, "timestep": zero + 2, "final_obs": obs}
    return right | dict.fromkeys(("terminated", "truncated"), zero.bool()) | changes


def policy_of(spec: EnvSpec) -> GPTPolicy:
    return GPTPolicy(outspoken(GPT(replace(CONFIG.model, **FORM), spec)), 1.0, 1.0, 0.5)


@pytest.mark.parametrize("spec", [SPEC, POINTS])
def test_what_is_given_is_what_the_step_holds(spec: EnvSpec) -> None:
    given = fields(spec=spec)
    step = step_of(spec, **given)
    assert all(getattr(step, name) is value for name, value in given.items())
    assert step.optimal_action.tolist() == [spec.num_actions] * 3
    first = step_of(spec, obs=given["obs"])
    assert first.obs is first.final_obs is given["obs"]
    for name in ("reward", "timestep", "terminated", "truncated"):
        assert torch.equal(getattr(first, name), torch.zeros_like(given[name]))


def test_fields_are_given_by_name() -> None:
    with pytest.raises(TypeError, match="positional"):
        step_of(SPEC, *fields().values())  # type: ignore[misc]


@settings(max_examples=100, deadline=None)
@given(
    name=st.sampled_from([*HIGH]), stream=st.integers(0, 2), value=st.integers(-(2**40), 2**40), points=st.booleans()
)
def test_values_are_taken_exactly_where_they_are_in_range(name: str, stream: int, value: int, points: bool) -> None:
    spec = POINTS if points else SPEC
    changed = fields(spec=spec)[name].clone()
    changed.view(3, -1)[stream, -1] = value
    given = fields(spec=spec, **{name: changed})
    if 0 <= value <= HIGH[name]:
        assert torch.equal(getattr(step_of(spec, **given), name), changed)
    else:
        with pytest.raises(ValueError, match=f"^{name} is {value} in some stream: must be from 0 to {HIGH[name]}$"):
            step_of(spec, **given)


@pytest.mark.parametrize("spec", [SPEC, POINTS])
@pytest.mark.parametrize("name", [*fields()])
def test_shapes_and_dtypes_are_checked(name: str, spec: EnvSpec) -> None:
    right = fields(spec=spec)[name]
    other = torch.bool if right.dtype == torch.long else torch.long
    for wrong in (right[:2], right[None], right[..., None], right.to(other), right.float(), right.int()):
        with pytest.raises(ValueError, match=r"^(obs|reward|final_obs|" + name + r") is \(.* must be \("):
            step_of(spec, **fields(spec=spec, **{name: wrong}))
    for wrong, kind in ((right.numpy(), "ndarray"), (right.tolist(), "list")):
        with pytest.raises(ValueError, match=f"^{name} is a {kind}: must be a tensor"):
            step_of(spec, **fields(spec=spec, **{name: wrong}))


def test_what_does_not_go_together_is_refused() -> None:
    obs, zero, ended = torch.ones(3, dtype=torch.long), torch.zeros(3, dtype=torch.long), torch.tensor([True] * 3)
    with pytest.raises(ValueError, match="timestep is missing"):
        step_of(SPEC, obs=obs, reward=zero)
    with pytest.raises(ValueError, match="reward is missing"):
        step_of(SPEC, obs=obs, timestep=zero)
    for name in ("terminated", "truncated"):
        with pytest.raises(ValueError, match="timestep is 2 where an episode ended: must be 0"):
            step_of(SPEC, obs=obs, reward=zero, timestep=zero + 2, **{name: ended})
        assert step_of(SPEC, obs=obs, reward=zero, timestep=zero, **{name: ended})


def test_a_model_that_is_driven_by_hand_does_what_it_does_in_a_rollout() -> None:
    """With numbers that come from elsewhere, step by step."""
    tasks, seeds, number = ENV.all_tasks()[:4], stream_seeds(0, 4), 20
    policy = policy_of(ENV.spec)
    expected, _ = rollout(policy, ENV, start_streams(policy, ENV, tasks, seeds), number, Noise(stream_seeds(1, 4)))
    state, shown = ENV.reset(tasks, seeds)
    step, carry = step_of(ENV.spec, obs=torch.tensor(shown.obs.tolist())), policy.initial_carry(4)
    for t, noise in enumerate(Noise(stream_seeds(1, 4)).draw(number)):
        action, carry = policy.act(carry, step, noise)
        assert torch.equal(action, expected.action[t])
        state, shown = ENV.step(state, action)
        columns = {name: torch.tensor(value.tolist()) for name, value in shown._asdict().items()}
        del columns["optimal_action"]
        step = step_of(ENV.spec, **columns)
    assert expected.terminated.any()


class World:
    """As someone might write it: one that tells what it shows, and keeps everything else to itself."""

    def __init__(self, config: Config) -> None:
        self.env = make_env(config.env)

    def reset(self) -> Tensor:
        self.state, step = self.env.reset(self.env.all_tasks()[:3], stream_seeds(0, 3))
        return step.obs

    def step(self, action: Tensor) -> tuple[Tensor, ...]:
        self.state, step = self.env.step(self.state, action)
        return step.obs, step.reward, step.terminated, step.truncated, step.timestep


def test_the_example_of_the_documentation_runs(finished: Path) -> None:
    text = (PROJECT / "docs/in_context.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    options = [*TINY, f"root={finished}"]
    assert '["experiment=default"]' in example
    names = {"my_world": World(load_config(options))}
    exec(example.replace('["experiment=default"]', repr(options)), names)
    assert names["carry"].seen and names["step"].obs.shape == (3,)


WRONG = {
    "reward is 4 in some stream": lambda step: step._replace(reward=step.timestep + 4, timestep=step.reward),
    r"reward is \(3,\) float32: must be \(3,\) int64, an index": lambda step: step._replace(reward=step.reward.float()),
    r"reward is \(3,\) bool: must be": lambda step: Step(*step[:1], *step[2:4], *step[1:2], *step[4:]),
    "timestep is 6 in some stream": lambda step: step._replace(timestep=step.timestep + 6),
    "timestep is -1 in some stream": lambda step: step._replace(timestep=step.timestep - 1),
    r"timestep is \(1, 3\) int64": lambda step: step._replace(timestep=step.timestep[None]),
    "obs is 10 in some stream": lambda step: step._replace(obs=step.obs + 10),
    r"obs is \(2\D": lambda step: step._replace(obs=step.obs[:2]),
}


@pytest.mark.parametrize("spec", [SPEC, POINTS])
@pytest.mark.parametrize("message", WRONG)
def test_the_model_refuses_steps_that_were_made_wrongly(spec: EnvSpec, message: str) -> None:
    """And nothing of them comes into its context."""
    policy, step, noise = policy_of(spec), step_of(spec, obs=torch.zeros(3, *spec.obs_shape).long()), torch.zeros(3)
    carry = policy.initial_carry(3)
    before = carry.window.clone()
    with pytest.raises(ValueError, match=message):
        policy.act(carry, WRONG[message](step), noise)
    with pytest.raises(ValueError, match=r"noise is \(1,\): must be \(3,\), one for each stream"):
        policy.act(carry, step, noise[:1])
    assert torch.equal(carry.window, before)


def test_worlds_give_steps_that_are_right() -> None:
    """Every one of them is taken, past the ends of episodes."""
    for env in (ENV, point_game(role="agent", opponents=["random_subset"])):
        policy = policy_of(env.spec)
        tasks = env.all_tasks()[:1].repeat(3, 1)
        streams = start_streams(policy, env, tasks, stream_seeds(0, 3))
        for _ in range(12):
            lived, streams = rollout(policy, env, streams, 1, Noise(stream_seeds(1, 3)))
            taken = {name: value for name, value in streams.step._asdict().items() if name != "optimal_action"}
            step_of(env.spec, **taken)
            assert lived.obs.shape[0] == 1
