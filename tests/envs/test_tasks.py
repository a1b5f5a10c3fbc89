"""The split into training, development and held-out tasks."""


from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icrl.config.compose import load_config
from icrl.config.options import replace
from icrl.config.root import Config
from icrl.contracts import ConfigError
from icrl.envs import make_env
from icrl.envs.tasks import Split, development_of, split_tasks, streams_of

REGIONS = ("quadrant", "ring", "checkerboard")
ROOM, ARMS, PERMUTED = (load_config([f"env={name}"]) for name in ("dark_room", "bandit", "dark_room_permuted"))


def changed(config: Config, tasks: dict[str, Any], **env: Any) -> Config:
    """`config` with all tasks on one of both sides, but for what `tasks` says, and with these options of `env`."""
    whole = {"num_train": 0, "num_held_out": 0} | tasks
    return replace(config, env=replace(config.env, **env), tasks=replace(config.tasks, **whole))


def split_of(config: Config, tasks: dict[str, Any], **env: Any) -> Split:
    config = changed(config, tasks, **env)
    return split_tasks(make_env(config.env), config)


def arms(num_tasks: int, num_train: int, num_held_out: int, seed: int = 0) -> Split:
    """Of a world with so many tasks, at random."""
    tasks = {"num_train": num_train, "num_held_out": num_held_out, "seed": seed}
    return split_of(ARMS, tasks, num_tasks=num_tasks)


def room(size: int, rule: str, seed: int, random_start: bool = False) -> tuple[Split, list[tuple[int, int]]]:
    """The split of a room by a rule, and where its goals are: row and column of each task."""
    config = changed(ROOM, {"split": rule, "seed": seed}, size=size, random_start=random_start)
    env = make_env(config.env)
    return split_tasks(env, config), [divmod(goal, size) for goal in env.all_tasks()[:, 0].tolist()]


@settings(deadline=None, max_examples=30)  # a busy machine is no failure
@given(st.integers(3, 300), st.data())
def test_every_task_is_on_exactly_one_side(num_tasks: int, data: st.DataObject) -> None:
    num_train = data.draw(st.integers(2, num_tasks - 1))
    split = arms(num_tasks, num_train, 0, seed=data.draw(st.integers(0, 10**9)))
    assert len(split.train) == num_train
    assert sorted(split.train + split.held_out) == list(range(num_tasks))


@settings(deadline=None, max_examples=30)
@given(st.integers(3, 300), st.data())
def test_a_number_of_held_out_tasks_is_the_last_part_of_all_others(num_tasks: int, data: st.DataObject) -> None:
    num_train = data.draw(st.integers(2, num_tasks - 1))
    num_held_out = data.draw(st.integers(1, num_tasks - num_train))
    some, all_others = (arms(num_tasks, num_train, number, seed=5) for number in (num_held_out, 0))
    assert some.train == all_others.train
    assert some.held_out == all_others.held_out[-num_held_out:]


def test_the_seed_decides_the_split() -> None:
    assert arms(80, 57, 0, seed=3) == arms(80, 57, 0, seed=3)
    assert arms(80, 57, 0, seed=3) != arms(80, 57, 0, seed=4)


def test_the_random_split_is_the_seeded_permutation_of_all_tasks() -> None:
    order = torch.randperm(80, generator=torch.Generator().manual_seed(3)).tolist()
    assert arms(80, 57, 10, seed=3) == Split(order[:57], order[70:])
    assert arms(80, 0, 10, seed=3) == Split(order[:70], order[70:])


def test_more_training_tasks_only_add_to_fewer() -> None:
    assert arms(80, 57, 0).train[:10] == arms(80, 10, 0).train


def test_more_training_tasks_leave_the_held_out_ones_as_they_are() -> None:
    assert arms(80, 10, 10).held_out == arms(80, 70, 10).held_out


def test_every_task_is_held_out_under_some_seed() -> None:
    assert {task for seed in range(60) for task in arms(20, 15, 0, seed).held_out} == set(range(20))


@pytest.mark.parametrize(("num_train", "num_held_out", "most"), [(8, 0, 7), (9, 0, 7), (8, 1, 7), (6, 3, 5), (3, 6, 2)])
def test_more_tasks_than_there_are_or_none_held_out_is_refused(num_train: int, num_held_out: int, most: int) -> None:
    message = f"tasks.num_train={num_train} and tasks.num_held_out={num_held_out}: .*8 tasks, .*at least one held out"
    with pytest.raises(ConfigError, match=message):
        arms(8, num_train, num_held_out)
    arms(8, most, num_held_out)


# ---- regions of a room


def held_out_by(rule: str, size: int, seed: int, row: int, column: int) -> bool:
    middle = (size - 1) / 2
    if rule == "quadrant":
        first, second = seed % 4 // 2, seed % 2
        return (row > middle if first else row < middle) and (column > middle if second else column < middle)
    if rule == "ring":
        return not (0 < row < size - 1 and 0 < column < size - 1)
    return (row + column) % 2 == seed % 2


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(REGIONS), st.integers(4, 13), st.integers(0, 100))
def test_a_rule_holds_out_all_of_its_region_and_nothing_else(rule: str, size: int, seed: int) -> None:
    split, places = room(size, rule, seed)
    assert sorted(split.train + split.held_out) == list(range(len(places)))
    expected = {task for task, place in enumerate(places) if held_out_by(rule, size, seed, *place)}
    assert set(split.held_out) == expected
    assert split == room(size, rule, seed)[0]


@settings(deadline=None, max_examples=20)
@given(st.integers(3, 13))
def test_quadrants_are_alike_and_colours_share_the_room(size: int) -> None:
    """With the start anywhere, so that every cell is a goal."""
    quadrants, colours = (
        [set(room(size, rule, seed, random_start=True)[0].held_out) for seed in range(number)]
        for rule, number in (("quadrant", 4), ("checkerboard", 2))
    )
    assert {len(quadrant) for quadrant in quadrants} == {(size // 2) ** 2}
    assert len(set.union(*quadrants)) == 4 * (size // 2) ** 2
    assert set.union(*colours) == set(range(size**2)) and sum(map(len, colours)) == size**2
    assert abs(len(colours[0]) - len(colours[1])) == size % 2


@pytest.mark.parametrize(
    ("rule", "train", "held_out"), [("quadrant", 64, 16), ("ring", 48, 32), ("checkerboard", 40, 40)]
)
def test_the_default_room(rule: str, train: int, held_out: int) -> None:
    split = split_tasks(make_env(ROOM.env), load_config([f"tasks.split={rule}"]))
    assert (len(split.train), len(split.held_out)) == (train, held_out)


def test_both_sides_of_a_region_are_in_the_order_of_the_permutation() -> None:
    order = torch.randperm(80, generator=torch.Generator().manual_seed(6)).tolist()
    whole = split_of(ROOM, {"split": "ring", "seed": 6})
    assert whole.train == [task for task in order if task in whole.train]
    assert whole.held_out == [task for task in order if task in whole.held_out]
    part = split_of(ROOM, {"split": "ring", "seed": 6, "num_train": 10, "num_held_out": 7})
    assert part == Split(whole.train[:10], whole.held_out[-7:])


def test_a_goal_is_held_out_with_whatever_actions_do() -> None:
    config = load_config(
        ["env=dark_room_permuted", "tasks.split=quadrant", "tasks.num_train=0", "tasks.num_held_out=0"]
    )
    env = make_env(config.env)
    tasks, split = env.all_tasks(), split_tasks(env, config)
    goals = [set(tasks[side][:, 0].tolist()) for side in split]
    assert not goals[0] & goals[1] and len(split.held_out) == 16 * 120 and len(split.train) == 64 * 120


def test_a_list_is_held_out_in_any_world() -> None:
    split = split_of(ARMS, {"split": "list", "held_out": [7, 2]}, num_tasks=9)
    assert set(split.held_out) == {2, 7} and set(split.train) == {0, 1, 3, 4, 5, 6, 8}
    assert split_tasks(make_env(ROOM.env), load_config(["tasks.split=list", "tasks.held_out=3"])).held_out == [3]


@pytest.mark.parametrize(
    ("config", "env", "tasks", "words"),
    [
        (ARMS, {}, {"split": "ring"}, ["tasks.split=ring", "env.name=bandit", "random or list"]),
        (ROOM, {}, {"split": "list", "held_out": [3, 80]}, ["tasks.held_out=[3, 80]", "80 must be below 80"]),
        (ROOM, {"size": 3}, {"split": "ring"}, ["tasks.split=ring", "leaves 0 tasks", "at least two for training"]),
        (ROOM, {"size": 2}, {"split": "quadrant", "seed": 3}, ["tasks.split=quadrant", "holds out 0", "one held out"]),
        (ROOM, {}, {"split": "quadrant", "num_train": 65}, ["tasks.num_train=65", "leaves 64 tasks"]),
        (ROOM, {}, {"split": "quadrant", "num_held_out": 17}, ["tasks.num_held_out=17", "holds out 16"]),
    ],
)
def test_a_rule_that_cannot_be_followed_is_refused(
    config: Config, env: dict[str, Any], tasks: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(ConfigError) as refused:
        split_of(config, tasks, **env)
    assert all(word in str(refused.value) for word in words), refused.value


@given(st.lists(st.integers(), min_size=1, max_size=9), st.data())
def test_development_tasks_are_the_last_training_tasks(train: list[int], data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(train) - 1))
    found = development_of(train, number)
    assert len(found) == number and train[: len(train) - number] + found == train
    with pytest.raises(ConfigError, match=f"data.num_development_tasks={len(train)} must be below {len(train)}"):
        development_of(train, len(train))


def test_streams_of_repeats_task_by_task() -> None:
    tasks = torch.tensor([[7, 1], [3, 2]])
    assert streams_of(tasks, 3).tolist() == [[7, 1]] * 3 + [[3, 2]] * 3
