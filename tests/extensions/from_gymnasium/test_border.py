"""Observations and actions of every kind against the same environments stepped by hand, and refusals of the others."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space
from harness import done, refusal
from installed import needs
from own_vectors import OWN, check_told_by_its_returns
from toy_env import ACTIONS, LAKES, lake, shaped

from icrl.contracts import ConfigError
from icrl.extensions.from_gymnasium.border import action_space, obs_space, write_action
from icrl.extensions.from_gymnasium.gymnasium_env import GymnasiumConfig, GymnasiumEnv
from icrl.extensions.from_gymnasium.making import wrapper_of
from icrl.extensions.from_gymnasium.streams import PlayedState
from icrl.randomness import integers, stream_seeds
from icrl.spaces import EnvSpec

NUM_STREAMS = 3
TASKS, SEEDS = torch.tensor([[0], [1], [1]]), stream_seeds(0, NUM_STREAMS)
KINDS = [("vector", "box"), ("vector", "discrete"), ("image", "multi"), ("multi", "multi"), ("dict", "box")]
KINDS += [("mission", "discrete")]


def config_of(obs: str, action: str, **changes: Any) -> GymnasiumConfig:
    wrappers = {"dict": ["FlattenObservation"], "mission": ["toy_env:Image"]}.get(obs, [])
    return shaped(obs=obs, action=action, wrappers=wrappers, **changes)


def random_actions(spec: EnvSpec, num_steps: int) -> torch.Tensor:
    """Actions `[T, B, ...]`, those of a Box also beyond its bounds."""
    generator = torch.Generator().manual_seed(0)
    part = torch.rand(num_steps, NUM_STREAMS, *spec.action_shape, generator=generator)
    if isinstance(spec.action_space, Box):
        low, high = (torch.from_numpy(bound) for bound in (spec.action_space.low, spec.action_space.high))
        return low + (high - low) * (1.2 * part - 0.1)
    sizes = getattr(spec.action_space, "nvec", spec.num_actions)
    return (part * torch.as_tensor(sizes)).long()


def by_hand(config: GymnasiumConfig, stream: int, actions: torch.Tensor) -> Iterator[list[Any]]:
    """Transitions of a stream, as `shown` has them."""
    env = gymnasium.make(config.id, disable_env_checker=True, **config.tasks[int(TASKS[stream, 0])])
    for name in config.wrappers:
        env = wrapper_of(name)(env)
    episode, timestep = 0, 0
    env.reset(seed=int(integers(SEEDS[stream], 0, 2**31)))
    for action in actions[:, stream].numpy():
        space = env.action_space
        given = np.clip(action.astype(np.float64), space.low, space.high) if isinstance(space, Box) else action
        final_obs, reward, terminated, truncated, _ = env.step(given)
        obs, timestep = final_obs, timestep + 1
        truncated = truncated or timestep == config.max_episode_steps
        if terminated or truncated:
            episode, timestep = episode + 1, 0
            obs, _ = env.reset(seed=int(integers(SEEDS[stream], episode, 2**31)))
        yield [np.array(obs), np.float32(reward), terminated, truncated, np.array(final_obs), timestep, episode]


WORLDS = {f"{obs} {action}": config_of(obs, action) for obs, action in KINDS}
WORLDS |= {f"lakes, {limit} steps": lake(max_episode_steps=limit, tasks=LAKES[1:]) for limit in (1, 4, 7)}


@pytest.mark.parametrize("world", WORLDS)
def test_steps_are_those_of_the_environment_stepped_by_hand(world: str) -> None:
    env = GymnasiumEnv(WORLDS[world])
    spec, actions = env.spec, random_actions(env.spec, 15)
    assert EnvSpec.of(spec.to_json()) == spec and spec.is_discrete == ("lakes" in world)
    state, step = env.reset(TASKS, SEEDS)
    assert step.obs.equal(step.final_obs) and not (step.terminated | step.truncated).any()
    expected = zip(*(by_hand(WORLDS[world], stream, actions) for stream in range(NUM_STREAMS)), strict=True)
    for chosen, of_streams in zip(actions, expected, strict=True):
        assert step.obs.dtype == step.final_obs.dtype == spec.obs_dtype == state.inner.dtype
        assert step.obs.shape == (NUM_STREAMS, *spec.obs_shape) and step.reward.dtype == torch.float32
        state, step = env.step(state, chosen)
        shown = [step.obs, step.reward, step.terminated, step.truncated, step.final_obs, step.timestep, state.episode]
        for ours, theirs in zip(shown, zip(*of_streams, strict=True), strict=True):
            assert np.array_equal(ours.numpy(), np.array(theirs).astype(ours.numpy().dtype))
        assert torch.equal(state.inner, step.obs) and torch.equal(state.timestep, step.timestep)
        assert torch.allclose(step.optimal_action, env.optimal_action(state), equal_nan=True)
    assert state.episode.min() > 0
    for stream, time in enumerate(state.timestep):
        this_episode = actions[len(actions) - time :, stream]
        assert torch.equal(state.actions[stream, :time], this_episode) and not state.actions[stream, time:].any()


@pytest.mark.parametrize("world", WORLDS)
def test_any_state_is_restored_exactly(world: str) -> None:
    """By an environment that is new or in another state, also in the middle of an episode."""
    env, other = (GymnasiumEnv(WORLDS[world]) for _ in range(2))
    actions, played = random_actions(env.spec, 20), [env.reset(TASKS % len(WORLDS[world].tasks), SEEDS)]
    for chosen in actions:
        played.append(env.step(played[-1][0], chosen))
    for start in (9, 0, 16, 17):
        state = PlayedState(*(field.clone() for field in played[start][0]))
        for expected, chosen in zip(played[start + 1 :], actions[start:], strict=True):
            state, step = other.step(state, chosen)
            pairs = zip((*state, *step), (*expected[0], *expected[1]), strict=True)
            assert all(torch.allclose(a, b, rtol=0, atol=0, equal_nan=True) for a, b in pairs)


def test_actions_reach_the_environment_in_its_own_space() -> None:
    low, high = ACTIONS["box"].low, ACTIONS["box"].high
    largest = high.astype(np.float32)
    assert largest[0] > high[0]  # by rounding
    written = write_action(largest, ACTIONS["box"])
    assert ACTIONS["box"].contains(written) and written.tolist() == [0.1, largest[1]]
    assert write_action(np.array([-9.0, 1.5], np.float32), ACTIONS["box"]).tolist() == [low[0], 1.5]
    assert type(write_action(np.int64(2), ACTIONS["discrete"])) is int
    assert ACTIONS["multi"].contains(write_action(np.array([1, 3]), ACTIONS["multi"]))
    with pytest.raises(ValueError, match="not finite"):
        write_action(np.array([np.nan, 0.0], np.float32), ACTIONS["box"])


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (Box(-3, 3, (3,), np.int64), Box(-3, 3, (3,))),
        (Box(-1e300, 1e300, (2,), np.float64), Box(-np.inf, np.inf, (2,))),
        *((space, space) for space in (Discrete(4), MultiDiscrete([2, 3]))),
    ],
)
def test_vectors_become_float32_and_integers_stay(space: Space, expected: Space) -> None:
    assert obs_space(space) == expected
    if not isinstance(space, Box):
        assert action_space(space) == expected


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"obs": "dict"}, ["observations Dict", "env.wrappers=[FlattenObservation]"]),
        ({"obs": "matrix"}, ["observations Box", "one axis", "env.wrappers=[FlattenObservation]"]),
        ({"obs": "late"}, ["observations Discrete(4, start=1)", "from 0"]),
        ({"obs": "text"}, ["observations Text", "env.wrappers=[FlattenObservation]"]),
        ({"obs": "list"}, ["observations Sequence", "needs one of your own"]),
        ({"obs": "mission"}, ["observations Dict", "env.wrappers=[minigrid.wrappers:ImgObsWrapper], which keeps the"]),
        ({"obs": "mission", "wrappers": ["ClipAction"]}, ["env.wrappers=[ClipAction,minigrid.wrappers:ImgObsWrapper]"]),
        ({"action": "free"}, ["actions Box(-inf, inf", "finite bounds"]),
        ({"action": "whole"}, ["actions Box(0, 5", "a Box of floats"]),
        ({"wrappers": ["Flatten"]}, ["env.wrappers: there is no Flatten", "gymnasium.wrappers"]),
        ({"wrappers": ["FrameStackObservation"]}, ["TypeError", "stack_size"]),
        ({"width": 2}, ["env.width=2", "do not number cells", "give env.width=0"]),
        ({"tasks": [{}, {"action": "discrete"}]}, ["env.tasks[1]={'action': 'discrete'}", "3 actions", "must agree"]),
        ({"tasks": [{}, {"set.inner.mass": 1.0}]}, ["env.tasks[1]", "set.inner.mass=1.0: type has no attribute mass"]),
        ({"tasks": [{}, {"set.gains": [1.0, 2.0, 3.0]}]}, ["env.tasks[1]", "ValueError"]),
    ],
)
def test_spaces_wrappers_and_attributes_that_cannot_be_are_refused(changes: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        GymnasiumEnv(shaped(**changes))
    message = str(refused.value)
    assert all(part in message for part in parts) and "\n" not in message, message


@needs("ppo")
def test_a_world_of_ones_own_without_success_and_pictures_is_told_by_its_returns(tmp_path: Path) -> None:
    source = ("source=ppo_vectors", "objective=ad", "source.hidden_size=8", "source.mini_batch_size=5")
    check_told_by_its_returns(("train_agents", "train_gpt", "evaluate"), source, False, tmp_path)  # none can succeed
    trials = ("finetune.trial_steps=12", "model.context_len=8", "finetune.num_iterations=1", "policy.model=finetuned")
    said = refusal("finetune", tmp_path, *source, *trials, preset=OWN)
    assert "finetune.bonus=0.25" in said and "give finetune.bonus=0" in said
    plain = ("finetune.bonus=0", "evaluation.ablations=false", "evaluation.temperatures=[]")
    rooms = refusal("finetune", tmp_path, *source, *trials, *plain, "finetune.num_rooms=2", preset=OWN)
    assert "env.name=gymnasium has no other rooms" in rooms
    done("finetune", tmp_path, *source, *trials, *plain, preset=OWN)
