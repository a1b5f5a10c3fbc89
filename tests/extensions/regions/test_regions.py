"""Regions of a room that are held out, and those like them that are for development."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import room

from icrl.contracts import ConfigError
from icrl.envs.core import TensorEnv
from icrl.envs.tasks import Split, development_of, split_tasks

RULES = st.sampled_from(["quadrant", "ring", "checkerboard"])


def config_of(tasks: dict[str, Any]) -> Any:
    options = {"seed": 0, "num_train": 0, "num_held_out": 0} | tasks
    data = SimpleNamespace(num_development_tasks=4, development="region")
    return SimpleNamespace(env=SimpleNamespace(name="this"), tasks=SimpleNamespace(**options), data=data)


def split_of(env: TensorEnv, **tasks: Any) -> Split:
    return split_tasks(env, config_of(tasks))


def held_out_by(rule: str, size: int, seed: int, row: int, column: int) -> bool:
    middle = (size - 1) / 2
    if rule == "quadrant":
        first, second = seed % 4 // 2, seed % 2
        return (row > middle if first else row < middle) and (column > middle if second else column < middle)
    if rule == "ring":
        return not (0 < row < size - 1 and 0 < column < size - 1)
    return (row + column) % 2 == seed % 2


def set_aside_by(rule: str, size: int, seed: int, row: int, column: int) -> bool:
    """The opposite quadrant; the ring of the room without its walls; every other row of the other colour."""
    if rule == "quadrant":
        return held_out_by(rule, size, 3 - seed % 4, row, column)
    if rule == "ring":
        return not held_out_by(rule, size, seed, row, column) and held_out_by(rule, size - 2, seed, row - 1, column - 1)
    return not held_out_by(rule, size, seed, row, column) and row % 2 == 1


@settings(max_examples=25)
@given(RULES, st.integers(6, 13), st.integers(0, 100), st.booleans())
def test_regions_are_held_out_and_set_aside_and_nothing_else(rule: str, size: int, seed: int, anywhere: bool) -> None:
    """All sides are in the order of the permutation; numbers take the first and the last of them. No learned goal is in
    either region, which are two."""
    env, options = room(size=size, random_start=anywhere), {"split": rule, "seed": seed}
    split = split_of(env, **options)
    cells = [divmod(goal, size) for goal in env.all_tasks()[:, 0].tolist()]
    order = torch.randperm(len(cells), generator=torch.Generator().manual_seed(seed)).tolist()
    held_out = [task for task in order if held_out_by(rule, size, seed, *cells[task])]
    assert split == Split([task for task in order if task not in held_out], held_out)
    assert split_of(env, **options, num_train=4, num_held_out=3) == Split(split.train[:4], split.held_out[-3:])
    found = development_of(env, config_of(options), split.train)
    assert found == [task for task in split.train if set_aside_by(rule, size, seed, *cells[task])]
    assert found and set(found) < set(split.train)
    if rule == "checkerboard":
        learned = {cells[task] for task in set(split.train) - set(found)}
        for row, column in (cells[task] for task in found):
            assert not learned & {(row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)}
    if rule == "quadrant" and size % 2:
        assert len(found) == len(split.held_out)


def test_a_goal_is_held_out_with_all_permutations_of_the_actions() -> None:
    env = room(permute_actions=True)
    split = split_of(env, split="quadrant")
    goals = [set(env.all_tasks()[side][:, 0].tolist()) for side in split]
    assert not goals[0] & goals[1] and len(split.held_out) == 16 * 120 and len(split.train) == 64 * 120


@pytest.mark.parametrize(
    ("size", "tasks", "words"),
    [
        (3, {"split": "ring"}, ["tasks.split=ring", "leaves 0 tasks", "at least two for training"]),
        (2, {"split": "quadrant", "seed": 3}, ["tasks.split=quadrant", "holds out 0", "one held out"]),
        (9, {"split": "quadrant", "num_train": 65}, ["tasks.num_train=65", "leaves 64 tasks"]),
        (9, {"split": "quadrant", "num_held_out": 17}, ["tasks.num_held_out=17", "holds out 16"]),
    ],
)
def test_regions_that_are_too_small_are_refused(size: int, tasks: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        split_of(room(size=size), **tasks)
    assert all(word in str(refused.value) for word in words), refused.value


def test_regions_that_cannot_be() -> None:
    placeless: Any = SimpleNamespace(all_tasks=lambda: torch.arange(9)[:, None], goal_cell=lambda _: None)
    with pytest.raises(ConfigError, match="tasks.split=ring: tasks of env.name=this have no place on a map"):
        split_of(placeless, split="ring")
    with pytest.raises(ConfigError, match="tasks.split=ring sets aside 8 training tasks and leaves 0"):
        development_of(room(size=5), config_of(ring := {"split": "ring"}), split_of(room(size=5), **ring).train)
