"""The batched sum tree against sums and searches in a plain array."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icrl.extensions.value_sources.sum_tree import SumTree

CPU = torch.device("cpu")


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


@settings(max_examples=50, deadline=None)
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


@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(1, 40))
def test_intervals_are_those_of_the_cumulative_sum(data, num_leaves):
    """Of integers, whose sums are exact; every tree by itself."""
    rows = [data.draw(st.lists(st.integers(0, 9), min_size=num_leaves, max_size=num_leaves).filter(any)) for _ in "ab"]
    tree = tree_of([[float(value) for value in row] for row in rows])
    mass = [[data.draw(st.integers(0, sum(row) - 1)) + 0.5 for _ in range(9)] for row in rows]
    found = tree.find(torch.tensor(mass, dtype=torch.float64))
    for row, ours, masses in zip(rows, found.tolist(), mass, strict=True):
        assert ours == np.searchsorted(np.cumsum(row), masses, side="right").tolist()
