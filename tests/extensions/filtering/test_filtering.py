"""Filtered histories: utilities and copies worked out by hand, and the rows that are drawn."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from continued import check_continues
from harness import done, refusal
from installed import needs
from lives import ALIKE, CONFIG, CPU, NUM_ROWS, TRAIN, histories_of, random_done
from refusals import check_refusal, refusals

from icrl.app.compose import load_config
from icrl.config.options import replace
from icrl.contracts import ConfigError
from icrl.data import columns
from icrl.data.history_store import Histories
from icrl.data.windows import Windows
from icrl.extensions.filtering.plugin import copies_of, reward_curves, utilities

FILTERED = replace(load_config(["objective=filtered"]).objective, weighting="none")
NUM_STEPS = 40
CURVES = np.array([[0, 1, 2], [1, 0.5, 1], [0, 0, 0], [2, 2, 1.2]])  # steady, back where it was, no reward, worse


def test_utilities_and_copies_are_those_by_hand() -> None:
    """Improvements of 2, 0, 0 and -0.8 over a range of 2; rises of 2 of 2, of 0.5 of 1, and of nothing. Shares of 2.59,
    0.97, 0.43 and 0, whose sums 2.59, 3.57, 4 and 4 are rounded."""
    assert utilities(CURVES) == pytest.approx([2, 0.5, 0, -0.4])
    assert copies_of(CURVES).tolist() == [3, 1, 0, 0]


def test_learners_that_are_all_alike_stay() -> None:
    assert copies_of(np.ones((4, 3))).tolist() == [1] * 4
    assert copies_of(np.ones((1, 3))).tolist() == [1]


def two_kinds(num_steps: int = NUM_STEPS) -> Histories:
    """Histories in which the first learner on a task plays action 1, with a reward of 1 in the second half of its life,
    and the other one action 3, without any. No observation shows which it is."""
    good = np.arange(NUM_ROWS) % 4 < 2
    reward = good[:, None] & (np.arange(num_steps) >= num_steps // 2)
    histories = histories_of(random_done(num_steps), reward)
    histories.columns["action"] = np.broadcast_to(np.where(good, 1, 3)[:, None], reward.shape).astype(np.uint8)
    return histories


def test_reward_curves_are_means_over_stretches_and_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if rows are read one learner after the other."""
    histories = two_kinds()
    histories.columns["reward"] = histories.columns["reward"] * (np.arange(NUM_ROWS) % 2 == 0)[:, None]
    rows = np.arange(NUM_ROWS).reshape(-1, 2)[[0, 1, 4]]
    expected = [[0] * 5 + [0.5] * 5, [0] * 10, [0] * 5 + [0.5] * 5]
    assert reward_curves(histories, rows, NUM_STEPS).tolist() == expected
    assert reward_curves(histories, rows, 4).tolist() == [[0] * 4] * 3
    monkeypatch.setattr(columns, "_CHUNK", 1)
    assert reward_curves(histories, rows, NUM_STEPS).tolist() == expected


def test_windows_are_of_the_better_learners_and_of_every_task_alike() -> None:
    histories = two_kinds()
    windows = Windows(histories, replace(CONFIG, keep_every=[1, 2]), FILTERED, TRAIN[:2], 3, CPU)
    drawn = Counter(windows.at(torch.arange(windows.num_windows)).obs[:, 0].tolist())
    assert set(drawn) == {0, 1, 4, 5}
    once = Windows(histories, replace(CONFIG, keep_every=[1, 2]), ALIKE, TRAIN[:2], 3, CPU)
    every = Counter(once.at(torch.arange(once.num_windows)).obs[:, 0].tolist())
    assert all(number == 2 * every[row] for row, number in drawn.items())


def test_one_learner_on_each_task_is_refused() -> None:
    with pytest.raises(ConfigError, match="objective.name=filtered.*2 or more"):
        FILTERED.rows(two_kinds(), np.arange(NUM_ROWS).reshape(-1, 4)[:, :2].flatten(), NUM_STEPS)


def test_a_continued_run_ends_with_the_same_bits(root: Path) -> None:
    options = ("name=filtered", "source.num_learners=2", "objective=filtered")
    done("train_agents", root, *options)
    check_continues("train_gpt", root, "logs/filtered/gpt", *options)


@pytest.mark.parametrize(("_", "overrides", "named"), refusals(Path(__file__).with_name("refusals.txt")))
def test_a_refusal_names_field_value_and_what_is_allowed(_: str, overrides: list[str], named: list[str]) -> None:
    check_refusal(load_config, overrides, named)


@needs("offline_rl")
@pytest.mark.parametrize("program", ["train_ilql", "extract_policy"])
def test_programs_that_do_not_filter_refuse_it(root: Path, program: str) -> None:
    told = "objective.name=filtered selects histories only for train_gpt: give objective=ad"
    assert refusal(program, root, "histories=tiny", "objective=filtered") == told
