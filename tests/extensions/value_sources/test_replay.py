"""The ring of newest steps and what is drawn from it, against queues, loops and formulas."""

from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from icrl.app.compose import load_config
from icrl.config.options import replace
from icrl.config.schedules import Clock
from icrl.contracts import Rollout
from icrl.extensions.value_sources.replay import Replay, rollout_replay
from icrl.extensions.value_sources.sum_tree import SumTree
from icrl.spaces import discrete_spec

CPU = torch.device("cpu")
SPEC = discrete_spec(100_000, 5, (0.0, 1.0), 0, 300)
CLOCK = Clock(0.5, 7, 100, 20)
UNIFORM = load_config(["source=dqn", "source.priority_replay=false"]).source
LINEAR = {"kind": "linear", "progress": "percent", "points": [[0, 0.0], [1, 1.0]]}


def steps_of(first: int, count: int, streams: Tensor) -> Rollout:
    """Steps `first`, `first` + 1, ... of `streams` `[B]`, whose observation tells step and stream."""
    obs = torch.arange(first, first + count)[:, None] * 100 + streams
    return Rollout(obs, obs % 5, (obs % 2).float(), obs + 1, obs % 300, obs % 3 == 0, obs % 7 == 0, obs % 4)


def assert_whole(rollout: Rollout, length: int) -> None:
    """Every column belongs to the same step, and the steps of a window follow each other in one stream."""
    assert rollout.obs.shape[0] == length
    for ours, theirs in zip(rollout, steps_of(0, 1, rollout.obs), strict=True):
        assert ours.dtype == theirs.dtype and torch.equal(ours, theirs)
    assert torch.equal(rollout.obs, rollout.obs[0] + 100 * torch.arange(length)[:, None])


@st.composite
def lives(draw: st.DrawFn) -> tuple[Any, ...]:
    """Learners, environments, capacity, steps of a window and of each unroll; there is a window in the end."""
    capacity = draw(st.integers(1, 12))
    length = draw(st.integers(1, capacity))
    unrolls = draw(st.lists(st.integers(1, 17), min_size=1, max_size=6).filter(lambda steps: sum(steps) >= length))
    return draw(st.integers(1, 3)), draw(st.integers(1, 3)), capacity, length, unrolls


def filled(life: Any, **changes: Any) -> tuple[Replay[Rollout], int]:
    """Replay after a life, and the number of steps of each stream."""
    num_learners, num_envs, capacity, length, unrolls = life
    source = replace(UNIFORM, num_envs=num_envs, replay_buffer_length=capacity, **changes)
    replay, done = rollout_replay(source, SPEC, num_learners, length, CPU), 0
    for count in unrolls:
        replay.add(steps_of(done, count, torch.arange(num_learners * num_envs)))
        done += count
    return replay, done


@settings(max_examples=50)
@given(lives(), st.booleans())
def test_the_newest_steps_are_kept_and_every_window_can_be_drawn(life: Any, priority: bool) -> None:
    """As many draws as there are windows of even priority give each of them once."""
    num_learners, num_envs, capacity, length, _ = life
    replay, done = filled(life, priority_replay=priority)
    windows = range(max(0, done - capacity), done - length + 1)
    per_learner = num_envs * len(windows)
    drawn = replay.draw(per_learner, torch.tensor(3), CLOCK)
    assert_whole(drawn.rollout, length)
    assert drawn.weight.tolist() == [[1.0] * per_learner] * num_learners
    for learner, starts in enumerate(drawn.rollout.obs[0].unflatten(0, (num_learners, -1)).tolist()):
        streams = range(learner * num_envs, (learner + 1) * num_envs)
        assert sorted(starts) == [100 * step + stream for step in windows for stream in streams]


@settings(max_examples=30)
@given(lives(), st.integers(1, 5), st.integers(0, 99))
def test_a_sweep_deals_out_all_that_is_kept(life: Any, batches: int, seed: int) -> None:
    """In whole windows from the newest step backwards, to every learner the same of its own."""
    num_learners, num_envs, capacity, length, _ = life
    replay, done = filled(life)
    kept = min(done, capacity) // length * length
    batches = min(batches, kept // length * num_envs)
    parts = list(replay.sweep(batches, torch.tensor(seed)))
    sizes = [part.obs.shape[1] // num_learners for part in parts]
    assert len(parts) == batches and max(sizes) - min(sizes) <= 1
    used = []
    for part in parts:
        assert_whole(part, length)
        each = part.obs.unflatten(1, (num_learners, -1)) - num_envs * torch.arange(num_learners)[:, None]
        used += each[:, 0].flatten().tolist()
        assert (each == each[:, :1]).all()
    assert sorted(used) == [100 * step + env for step in range(done - kept, done) for env in range(num_envs)]


@settings(max_examples=30)
@given(lives(), st.randoms(use_true_random=False), st.sampled_from([0.0, 0.5, 2.0, 150.0]))
@example((1, 1, 9, 2, [4, 1]), Random(0), 2.0)  # learned priorities stay when a step is added
def test_priorities_against_a_table(life: Any, random: Any, alpha: float) -> None:
    """Of each learner, by stream and step: a window that can newly be drawn has the largest priority there is, at least
    1; one that was learned from (td_error + 1e-6)^alpha; one without enough steps none."""
    num_learners, num_envs, capacity, length, unrolls = life
    rates = {"priority_replay_alpha": alpha}
    replay, done = filled((*life[:4], []), priority_replay=True, **rates)
    streams, tables = torch.arange(num_learners * num_envs), [{} for _ in range(num_learners)]

    def compare() -> None:
        assert replay._priorities is not None
        for learner, table in enumerate(tables):
            expected = torch.zeros(num_envs, capacity, dtype=torch.float64)
            for k, priority in table.items():
                expected[k % 100 - learner * num_envs, k // 100 % capacity] = priority
            ours = replay._priorities.values[learner].view(num_envs, capacity)
            torch.testing.assert_close(ours, expected, rtol=1e-6, atol=0)

    for count in unrolls:
        replay.add(steps_of(done, count, streams))
        done += count
        for learner, table in enumerate(tables):
            newest = max(1.0, *table.values()) if table else 1.0
            usable = range(max(0, done - capacity), done - length + 1)
            own = range(learner * num_envs, (learner + 1) * num_envs)
            tables[learner] = {k: table.get(k, newest) for k in (100 * t + b for t in usable for b in own)}
        compare()
        if done < length:
            continue
        drawn = replay.draw(3, torch.tensor(done), CLOCK)
        td_error = {k: 40 * random.random() for table in tables for k in table}
        started = drawn.rollout.obs[0].tolist()
        told = torch.tensor([td_error[k] for k in started], dtype=torch.float64)
        replay.set_priorities(drawn.where, told.view(num_learners, -1), CLOCK)
        for learner, table in enumerate(tables):
            for k in started[3 * learner : 3 * learner + 3]:
                table[k] = min(max((td_error[k] + 1e-6) ** alpha, 1e-150), 1e150)
        compare()


def test_weights_correct_for_what_is_drawn_often() -> None:
    """weight = p^(-beta), over the largest of those drawn for the learner. Two learners with 20 windows each."""
    rates = {"priority_replay_alpha": 0.7, "priority_replay_beta": LINEAR}
    replay, _ = filled((2, 2, 12, 3, [17]), priority_replay=True, **rates)
    everything = replay.draw(20, torch.tensor(0), CLOCK)
    td_error = torch.rand(40, generator=torch.Generator().manual_seed(4))
    replay.set_priorities(everything.where, td_error.view(2, 20), CLOCK)
    priority = (td_error.double() + 1e-6) ** 0.7
    known = dict(zip(everything.rollout.obs[0].tolist(), priority.tolist(), strict=True))
    for percent in (0.0, 0.4, 1.0):
        drawn = replay.draw(6, torch.tensor(5), CLOCK._replace(percent=percent))
        raw = torch.tensor([known[start] for start in drawn.rollout.obs[0].tolist()]).view(2, 6) ** -percent
        torch.testing.assert_close(drawn.weight, raw / raw.amax(1, keepdim=True))
        assert drawn.weight.min() == 1 if percent == 0 else drawn.weight.min() < 0.95


# ---- the batched sum tree against sums and searches in a plain array


def tree_of(priorities: list[list[float]]) -> SumTree:
    tree = SumTree(len(priorities), len(priorities[0]), CPU)
    tree.load(torch.tensor(priorities, dtype=torch.float64))
    return tree


@pytest.mark.parametrize("num_leaves", [1, 3, 1000])
def test_sums_stay_exact_over_millions_of_changes(num_leaves):
    """Priorities from 1e-9 to 1e9; the largest ones come and go, and leave no error behind."""
    generator = torch.Generator().manual_seed(0)
    tree, naive = SumTree(50, num_leaves, CPU), torch.zeros(50, num_leaves, dtype=torch.float64)
    for turn in range(60):  # most leaves, or a few of many
        count = 1 + num_leaves * 3 // 4 // (1 if turn % 2 else 100)
        leaf = torch.rand(50, num_leaves, generator=generator).argsort(1)[:, :count]
        priority = 10 ** (18 * torch.rand(leaf.shape, generator=generator, dtype=torch.float64) - 9)
        tree.set(leaf, priority)
        naive.scatter_(1, leaf, priority)
        torch.testing.assert_close(tree.total, naive.sum(1), rtol=1e-12, atol=0)
    small = 1e-9 * torch.rand(50, num_leaves, generator=generator, dtype=torch.float64)
    tree.set(torch.arange(num_leaves).expand(50, -1), small)
    assert torch.equal(tree.priorities, small)
    torch.testing.assert_close(tree.total, small.sum(1), rtol=1e-12, atol=0)
    again = SumTree(50, num_leaves, CPU)
    again.load(small)
    assert torch.equal(again._sums[:, 1:], tree._sums[:, 1:])  # bit for bit, at every node


def test_the_larger_priority_counts_if_a_leaf_is_named_twice():
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]):
        tree, leaf = tree_of([[1.0, 2.0, 4.0], [9.0, 9.0, 9.0]]), torch.tensor([[0, 0, 0, 2], [1, 1, 2, 1]])
        tree.set(leaf[:, order], torch.tensor([[5, 7, 6, 3.0], [1, 2, 0, 0]])[:, order])
        assert tree.priorities.tolist() == [[7, 2, 3], [9, 2, 0]]
        assert tree.total.tolist() == [12, 11]


@settings(max_examples=50)
@given(st.data(), st.integers(1, 40))
def test_leaves_of_priority_zero_are_never_found(data, num_leaves):
    """Also at both ends, with masses up to the last float below the total, and beyond."""
    values = st.one_of(st.just(0.0), st.floats(1e-12, 1e12))
    priorities = data.draw(st.lists(values, min_size=num_leaves, max_size=num_leaves).filter(any))
    tree = tree_of([priorities])
    total = float(tree.total)
    shares = data.draw(st.lists(st.floats(0, 1), min_size=1, max_size=20))
    mass = [0.0, np.nextafter(total, 0), total, *(share * total for share in shares)]
    found = tree.find(torch.tensor([mass], dtype=torch.float64))[0]
    assert found.min() >= 0 and found.max() < num_leaves
    assert all(priorities[leaf] > 0 for leaf in found.tolist())


@settings(max_examples=40)
@given(st.data(), st.integers(1, 40))
def test_intervals_are_those_of_the_cumulative_sum(data, num_leaves):
    """Of integers, whose sums are exact; every tree by itself."""
    rows = [data.draw(st.lists(st.integers(0, 9), min_size=num_leaves, max_size=num_leaves).filter(any)) for _ in "ab"]
    tree = tree_of([[float(value) for value in row] for row in rows])
    mass = [[data.draw(st.integers(0, sum(row) - 1)) + 0.5 for _ in range(9)] for row in rows]
    found = tree.find(torch.tensor(mass, dtype=torch.float64))
    for row, ours, masses in zip(rows, found.tolist(), mass, strict=True):
        assert ours == np.searchsorted(np.cumsum(row), masses, side="right").tolist()
