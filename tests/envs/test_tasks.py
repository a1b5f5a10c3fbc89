"""Split of the tasks into training, development and held-out tasks."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from probes import Probe
from torch import Tensor
from worlds import room

from icrl.contracts import ConfigError
from icrl.envs.core import TensorEnv
from icrl.envs.tasks import Split, development_of, split_tasks


def split_of(env: TensorEnv, **tasks: Any) -> Split:
    """Split with all tasks on one of both sides, unless `tasks` says otherwise."""
    options = {"split": "random", "seed": 0, "num_train": 0, "num_held_out": 0, "held_out": []} | tasks
    config: Any = SimpleNamespace(env=SimpleNamespace(name="this"), tasks=SimpleNamespace(**options))
    return split_tasks(env, config)


class Numbered(Probe):
    """World whose tasks are numbers, without a place."""

    def __init__(self, num_tasks: int) -> None:
        super().__init__(1, 2, 5, None)
        self._num_tasks = num_tasks

    def all_tasks(self) -> Tensor:
        return torch.arange(self._num_tasks)[:, None]


def numbered(num_tasks: int, num_train: int, num_held_out: int, seed: int = 0) -> Split:
    """Random split of so many tasks."""
    return split_of(Numbered(num_tasks), num_train=num_train, num_held_out=num_held_out, seed=seed)


@pytest.mark.parametrize("seed", [3, 4])
def test_the_random_split_is_the_seeded_permutation_of_all_tasks(seed: int) -> None:
    """Held-out tasks stay the same when there are more training tasks, and training tasks when there are fewer."""
    order = torch.randperm(80, generator=torch.Generator().manual_seed(seed)).tolist()
    assert numbered(80, 57, 0, seed) == Split(order[:57], order[57:])
    assert numbered(80, 57, 10, seed) == Split(order[:57], order[70:])
    assert numbered(80, 0, 10, seed) == Split(order[:70], order[70:])


@pytest.mark.parametrize(("num_train", "num_held_out", "most"), [(8, 0, 7), (8, 1, 7), (6, 3, 5), (3, 6, 2)])
def test_more_tasks_than_there_are_or_none_held_out_is_refused(num_train: int, num_held_out: int, most: int) -> None:
    message = f"tasks.num_train={num_train} and tasks.num_held_out={num_held_out}: .*8 tasks, .*one held out"
    with pytest.raises(ConfigError, match=message):
        numbered(8, num_train, num_held_out)
    numbered(8, most, num_held_out)


def held_out_by(rule: str, size: int, seed: int, row: int, column: int) -> bool:
    middle = (size - 1) / 2
    if rule == "quadrant":
        first, second = seed % 4 // 2, seed % 2
        return (row > middle if first else row < middle) and (column > middle if second else column < middle)
    if rule == "ring":
        return not (0 < row < size - 1 and 0 < column < size - 1)
    return (row + column) % 2 == seed % 2


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(["quadrant", "ring", "checkerboard"]), st.integers(5, 13), st.integers(0, 100), st.booleans())
def test_a_rule_holds_out_all_of_its_region_and_nothing_else(rule: str, size: int, seed: int, anywhere: bool) -> None:
    """Both sides are in the order of the permutation; numbers take the first and the last of them."""
    env, options = room(size=size, random_start=anywhere), {"split": rule, "seed": seed}
    split = split_of(env, **options)
    cells = [divmod(goal, size) for goal in env.all_tasks()[:, 0].tolist()]
    order = torch.randperm(len(cells), generator=torch.Generator().manual_seed(seed)).tolist()
    assert split.held_out == [task for task in order if held_out_by(rule, size, seed, *cells[task])]
    assert split.train == [task for task in order if task not in split.held_out]
    assert split_of(env, **options, num_train=4, num_held_out=3) == Split(split.train[:4], split.held_out[-3:])


def test_a_goal_is_held_out_with_all_permutations_of_the_actions_and_a_list_in_any_world() -> None:
    env = room(permute_actions=True)
    split = split_of(env, split="quadrant")
    goals = [set(env.all_tasks()[side][:, 0].tolist()) for side in split]
    assert not goals[0] & goals[1] and len(split.held_out) == 16 * 120 and len(split.train) == 64 * 120
    split = split_of(Numbered(9), split="list", held_out=[7, 2])
    assert set(split.held_out) == {2, 7} and set(split.train) == {0, 1, 3, 4, 5, 6, 8}


@pytest.mark.parametrize(
    ("env", "tasks", "words"),
    [
        (Numbered(9), {"split": "ring"}, ["tasks.split=ring", "env.name=this", "random or list"]),
        (room(), {"split": "list", "held_out": [3, 80]}, ["tasks.held_out=[3, 80]", "80 must be below 80"]),
        (room(size=3), {"split": "ring"}, ["tasks.split=ring", "leaves 0 tasks", "at least two for training"]),
        (room(size=2), {"split": "quadrant", "seed": 3}, ["tasks.split=quadrant", "holds out 0", "one held out"]),
        (room(), {"split": "quadrant", "num_train": 65}, ["tasks.num_train=65", "leaves 64 tasks"]),
        (room(), {"split": "quadrant", "num_held_out": 17}, ["tasks.num_held_out=17", "holds out 16"]),
    ],
)
def test_a_rule_that_cannot_be_followed_is_refused(env: TensorEnv, tasks: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        split_of(env, **tasks)
    assert all(word in str(refused.value) for word in words), refused.value


def development(env: TensorEnv, train: list[int], tasks: dict[str, Any] | None = None, **data: Any) -> list[int]:
    options = {"num_development_tasks": 4, "development": "random"} | data
    split: dict[str, Any] = {"split": "random", "seed": 0, **(tasks or {})}
    parts = {"env": {"name": "this"}, "tasks": split, "data": options}
    config: Any = SimpleNamespace(**{group: SimpleNamespace(**some) for group, some in parts.items()})
    return development_of(env, config, train)


@given(st.lists(st.integers(), min_size=1, max_size=9), st.data())
def test_development_tasks_are_the_last_training_tasks(train: list[int], data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(train) - 1))
    found = development(room(), train, num_development_tasks=number)
    assert len(found) == number and train[: len(train) - number] + found == train
    with pytest.raises(ConfigError, match=f"data.num_development_tasks={len(train)} must be below {len(train)}"):
        development(room(), train, num_development_tasks=len(train))


def set_aside_by(rule: str, size: int, seed: int, row: int, column: int) -> bool:
    """The opposite quadrant; the ring of the room without its walls; every other row of the other colour."""
    if rule == "quadrant":
        return held_out_by(rule, size, 3 - seed % 4, row, column)
    if rule == "ring":
        return not held_out_by(rule, size, seed, row, column) and held_out_by(rule, size - 2, seed, row - 1, column - 1)
    return not held_out_by(rule, size, seed, row, column) and row % 2 == 1


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(["quadrant", "ring", "checkerboard"]), st.integers(6, 11), st.integers(0, 9))
def test_a_development_region_is_like_the_held_out_one(rule: str, size: int, seed: int) -> None:
    """Goals that are learned, set aside and held out are three sets, and no learned goal is in either region."""
    env, options = room(size=size), {"split": rule, "seed": seed}
    split = split_of(env, **options)
    cells = [divmod(goal, size) for goal in env.all_tasks()[:, 0].tolist()]
    found = development(env, split.train, options, development="region")
    assert found == [task for task in split.train if set_aside_by(rule, size, seed, *cells[task])]
    assert found and set(found) < set(split.train)
    if rule == "checkerboard":
        learned = {cells[task] for task in set(split.train) - set(found)}
        for row, column in (cells[task] for task in found):
            assert not learned & {(row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)}
    if rule == "quadrant" and size % 2:
        assert len(found) == len(split.held_out)


def test_regions_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="tasks.split=ring: tasks of env.name=this have no place on a map"):
        development(Numbered(9), [1, 2], {"split": "ring"}, development="region")
    train = split_of(room(size=5), split="ring").train
    with pytest.raises(ConfigError, match="tasks.split=ring sets aside 8 training tasks and leaves 0"):
        development(room(size=5), train, {"split": "ring"}, development="region")
