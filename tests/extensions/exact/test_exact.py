"""Exact expectations and plans against enumeration, hand-worked episodes and play."""

import importlib
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from worlds import WORLDS, room

from icrl import extensions
from icrl.envs import make_env
from icrl.envs.core import Outcomes, State, TensorEnv
from icrl.extensions.exact.expectation import Expectation, expectation, noisy_exact, optimal_exact, random_exact
from icrl.extensions.exact.tables import best_actions
from icrl.spaces import discrete_spec

pytestmark = pytest.mark.quick
SUCCESSES = ["reward", "goal", "end", "survival", "best_action", "return"]
VALUES = torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64)


class Chance(TensorEnv):
    """3 places, 2 actions, 2 outcomes, all drawn from a seed; the optimal action is anything."""

    def __init__(self, seed: int, success: str, num_steps: int) -> None:
        self.spec = discrete_spec(3, 2, tuple(VALUES.tolist()), 0, num_steps, success, success_return=1.0)
        generator = torch.Generator().manual_seed(seed)
        table = (2, 3, 2, 2)  # [task, place, action, outcome]
        self.starts = torch.tensor([0, 2])
        self.chances = torch.rand(table, generator=generator, dtype=torch.float64).softmax(-1)
        self.places = torch.randint(3, table, generator=generator)
        self.rewards = torch.randint(3, table, generator=generator)
        self.ends = torch.rand(table, generator=generator) < 0.3
        self.best = torch.randint(2, table[:2], generator=generator)

    def all_tasks(self) -> Tensor:
        return torch.tensor([[0], [1]])

    def outcomes(self, task: Tensor, place: Tensor, action: Tensor) -> Outcomes:
        index = task[..., 0], place, action
        return Outcomes(*(table[index] for table in (self.chances, self.places, self.rewards, self.ends)))

    def optimal_action(self, state: State) -> Tensor:
        return self.best[state.task[..., 0], state.inner]


def enumerated(env: Chance, task: int, first: float) -> tuple[float, float, float]:
    """Success, return and steps if action 0 is taken with probability `first`, over every course of an episode."""
    totals = [0.0, 0.0, 0.0]

    def play(place: int, time: int, chance: float, earned: float, won_at: int | None) -> None:
        for action, outcome in itertools.product(range(2), range(2)):
            index = task, place, action, outcome
            likely = chance * (first if action == 0 else 1 - first) * float(env.chances[index])
            value = float(VALUES[env.rewards[index]])
            end = bool(env.ends[index])
            last = end or time + 1 == env.spec.max_episode_steps
            won = {
                "reward": value > 0,
                "goal": value > 0 and end,
                "end": end,
                "survival": last and not end,
                "return": last and earned + value >= 1.0,
                "best_action": last and action == int(env.best[task, place]),
            }[env.spec.success]
            at = time + 1 if won and won_at is None else won_at
            if last:
                for i, number in enumerate((earned + value, at is not None, time + 1 if at is None else at)):
                    totals[i] += likely * number
            else:
                play(int(env.places[index]), time + 1, likely, earned + value, at)

    for start in (0, 2):
        play(start, 0, 0.5, 0.0, None)
    return totals[1], totals[0], totals[2]


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.sampled_from(SUCCESSES), st.integers(1, 4), st.sampled_from([0.0, 0.3, 0.5, 1.0]))
def test_equals_enumeration(seed: int, success: str, num_steps: int, first: float) -> None:
    env = Chance(seed, success, num_steps)
    probabilities = torch.tensor([first, 1 - first], dtype=torch.float64)
    found = expectation(env, env.all_tasks(), lambda state: probabilities.expand(*state.inner.shape, 2))
    expected = np.array([enumerated(env, task, first) for task in (0, 1)])
    np.testing.assert_allclose(torch.stack(found, dim=1), expected, atol=1e-12)


def means_of(found: Expectation) -> list[float]:
    return [float(values.mean()) for values in found]


def test_a_noisy_first_step_by_hand() -> None:
    """3 x 3, goal above the centre: the step is optimal with probability 1 - noise + noise / 5."""
    for noise in (0.0, 0.25, 1.0):
        found = noisy_exact(room(size=3, max_episode_steps=1), torch.tensor([[1]]), noise)
        assert found.returns.item() == pytest.approx(1 - 0.8 * noise)


def test_published_numbers_of_rooms() -> None:
    """80 goals of 9 x 9 cells, and all 289 of 17 x 17 where the centre is one too."""
    classic, terminating, hard = room(terminate_on_goal=False), room(), room(size=17)
    tasks, hard_tasks = classic.all_tasks(), torch.arange(289)[:, None]
    assert means_of(random_exact(classic, tasks)) == pytest.approx([0.120, 0.235, 18.71], abs=5e-3)
    assert means_of(random_exact(terminating, tasks)) == pytest.approx([0.120, 0.120, 18.71], abs=5e-3)
    assert means_of(optimal_exact(classic, tasks)) == pytest.approx([1, 16.5, 4.5])
    assert means_of(optimal_exact(terminating, tasks)) == pytest.approx([1, 1, 4.5])
    assert means_of(random_exact(hard, hard_tasks))[0] == pytest.approx(0.037, abs=5e-4)
    assert means_of(random_exact(hard, hard.all_tasks()))[0] == pytest.approx(0.0354, abs=5e-5)


MADE = dict(WORLDS)
if "from_gymnasium" in extensions.NAMES:
    MADE["lake"] = lambda: make_env(importlib.import_module("toy_env").lake())


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_optimal_actions_are_optimal(make) -> None:
    """By backward induction over all outcomes, in every state and at every time of an episode."""
    env = make()
    tasks = env.all_tasks()[:: max(1, len(env.all_tasks()) // 60)]
    place = torch.arange(env.num_states)[None, :, None]  # [N, S, A]
    task = tasks[:, None, None].expand(-1, env.num_states, env.spec.num_actions, -1)
    chance, after, reward, ends = env.outcomes(task, place, torch.arange(env.spec.num_actions))
    assert torch.allclose(chance.double().sum(-1), torch.ones(1, dtype=torch.float64))
    here = torch.arange(env.num_states).expand(len(tasks), -1)
    zero = torch.zeros_like(here)
    value = torch.zeros(len(tasks), env.num_states, dtype=torch.float64)
    paid = torch.tensor(env.spec.reward_values, dtype=torch.float64)[reward]
    for time in reversed(range(env.spec.max_episode_steps)):
        best = env.optimal_action(State(task[:, :, 0], zero, zero, here, zero + time))
        later = value.gather(1, after.flatten(1)).view(after.shape)
        gain = (chance * (paid + later.masked_fill(ends, 0.0))).sum(-1)  # [N, S, A]
        value = gain.amax(-1)
        assert torch.allclose(gain.gather(-1, best[..., None])[..., 0], value)
    assert torch.allclose(optimal_exact(env, tasks).returns, value[:, env.starts].mean(1))


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_plans_have_the_largest_return_and_then_the_fewest_steps(seed: int, num_steps: int) -> None:
    """Against a recursion over every action; the world's probabilities and rewards make ties frequent, and exact."""
    env = Chance(seed, "reward", num_steps)
    chances = torch.where(env.chances > 0.5, 0.75, 0.25)
    best = best_actions(Outcomes(chances, env.places, env.rewards, env.ends), VALUES, num_steps)
    assert best.shape == (2, num_steps, 3)

    def plan(task: int, place: int, left: int, action: int) -> tuple[float, float]:
        """Return and negative length of the rest of an episode that starts with `action`."""
        total, length = 0.0, -1.0
        for outcome in range(2):
            index = task, place, action, outcome
            goes_on = left > 1 and not env.ends[index]
            later = best_of(task, int(env.places[index]), left - 1) if goes_on else (0.0, 0.0)
            total += float(chances[index]) * (float(VALUES[env.rewards[index]]) + later[0])
            length += float(chances[index]) * later[1]
        return total, length

    def best_of(task: int, place: int, left: int) -> tuple[float, float]:
        return max(plan(task, place, left, action) for action in range(2))

    for task, time, place in itertools.product(range(2), range(num_steps), range(3)):
        left = num_steps - time
        assert plan(task, place, left, int(best[task, time, place])) == best_of(task, place, left)


def test_memory_is_bounded_without_a_difference() -> None:
    env = room(size=4)
    tasks = env.all_tasks()
    whole = noisy_exact(env, tasks, 0.3)
    parts = noisy_exact(env, tasks, 0.3, max_cells=4 * 16 * 5)  # places, actions: 4 tasks at once
    assert all(torch.equal(a, b) for a, b in zip(parts, whole, strict=True))
