"""Cart pole and pendulum against Gymnasium's own, step by step, with its constants and with drawn ones."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor

from icrl.contracts import Rollout
from icrl.envs.core import State
from icrl.envs.rollout import OpenEpisodes, finished_episodes
from icrl.extensions.vectors.control import CART_POLE, PENDULUM, CartPole, CartPoleConfig, Pendulum, PendulumConfig
from icrl.randomness import stream_seeds

STEPS = 150


def moved(env: Any, task: Tensor, inner: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    zero = torch.zeros(len(inner), dtype=torch.long)
    return env.move(State(task.expand(len(inner), -1), zero, zero, inner, zero), action)


def uniform(*half: float) -> Tensor:
    """States of `STEPS` streams, uniform within `half` around 0."""
    drawn = torch.rand(STEPS, len(half), generator=torch.Generator().manual_seed(0))
    return (2 * drawn - 1) * torch.tensor(half)


@pytest.mark.parametrize("number", [None, 0, 1])
def test_every_step_equals_gymnasiums_cart_pole(number: int | None) -> None:
    """From states inside and outside the limits; Gymnasium computes in float64."""
    env, theirs = CartPole(CartPoleConfig()), gymnasium.make("CartPole-v1").unwrapped
    task = torch.tensor([*CART_POLE.values()]) if number is None else env.all_tasks()[number]
    assert number is None or (task[-1] < 0) == bool(number % 2)
    theirs.length, theirs.masspole, theirs.masscart, theirs.gravity, theirs.force_mag = task.double().tolist()
    theirs.total_mass, theirs.polemass_length = theirs.masspole + theirs.masscart, theirs.masspole * theirs.length
    inner, action = uniform(2.5, 4, 0.22, 4), torch.arange(STEPS) % 2
    after, reward, terminated = moved(env, task, inner, action)
    for i in range(STEPS):
        theirs.reset(seed=0)
        theirs.state = inner[i].double().numpy()
        obs, paid, ended, *_ = theirs.step(int(action[i]))
        assert np.allclose(after[i].numpy(), obs, rtol=1e-6, atol=2e-6)
        assert (float(reward[i]), bool(terminated[i])) == (paid, ended)
    assert 0 < terminated.sum() < STEPS


@pytest.mark.parametrize("number", [None, 0, 1])
def test_every_step_equals_gymnasiums_pendulum(number: int | None) -> None:
    """Torques beyond the bounds are clipped. Gymnasium's torque has no factor: here it is 1 or -1."""
    env, theirs = Pendulum(PendulumConfig()), gymnasium.make("Pendulum-v1").unwrapped
    task = torch.tensor([*PENDULUM.values()]) if number is None else env.all_tasks()[number]
    task[-1] = sign = task[-1].sign()
    theirs.g, theirs.m, theirs.l = task.double().tolist()[:3]
    inner, action = uniform(12, 8), uniform(3)
    after, reward, terminated = moved(env, task, inner, action)
    shown = env.observe(after).numpy()
    for i in range(STEPS):
        theirs.reset(seed=0)
        theirs.state = inner[i].double().numpy()
        obs, paid, *_ = theirs.step((sign * action[i]).numpy())
        assert np.allclose(shown[i], obs, atol=5e-6) and paid == pytest.approx(float(reward[i]), abs=2e-5)
    assert not terminated.any()


def test_the_torque_is_a_factor_of_the_action_but_not_of_its_cost() -> None:
    env = Pendulum(PendulumConfig())
    inner, task = torch.tensor([[0.5, 0.0]]), torch.tensor([10.0, 1.0, 1.0, 0.5])
    (half, paid, _), (whole, _, _) = (
        moved(env, task, inner, torch.tensor([[2.0]])),
        moved(env, torch.tensor([10.0, 1.0, 1.0, 1.0]), inner, torch.tensor([[1.0]])),
    )
    assert half.equal(whole) and paid.item() == pytest.approx(-(0.25 + 0.004))


def test_constants_are_drawn_around_gymnasiums() -> None:
    """Each within a factor of `spread`, the logarithm uniform; every other last one has the other sign."""
    for world, config, constants in ((CartPole, CartPoleConfig, CART_POLE), (Pendulum, PendulumConfig, PENDULUM)):
        env = world(config(num_tasks=2000, spread=2.0))
        factor = env.all_tasks() / torch.tensor([*constants.values()])
        assert (factor[1::2, -1] < 0).all() and (factor[::2, -1] > 0).all() and (factor[:, :-1] > 0).all()
        power = factor.abs().log2().sort(dim=0).values
        assert (power - torch.linspace(-1, 1, 2000)[:, None]).abs().max() < 0.1


@pytest.mark.parametrize(("last", "success"), [(-0.0999, True), (-0.1001, False)])
def test_a_pendulum_succeeds_by_its_last_reward(last: float, success: bool) -> None:
    """Whatever came before it, and nothing earlier counts."""
    spec, (reward, zero) = Pendulum(PendulumConfig()).spec, torch.zeros(2, 3, 1)
    reward[:, 0] = torch.tensor([0.0, -9.0, last])
    truncated = torch.tensor([[False], [False], [True]])
    obs, action, timestep = torch.zeros(3, 1, 3), zero[..., None], torch.arange(3)[:, None]
    played = Rollout(obs, action, reward, obs, timestep, truncated & False, truncated, action)
    episodes, _ = finished_episodes(played, OpenEpisodes.none(1), spec)
    assert (episodes.success.tolist(), episodes.steps_to_goal.tolist()) == ([success], [3])


@pytest.mark.parametrize(
    ("kind", "options", "shown"), [(CartPole, CartPoleConfig, [0, 2]), (Pendulum, PendulumConfig, [0, 1])]
)
def test_hidden_velocities_are_all_that_is_missing(kind: Any, options: Any, shown: list[int]) -> None:
    """Episodes, and their pictures, are the same without them."""
    whole, partial = kind(options()), kind(options(hide_velocity=True))
    tasks, seeds = whole.all_tasks()[:3], stream_seeds(0, 3)
    (state, step), (hidden_state, hidden) = (env.reset(tasks, seeds) for env in (whole, partial))
    for time in range(30):
        assert torch.equal(step.obs[:, shown], hidden.obs) and partial.spec.obs_shape == (2,)
        assert torch.equal(step.final_obs[:, shown], hidden.final_obs) and torch.equal(step.reward, hidden.reward)
        pictures = [
            env.pictures(tasks[0], 0, 0, one.obs[:1], one.obs[:0]) for env, one in ((whole, step), (partial, hidden))
        ]
        assert np.array_equal(*pictures)
        action = torch.tensor([0, 1, time % 2]) if kind is CartPole else torch.tensor([[-2.0], [2.0], [0.5]])
        (state, step), (hidden_state, hidden) = whole.step(state, action), partial.step(hidden_state, action)
