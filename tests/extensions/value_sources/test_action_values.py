"""Q-learning and DQN against dictionaries and one plain PyTorch learner."""

import copy
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from probes import OTHER_REWARDS, START, Plain, falling, learn_from, learners_of, random_rollout, sample_of, step_of
from torch import Tensor

from icrl.contracts import Rollout
from icrl.extensions.value_sources.targets import WithTarget


def table_of(learners: Any) -> Tensor:
    """`[L, S, A]`"""
    return dict(learners.parameters())["table"]


# ---- Q-learning


SEEDS = st.integers(0, 10**6)


class Dictionary:
    """One learner, one transition at a time."""

    def __init__(self) -> None:
        self.values = defaultdict(float)

    def update(self, samples: Rollout, weight: list[float], discount: float, learning_rate: float) -> list[float]:
        """All of `[T, W]` at once; the mean absolute error of each window."""
        found, td_error = defaultdict(list), []
        for window, heaviness in enumerate(weight):
            own = []
            for t in range(samples.obs.shape[0]):
                obs, action, reward, next_obs, _, ended, _, _ = (column[t, window].item() for column in samples)
                best = max(self.values[next_obs, other] for other in range(OTHER_REWARDS.num_actions))
                error = reward + (0.0 if ended else discount * best)
                error -= self.values[obs, action]
                found[obs, action].append((heaviness, error))
                own.append(abs(error))
            td_error.append(sum(own) / len(own))
        for cell, errors in found.items():
            mass = sum(heaviness for heaviness, _ in errors) or 1  # a cell of weight 0 does not move
            self.values[cell] += learning_rate * sum(heaviness * error for heaviness, error in errors) / mass
        return td_error


@settings(max_examples=15)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 3), st.floats(0, 1), st.booleans(), SEEDS)
def test_q_learning_equals_dictionaries(num_steps, num_windows, num_learners, discount, weighted, seed):
    """One step of one environment gives the rule of the thesis. The rate falls; weights may be 0."""
    options = {"discount": discount, "learning_rate": falling(1.0, 0.2)}
    learners = learners_of("q_learning", num_learners, OTHER_REWARDS, **options)
    alone, ones = [Dictionary() for _ in range(num_learners)], torch.ones(num_learners * num_windows)
    for update in range(3):
        learners.set_clock(START._replace(iterations=update))
        samples = random_rollout(num_steps, num_learners * num_windows, seed + update)
        weight = random_rollout(1, num_learners * num_windows, seed + update).obs[0].float() if weighted else ones
        values = table_of(learners).amax(-1)
        metrics, td_error = learners.update(sample_of(samples, weight))
        for index, one in enumerate(alone):
            windows = slice(index * num_windows, (index + 1) * num_windows)
            own = Rollout(*(column[:, windows] for column in samples))
            assert metrics["value"][index].item() == pytest.approx(values[index][own.obs].mean().item(), abs=1e-5)
            error = one.update(own, weight[windows].tolist(), discount, 1.0 - 0.2 * update)
            assert td_error[windows].tolist() == pytest.approx(error, abs=1e-5)
            assert metrics["td_error"][index].item() == pytest.approx(np.mean(error), abs=1e-5)
            expected = [
                [one.values[s, a] for a in range(OTHER_REWARDS.num_actions)] for s in range(OTHER_REWARDS.num_obs)
            ]
            assert torch.allclose(table_of(learners)[index], torch.tensor(expected), atol=1e-5)


def test_q_learning_does_not_depend_on_order() -> None:
    """Bit for bit, with each cell met some hundred times."""
    learners, others = (learners_of("q_learning", 2) for _ in range(2))
    for update in range(3):
        samples = random_rollout(600, 4, update)
        learn_from(learners, samples)
        learn_from(others, Rollout(*(column.flip(0) for column in samples)))
    assert torch.equal(table_of(learners), table_of(others))


def test_probabilities_are_epsilon_greedy_with_ties() -> None:
    """epsilon = 0.3 of 3 actions, by hand, for each learner its own table; epsilon is a function of the clock."""
    epsilon = {"kind": "linear", "progress": "percent", "points": [[0, 1.0], [1, 0.3]]}
    for learners in (learners_of("dqn", 2), learners_of("q_learning", 2, epsilon=epsilon)):
        assert torch.allclose(learners.action_probabilities(step_of(torch.arange(6))), torch.full((6, 3), 1 / 3))
    assert learn_from(learners, random_rollout(1, 2, 0)).metrics["epsilon"].tolist() == [1.0, 1.0]
    table = torch.zeros(2, 6, 3)
    table[0, 5], table[1, 5] = torch.tensor([1.0, 3.0, 2.0]), torch.tensor([4.0, -1.0, 4.0])
    learners.load_state_dict({"table": table.flatten(0, 1), "clock": [1.0, 0, 0, 0]})
    expected = torch.tensor([[0.1, 0.8, 0.1], [0.1, 0.8, 0.1], [0.45, 0.1, 0.45], [0.45, 0.1, 0.45]])
    assert torch.allclose(learners.action_probabilities(step_of(torch.full((4,), 5))), expected)
    assert torch.allclose(learners.action_probabilities(step_of(torch.zeros(2).long())), torch.full((2, 3), 1 / 3))


# ---- DQN


class PlainDQN(Plain):
    def __init__(self, learners: Any, index: int) -> None:
        super().__init__(learners, index)
        self.target = self.copied("target_network")

    def update(self, samples: Rollout, weight: Tensor, rate: float, target_rate: float) -> tuple[Any, dict[str, float]]:
        """TD error of each window and metrics, of `samples` `[T, W]` and `weight` `[W]`."""
        values = self.network(samples.obs)
        with torch.no_grad():
            best = self.network(samples.next_obs).argmax(-1, keepdim=True)
            ahead = self.target(samples.next_obs).gather(-1, best)[..., 0] * ~samples.terminated
        error = samples.reward + self.config.discount * ahead - values.gather(-1, samples.action[..., None])[..., 0]
        loss = (weight * error.square()).mean()
        metrics = {"td_error": error.abs().mean().item(), "value": values.amax(-1).mean().item(), "loss": loss.item()}
        metrics |= {"gradient_norm": self.descend(loss, rate), "learning_rate": rate, "epsilon": 0.25}
        with torch.no_grad():
            for slow, fast in zip(self.target.parameters(), self.network.parameters(), strict=True):
                slow.copy_((1 - target_rate) * slow + target_rate * fast)
        return error.detach().abs().mean(0), metrics


@pytest.mark.parametrize("max_gradient_norm", [0.05, 500.0])
def test_dqn_updates_equal_those_of_a_plain_learner(max_gradient_norm: float) -> None:
    """With weights, several steps a window, the gradient clipped and not, and rates that change."""
    rates = {"target_update_rate": falling(0.5, 0.9), "learning_rate": falling(0.06, 0.02), "epsilon": 0.25}
    learners = learners_of("dqn", 2, OTHER_REWARDS, max_gradient_norm=max_gradient_norm, **rates)
    state, luck = copy.deepcopy(learners.state_dict()), torch.Generator().manual_seed(0)
    for name in ("network", "target_network"):  # so that they disagree about the best actions
        state[name] = {key: torch.randn(value.shape, generator=luck) for key, value in state[name].items()}
    learners.load_state_dict(state)
    plain = [PlainDQN(learners, index) for index in range(2)]
    for update in range(4):
        learners.set_clock(START._replace(iterations=update))
        samples, weight = random_rollout(2, 8, update), torch.rand(8, generator=luck)
        metrics, td_error = learners.update(sample_of(samples, weight))
        assert not td_error.requires_grad
        for index, one in enumerate(plain):
            windows = slice(4 * index, 4 * index + 4)
            own = Rollout(*(column[:, windows] for column in samples))
            errors, expected = one.update(own, weight[windows], 0.06 - 0.01 * update, 0.5 + 0.1 * update)
            assert torch.allclose(td_error[windows], errors, atol=1e-4)
            assert {name: values[index].item() for name, values in metrics.items()} == pytest.approx(expected, abs=1e-4)
            assert (expected["gradient_norm"] > max_gradient_norm) == (max_gradient_norm == 0.05)
            one.assert_equal("network", one.network)
            one.assert_equal("target_network", one.target)


def test_target_networks_move_by_their_rate_and_stay_in_eval_mode() -> None:
    """Running means move as parameters do, and counters are copied."""
    made = WithTarget(torch.nn.BatchNorm1d(2), 0.25).train()
    assert made.online.training and not made.target.training and not made.target.weight.requires_grad
    made(torch.tensor([[1.0, 2.0], [3.0, 6.0]]))
    with torch.no_grad():
        made.online.weight += 4
    made.after_update()
    assert made.target.weight.tolist() == [2, 2] and made.target.num_batches_tracked == 1
    assert torch.allclose(made.target.running_mean, 0.25 * made.online.running_mean) and made.online.running_mean.all()
