"""Split of the tasks into training, development and held-out tasks."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from probes import Probe
from torch import Tensor
from worlds import room

from icrl.contracts import ConfigError
from icrl.envs import tasks as tasks_of
from icrl.envs.core import TensorEnv
from icrl.envs.tasks import Split, TasksConfig, development_of, split_rule, split_tasks


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


def test_a_list_is_held_out_in_any_world() -> None:
    split = split_of(Numbered(9), split="list", held_out=[7, 2])
    assert set(split.held_out) == {2, 7} and set(split.train) == {0, 1, 3, 4, 5, 6, 8}


@pytest.mark.parametrize("num_held_out", [1, 4, 6])
def test_the_options_that_a_refusal_of_a_list_proposes_are_possible(num_held_out: int) -> None:
    held_out = [*range(num_held_out)]
    with pytest.raises(ConfigError, match="; give tasks.num_train=0 tasks.num_held_out=0$"):
        split_of(Numbered(8), split="list", held_out=held_out, num_train=8)
    assert len(split_of(Numbered(8), split="list", held_out=held_out).train) == 8 - num_held_out
    with pytest.raises(ConfigError, match="for training and one held out$"):  # nothing helps
        split_of(Numbered(8), split="list", held_out=[*range(7)])


def test_a_list_with_more_than_there_are_and_a_rule_that_is_not_there_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"tasks\.held_out=\[3, 80\]: 80 must be below 80"):
        split_of(room(), split="list", held_out=[3, 80])
    with pytest.raises(ConfigError, match="tasks.split=rings: must be one of random, list, thirds"):
        TasksConfig(split="rings")


@pytest.fixture(autouse=True)
def thirds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule of the user's own: tasks whose number modulo 3 is `tasks.seed`, and for development the next ones."""
    monkeypatch.setattr(tasks_of, "_REGIONS", {})

    @split_rule("thirds")
    def thirds(env: TensorEnv, seed: int) -> tuple[Tensor, Tensor]:
        rest = torch.arange(len(env.all_tasks())) % 3
        return rest == seed, rest == (seed + 1) % 3


def test_a_rule_of_ones_own_holds_out_and_sets_aside() -> None:
    env, options = Numbered(9), {"split": TasksConfig(split="thirds").split, "seed": 1}
    split = split_of(env, **options)
    assert set(split.held_out) == {1, 4, 7} and set(split.train) == {0, 2, 3, 5, 6, 8}
    assert set(development(env, split.train, options, development="region")) == {2, 5, 8}


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
