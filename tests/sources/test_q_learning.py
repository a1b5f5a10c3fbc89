"""Tabular Q-learning against a dictionary that learns step by step, against numbers worked out by hand, and on
environments whose values are known."""

import copy
from collections import defaultdict
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from probes import (
    CPU,
    ENDLESS,
    MATCH_IT,
    ONE_STEP,
    OTHER_REWARDS,
    SPEC,
    START,
    TWO_STEPS,
    Probe,
    alone_and_among_others,
    falling,
    learn_from,
    learn_world,
    random_rollout,
    sample_of,
    step_of,
    transition,
)
from torch import Tensor

from icrl.collection.collect import LocalUnrollWorker, collect, make_learners
from icrl.collection.episode_statistics import EpisodeStatistics
from icrl.collection.experience import Experience
from icrl.config.compose import load_config
from icrl.config.options import replace
from icrl.config.training_schema import QLearningConfig
from icrl.contracts import EnvSpec, Rollout
from icrl.envs import make_env
from icrl.randomness import stream_seeds
from icrl.sources.q_learning import QLearning

CONFIG = load_config(["source=q_learning"])


def source_config(**changes: Any) -> QLearningConfig:
    return replace(cast(QLearningConfig, CONFIG.source), **changes)


def learners_of(num_learners: int, spec: EnvSpec = SPEC, **changes: Any) -> QLearning:
    learners = QLearning(source_config(**changes), spec, stream_seeds(0, num_learners), CPU)
    learners.set_clock(START)
    return learners


def table_of(learners: QLearning) -> Tensor:
    """`[L, S, A]`"""
    ((name, table),) = learners.parameters()
    assert name == "table"
    return table


def test_targets_by_hand() -> None:
    """discount 0.5, rate 0.5, all values 2 at first. A step on: 1 + 0.5 * 2 = 2, no change. The end: 1. The clock's
    end bootstraps: from a state whose best value is still 2, then from one that has learned."""
    learners = learners_of(1, discount=0.5, learning_rate=0.5, initial_value=2.0)
    learn_from(learners, transition(0, 1, 1, 3, terminated=False, truncated=False))
    assert (table_of(learners) == 2).all()
    metrics, td_error = learn_from(learners, transition(0, 1, 1, 3, terminated=True, truncated=False))
    assert table_of(learners)[0, 0].tolist() == [2.0, 1.5, 2.0]
    assert metrics["td_error"].tolist() == [1.0] and metrics["value"].tolist() == [2.0]
    assert td_error is not None and td_error.tolist() == [1.0]
    learn_from(learners, transition(4, 0, 0, 0, terminated=False, truncated=True))
    assert table_of(learners)[0, 4].tolist() == [1.5, 2.0, 2.0]  # half-way to 0 + 0.5 * max(2, 1.5, 2)
    learn_from(learners, transition(4, 2, 0, 4, terminated=True, truncated=True))
    assert table_of(learners)[0, 4].tolist() == [1.5, 2.0, 1.0]  # both: the task ended
    assert (table_of(learners)[0, [1, 2, 3, 5]] == 2).all()


def several(*met: Rollout) -> Rollout:
    """Single transitions as windows of one step."""
    return Rollout(*(torch.cat(column, dim=1) for column in zip(*met, strict=True)))


def test_a_cell_that_is_met_often_moves_once_towards_the_mean_of_its_targets() -> None:
    """Targets 1, 1, 0 and, from the table before the update, 0.5 * 0.8 of the cell itself: their mean is 0.6."""
    learners = learners_of(1, discount=0.5, learning_rate=0.5, initial_value=0.8)
    parts = [(1, True), (1, True), (0, True), (0, False)]
    met = several(*(transition(2, 1, reward, 2, terminated, not terminated) for reward, terminated in parts))
    metrics, td_error = learn_from(learners, Rollout(*(column.reshape(2, 2) for column in met)))
    assert table_of(learners)[0, 2].tolist() == pytest.approx([0.8, 0.7, 0.8])
    assert metrics["td_error"].item() == pytest.approx((0.2 + 0.2 + 0.8 + 0.4) / 4)
    assert metrics["value"].item() == pytest.approx(0.8)
    assert td_error is not None and td_error.tolist() == pytest.approx([(0.2 + 0.8) / 2, (0.2 + 0.4) / 2])


def test_the_mean_is_weighted() -> None:
    """Targets 1, 0, 0 with weights 3, 0.5, 0.5: their mean is 3/4. A cell of weight 0 stays where it is; the weights of
    one cell do not matter to another."""
    learners = learners_of(1, discount=0.5, learning_rate=0.5, initial_value=0.0)
    met = [transition(2, 1, reward, 0, terminated=True, truncated=False) for reward in (1, 0, 0)]
    met += [transition(3, 0, 1, 0, terminated=True, truncated=False)] * 2
    weight = torch.tensor([3.0, 0.5, 0.5, 0.0, 0.0])
    learned = learners.update(sample_of(several(*met), weight))
    assert table_of(learners)[0, 2].tolist() == [0.0, 0.375, 0.0]
    assert (table_of(learners)[0, 3] == 0).all()
    assert learned.td_error is not None and learned.td_error.tolist() == [1.0, 0.0, 0.0, 1.0, 1.0]  # not weighted
    learners.update(sample_of(several(*met), torch.tensor([1.0, 0.0, 0.0, 0.0, 1e-3])))
    assert table_of(learners)[0, 2, 1].item() == 0.6875 and table_of(learners)[0, 3, 0].item() == 0.5


class Dictionary:
    """One learner, one transition at a time."""

    def __init__(self, initial_value: float) -> None:
        self.values = defaultdict(lambda: initial_value)

    def best(self, obs: int) -> float:
        return max(self.values[obs, action] for action in range(SPEC.num_actions))

    def update(self, samples: Rollout, weight: list[float], discount: float, learning_rate: float) -> list[float]:
        """All of `[T, W]` at once; the mean absolute error of each window."""
        found, td_error = defaultdict(list), []
        for window, heaviness in enumerate(weight):
            own = []
            for t in range(samples.obs.shape[0]):
                obs, action, reward, next_obs, _, ended, _, _ = (column[t, window].item() for column in samples)
                ahead = 0.0 if ended else discount * self.best(next_obs)
                error = OTHER_REWARDS.reward_values[reward] + ahead - self.values[obs, action]
                found[obs, action].append((heaviness, error))
                own.append(abs(error))
            td_error.append(sum(own) / len(own))
        for cell, errors in found.items():
            mass = sum(heaviness for heaviness, _ in errors)
            self.values[cell] += learning_rate * sum(heaviness * error for heaviness, error in errors) / mass
        return td_error


@settings(max_examples=40, deadline=None)
@given(
    num_steps=st.integers(1, 5),
    num_windows=st.integers(1, 4),
    num_learners=st.integers(1, 3),
    discount=st.floats(0, 1),
    initial_value=st.floats(-2, 2),
    weighted=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_updates_equal_those_of_dictionaries(
    *,
    num_steps: int,
    num_windows: int,
    num_learners: int,
    discount: float,
    initial_value: float,
    weighted: bool,
    seed: int,
) -> None:
    """With one step of one environment it is the rule of the paper. The rate falls with the iterations."""
    options = {"discount": discount, "learning_rate": falling(1.0, 0.2), "initial_value": initial_value}
    learners = learners_of(num_learners, OTHER_REWARDS, **options)
    alone = [Dictionary(initial_value) for _ in range(num_learners)]
    for update in range(4):
        learners.set_clock(START._replace(iterations=update))
        samples = random_rollout(num_steps, num_learners * num_windows, seed + update)
        weight = torch.ones(num_learners * num_windows)
        if weighted:
            weight = torch.rand(len(weight), generator=torch.Generator().manual_seed(seed + update)) + 0.1
        values = table_of(learners).amax(-1)
        metrics, td_error = learners.update(sample_of(samples, weight))
        assert td_error is not None
        for index, one in enumerate(alone):
            windows = slice(index * num_windows, (index + 1) * num_windows)
            own = Rollout(*(column[:, windows] for column in samples))
            assert metrics["value"][index].item() == pytest.approx(values[index][own.obs].mean().item(), abs=1e-5)
            error = one.update(own, weight[windows].tolist(), discount, 1.0 - 0.2 * update)
            assert td_error[windows].tolist() == pytest.approx(error, abs=1e-5)
            assert metrics["td_error"][index].item() == pytest.approx(np.mean(error), abs=1e-5)
            expected = [[one.values[s, a] for a in range(SPEC.num_actions)] for s in range(SPEC.num_obs)]
            assert torch.allclose(table_of(learners)[index], torch.tensor(expected), atol=1e-5)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_order_and_threads_change_nothing(seed: int) -> None:
    """Bit for bit, with each cell met some hundred times."""
    tables, before = [], torch.get_num_threads()
    for threads, flipped in ((1, False), (1, True), (2, False)):
        torch.set_num_threads(threads)
        learners = learners_of(2, initial_value=0.1)
        for update in range(3):
            samples = random_rollout(600, 4, seed + update)
            learn_from(learners, Rollout(*(column.flip(0) if flipped else column for column in samples)))
        tables.append(table_of(learners))
    torch.set_num_threads(before)
    assert torch.equal(tables[0], tables[1])
    assert torch.equal(tables[0], tables[2])


@pytest.mark.parametrize("index", [0, 2, 3])
def test_a_learner_alone_equals_itself_among_others(index: int) -> None:
    one, all_learners = alone_and_among_others(QLearning, source_config(epsilon=0.3), index, 2, 30)
    assert torch.equal(table_of(one)[0], table_of(all_learners)[index])


def learn(env: Probe, num_updates: int) -> Tensor:
    """`[S, A]` after learning with discount 0.5 from random actions."""
    return table_of(learn_world(QLearning, source_config(discount=0.5, epsilon=1.0), env, num_updates))[0]


def test_probe_value_of_one_step() -> None:
    assert learn(ONE_STEP, 30).tolist() == [[pytest.approx(1.0)] * 2]


def test_probe_the_right_action_for_each_observation() -> None:
    assert torch.allclose(learn(MATCH_IT, 60), torch.eye(2), atol=1e-5)


def test_probe_discounting() -> None:
    assert learn(TWO_STEPS, 60).flatten().tolist() == pytest.approx([0.5, 1.0])


def test_probe_truncation_bootstraps() -> None:
    """1 + 1/2 + 1/4 + ... = 2, though an episode is two steps long; with its end as the task's end it were < 1.5."""
    assert learn(ENDLESS, 100).item() == pytest.approx(2.0)


def test_probabilities_are_epsilon_greedy_with_ties() -> None:
    """epsilon = 0.3 of 3 actions, by hand, for each learner its own table; and epsilon is a function of the clock."""
    epsilon = {"kind": "linear", "progress": "percent", "points": [[0, 1.0], [1, 0.3]]}
    learners = learners_of(2, epsilon=epsilon)
    assert torch.allclose(learners.action_probabilities(step_of(torch.arange(6))), torch.full((6, 3), 1 / 3))
    assert learn_from(learners, random_rollout(1, 2, 0)).metrics["epsilon"].tolist() == [1.0, 1.0]
    learners.set_clock(START._replace(percent=1.0))
    table = torch.zeros(2, 6, 3)
    table[0, 5], table[1, 5] = torch.tensor([1.0, 3.0, 2.0]), torch.tensor([4.0, -1.0, 4.0])
    learners.load_state_dict({"table": table.flatten(0, 1), "clock": [1.0, 0, 0, 0]})
    expected = torch.tensor([[0.1, 0.8, 0.1], [0.1, 0.8, 0.1], [0.45, 0.1, 0.45], [0.45, 0.1, 0.45]])
    assert torch.allclose(learners.action_probabilities(step_of(torch.full((4,), 5))), expected)
    assert torch.allclose(learners.action_probabilities(step_of(torch.zeros(2).long())), torch.full((2, 3), 1 / 3))
    assert torch.equal(learners.outputs()["q_values"], table.flatten(0, 1))
    assert learn_from(learners, random_rollout(1, 2, 0)).metrics["epsilon"].tolist() == pytest.approx([0.3, 0.3])


@pytest.mark.parametrize("epsilon", [0.0, 0.25, 1.0])
def test_act_samples_the_probabilities(epsilon: float) -> None:
    """An even grid of noise turns probabilities into counts; at epsilon 0 only best actions are ever taken, even at
    the ends of the noise."""
    count = 4000
    learners = learners_of(2, epsilon=epsilon, learning_rate=0.5)
    learn_from(learners, random_rollout(2, 4, 0))
    noise = ((torch.arange(count) + 0.5) / count).repeat(2)
    ends = torch.tensor([0.0, 1 - 2**-24]).repeat(2)
    for obs in range(SPEC.num_obs):
        probabilities = learners.action_probabilities(step_of(torch.full((2,), obs)))
        action, carry = learners.act(learners.initial_carry(2 * count), step_of(torch.full((2 * count,), obs)), noise)
        assert carry == ()
        at_ends, _ = learners.act((), step_of(torch.full((4,), obs)), ends)
        for index in range(2):
            shares = action[index * count : (index + 1) * count].bincount(minlength=3) / count
            assert torch.allclose(shares, probabilities[index], atol=2 / count)
            assert (probabilities[index][at_ends[2 * index : 2 * index + 2]] > 0).all()


def test_a_restored_learner_goes_on_as_the_saved_one() -> None:
    rate = {"kind": "linear", "progress": "percent", "points": [[0, 1.0], [1, 0.0]]}
    first, second = learners_of(2, epsilon=rate), learners_of(2, epsilon=rate, initial_value=1.0)
    first.set_clock(START._replace(percent=0.8))
    learn_from(first, random_rollout(4, 4, 0))
    saved = copy.deepcopy(first.state_dict())  # as through a file
    second.load_state_dict(saved)
    step = step_of(torch.arange(4))
    for update in range(1, 4):
        assert torch.equal(first.action_probabilities(step), second.action_probabilities(step))
        for learner in (first, second):
            learn_from(learner, random_rollout(4, 4, update))
    assert torch.equal(table_of(first), table_of(second))
    assert not torch.equal(table_of(first).flatten(0, 1), saved["table"])  # which was copied


def test_a_wrong_number_of_streams_is_refused() -> None:
    with pytest.raises(ValueError, match="5 streams for 2 learners"):
        learners_of(2).initial_carry(5)


def test_it_learns_every_goal_of_a_small_room() -> None:
    """24 goals, one learner each with 5 environments: random at first, and at the end on a shortest path to each."""
    sizes = ["env.size=5", "env.max_episode_steps=10", "source.num_learners=1", "source.num_envs=5"]
    config = load_config(["source=q_learning", *sizes, "source.num_env_steps=10000", "source.history_steps=10000"])
    env = make_env(config.env)
    goals = env.all_tasks()
    learner, streams, noise = make_learners(config, env, goals, CPU)
    player = LocalUnrollWorker(config.source, env, learner, streams, noise)
    experience = Experience(config, env.spec, goals, CPU)
    unrolls = [transitions for transitions, _, _ in collect(learner, player, experience)]
    early, late = (EpisodeStatistics(env.spec, 24, 5) for _ in range(2))
    for statistics, block in ((early, unrolls[:100]), (late, unrolls[-200:])):
        statistics.add(Rollout(*(torch.cat(column) for column in zip(*block, strict=True))))
    assert early.summary()["success"].mean() < 0.5
    assert late.summary()["success"].min() == 1.0
    distance = (goals[:, 0] // 5 - 2).abs() + (goals[:, 0] % 5 - 2).abs()  # from the centre
    assert late.summary()["episode_length"].tolist() == distance.tolist()
