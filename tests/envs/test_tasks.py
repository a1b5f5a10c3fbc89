"""The split into training and held-out tasks."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from src.contracts import PipelineError
from src.envs.tasks import split_tasks, streams_of


@settings(deadline=None)  # a busy machine is no failure
@given(st.integers(2, 300), st.data())
def test_every_task_is_on_exactly_one_side(num_tasks: int, data: st.DataObject) -> None:
    num_train = data.draw(st.integers(1, num_tasks - 1))
    split = split_tasks(num_tasks, num_train, 0, seed=data.draw(st.integers(0, 2**31)))
    assert len(split.train) == num_train
    assert sorted(split.train + split.held_out) == list(range(num_tasks))


@settings(deadline=None)
@given(st.integers(2, 300), st.data())
def test_a_number_of_held_out_tasks_is_the_last_part_of_all_others(num_tasks: int, data: st.DataObject) -> None:
    num_train = data.draw(st.integers(1, num_tasks - 1))
    num_held_out = data.draw(st.integers(1, num_tasks - num_train))
    some, all_others = (split_tasks(num_tasks, num_train, number, seed=5) for number in (num_held_out, 0))
    assert some.train == all_others.train
    assert some.held_out == all_others.held_out[-num_held_out:]


def test_the_seed_decides_the_split() -> None:
    assert split_tasks(80, 57, 0, seed=3) == split_tasks(80, 57, 0, seed=3)
    assert split_tasks(80, 57, 0, seed=3) != split_tasks(80, 57, 0, seed=4)


def test_more_training_tasks_only_add_to_fewer() -> None:
    few, many = split_tasks(80, 10, 0, seed=0), split_tasks(80, 57, 0, seed=0)
    assert many.train[:10] == few.train


def test_more_training_tasks_leave_the_held_out_ones_as_they_are() -> None:
    assert split_tasks(80, 10, 10, seed=0).held_out == split_tasks(80, 70, 10, seed=0).held_out


def test_every_task_is_held_out_under_some_seed() -> None:
    assert {task for seed in range(60) for task in split_tasks(20, 15, 0, seed).held_out} == set(range(20))


@pytest.mark.parametrize(("num_train", "num_held_out", "most"), [(8, 0, 7), (9, 0, 7), (8, 1, 7), (6, 3, 5), (3, 6, 2)])
def test_more_tasks_than_there_are_or_none_held_out_is_refused(num_train: int, num_held_out: int, most: int) -> None:
    message = f"tasks.num_train={num_train} and tasks.num_held_out={num_held_out}: .*8 tasks, .*at least one held out"
    with pytest.raises(PipelineError, match=message):
        split_tasks(8, num_train, num_held_out, seed=0)
    split_tasks(8, most, num_held_out, seed=0)


def test_streams_of_repeats_task_by_task() -> None:
    tasks = torch.tensor([[7, 1], [3, 2]])
    assert streams_of(tasks, 3).tolist() == [[7, 1]] * 3 + [[3, 2]] * 3
