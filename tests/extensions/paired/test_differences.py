"""Differences between policies, task by task, against numbers worked out by hand."""

import numpy as np
import pytest
from adaptations import OPTIONS, exact, solving

from icrl.evaluation.in_context import Adaptation
from icrl.evaluation.protocol import Setting, summarise
from icrl.extensions.paired import differences
from icrl.extensions.paired.differences import differences_table


@pytest.fixture(autouse=True)
def _compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same policies, whatever other extensions are installed."""
    monkeypatch.setattr(differences, "COMPARED", ["persistent walk with goal memory", "covering plan"])


def test_differences_are_those_of_each_task() -> None:
    """The walk needs 1, 2 or 3 steps more than the model on a task, whatever the task: the interval is that of these
    numbers, not that of the tasks' own steps. Success never differs, so 0 of 3 tasks: up to 0.7076."""
    steps = np.array([4.0, 10.0, 16.0])[:, None, None] + np.zeros((3, 2, 8))
    success = np.ones_like(steps)
    ours = Adaptation(success, success, steps, steps)
    walk = ours._replace(steps_to_goal=steps + np.array([1.0, 2.0, 3.0])[:, None, None])
    names = {"persistent walk with goal memory": walk, "covering plan": ours, "searcher": walk}
    references = {"held_out": exact([0.0] * 3, [1.0] * 3)}
    setting = Setting(references, "1", False, {"returns": (0.0, 20.0), "steps_to_goal": (0.0, 20.0)}, True)
    numbers = summarise({0: {"held_out": ours, **names}}, setting, OPTIONS, 0)
    found = numbers["differences"]
    assert list(found) == ["persistent walk with goal memory", "covering plan", "optimum"]
    walked = found["persistent walk with goal memory"]["steps_to_goal"]
    assert (walked["mean"], walked["low"], walked["high"]) == (-2, -3, -1)
    assert found["optimum"]["steps_to_goal"]["mean"] == 10 - 3 and found["optimum"]["success"]["high"] == 0
    for name in ("persistent walk with goal memory", "covering plan"):
        assert [found[name]["success"][end] for end in ("mean", "low", "high")] == pytest.approx(
            [0, -0.7076, 0.7076], abs=5e-5
        )
    header, _, first, *_ = differences_table(found, 8).splitlines()
    assert header.split()[-6:] == ["success", "7-8", "steps", "to", "goal", "7-8"]
    assert first.endswith("0.000 [-0.708, 0.708]  -2.00 [-3.00, -1.00]")
    better = summarise({0: {"held_out": solving(3, 3), "covering plan": solving(2, 3)}}, setting, OPTIONS, 0)
    plan = better["differences"]["covering plan"]["success"]
    assert (plan["mean"], plan["low"], plan["high"]) == (pytest.approx(1 / 3), 0, 1)


@pytest.mark.parametrize(
    ("ours", "walk", "expected"),
    [
        ([1.0, 0.95, 1.0], [1.0, 1.0, 1.0], (-0.7076, 0.7076)),  # a small difference tells no more than none
        ([0.95, 1.0, 1.0], [0.0, 0.0, 0.0], (-1 + 2 * 0.2924, 1)),  # 3 of 3 won: 0.2924 to 1 of all
        ([0.0, 0.0, 0.0], [1.0, 1.0, 1.0], (-1, 1 - 2 * 0.2924)),
        ([1.0, 0.5], [1.0, 1.0], (-0.5, 0)),  # resamples tell
    ],
)
def test_alike_differences_have_no_narrow_intervals(ours: list[float], walk: list[float], expected: tuple) -> None:
    keys = ("success", "returns", "steps_to_goal")
    played, other = ({key: np.array([each])[..., None] for key in keys} for each in (ours, walk))
    number = differences.differences(played, {"walk": other}, OPTIONS, 0)["walk"]["success"]
    assert (number["low"], number["high"]) == pytest.approx(expected, abs=0.03 if expected[1] == 1 else 5e-5)


def test_differences_over_splits_have_the_t_interval_of_the_runs() -> None:
    """Of 1, 2 and 6 steps the mean is 3 and its standard error sqrt(7 / 3); t with 2 degrees of freedom is 4.303."""
    references, runs = {"held_out": exact([0.0] * 2, [1.0] * 2)}, {}
    for seed, more in enumerate((1.0, 2.0, 6.0)):
        walk = solving(2, 2)
        ours = walk._replace(steps_to_goal=walk.steps_to_goal + more)
        runs[seed] = {"held_out": ours, "covering plan": walk}
    setting = Setting(references, "1", False, splits=[0, 1, 2])
    options = OPTIONS.model_copy(update={"num_bootstrap": 20_000})
    found = summarise(runs, setting, options, 0)["differences"]["covering plan"]["steps_to_goal"]
    ends = [3 - 4.303 * (7 / 3) ** 0.5, 3 + 4.303 * (7 / 3) ** 0.5]
    assert [found["low"], found["high"]] == pytest.approx(ends, abs=0.5) and found["mean"] == 3


def test_streams_count_in_differences() -> None:
    """A difference from a constant is as uncertain as what it is taken from, with one task or with more."""
    rng = np.random.default_rng(0)
    for num_tasks in (1, 4):
        ours = Adaptation(*4 * [(rng.random((num_tasks, 12, 8)) < 0.5).astype(float)])
        setting = Setting({"held_out": exact([0.0] * num_tasks, [1.0] * num_tasks)}, "1", False)
        found = summarise({0: {"held_out": ours}}, setting, OPTIONS, 0)
        number, difference = found["final"]["held_out"]["success"], found["differences"]["optimum"]["success"]
        for end in ("low", "mean", "high"):
            assert difference[end] == pytest.approx(number[end] - 1, abs=1e-9)


def test_differences_stay_within_what_is_possible_and_wide_enough() -> None:
    """All tasks as fast as the optimum: of others up to 0.1482 may fail. Of runs that differ much, no end is beyond."""
    ours = Adaptation(*(np.ones((23, 2, 8)) * value for value in (1.0, 1.0, 3.0, 20.0)))
    possible = {"steps_to_goal": (1.0, 20.0), "returns": (0.0, 20.0)}
    setting = Setting({"held_out": exact([0.0] * 23, [1.0] * 23)}, "1", False, possible, True)
    found = summarise({0: {"held_out": ours}}, setting, OPTIONS, 0)["differences"]["optimum"]
    for key, low, high in (("success", -0.1482, 0), ("returns", -0.1482, 0), ("steps_to_goal", 0, 17 * 0.1482)):
        assert (found[key]["low"], found[key]["high"]) == pytest.approx((low, high), abs=2e-3), key
    worse = Adaptation(*(np.ones((23, 2, 8)) * value for value in (0.0, 0.0, 20.0, 20.0)))
    found = summarise({0: {"held_out": ours}, 1: {"held_out": worse}}, setting, OPTIONS, 0)["differences"]["optimum"]
    for key, ends in (("success", (-1, 0)), ("returns", (-1, 0)), ("steps_to_goal", (0, 17))):
        assert (found[key]["low"], found[key]["high"]) == pytest.approx(ends), key


def test_other_numbers_of_streams_are_put_together_to_as_many_groups() -> None:
    """Four streams and six: pairs and threes. Of an exact reference there is one number, and each stream is by itself;
    one stream is compared with the mean of others."""
    four, six = np.array([[[1.0, 3.0, 5.0, 7.0]]]), np.array([[[0.0, 1.0, 2.0, 3.0, 4.0, 8.0]]])
    assert differences.paired(four, six).tolist() == [[[2 - 1, 6 - 5]]]
    assert differences.paired(four, six[..., 1:2]).tolist() == [[[0, 2, 4, 6]]]
    assert differences.paired(four[..., :1], six).tolist() == [[[1 - 3]]]
