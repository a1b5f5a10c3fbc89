"""Windows against a list of all of them made in plain loops, the weights of their steps, and reading from disk."""

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from lives import ALIKE, CONFIG, CPU, NUM_ENVS, NUM_ROWS, PER_TASK, TRAIN, Code, codes_of, histories_of, random_done
from stores import KINDS, assert_same_batches, mixture_of, rewards_of_a_row, written

from icrl.config.options import replace
from icrl.contracts import Batch, ConfigError
from icrl.data import columns, lives
from icrl.data.history_store import Histories
from icrl.data.lives import MOST, step_weights
from icrl.data.windows import Windows, mean_and_std
from icrl.spaces import discrete_spec


def whole(windows: Windows) -> Batch:
    return windows.at(torch.arange(windows.num_windows))


def listed(done, rows, num_steps, keep_every, context_len, kept_steps) -> list[Code]:
    """Row by row, pace by pace, offset by offset: the steps of episodes offset, offset + k, ..., and every window of
    the first `kept_steps` of them."""
    codes = []
    for row, every in itertools.product(rows, keep_every):
        episode = np.cumsum(done[row, :num_steps]) - done[row, :num_steps]
        for phase in range(every):
            kept = [step for step in range(num_steps) if episode[step] % every == phase][: kept_steps or num_steps]
            windows = (tuple(kept[start : start + context_len]) for start in range(len(kept) - context_len + 1))
            codes += [((row,) * context_len, places) for places in windows]
    return codes


@settings(max_examples=30)
@given(data=st.data(), num_steps=st.integers(3, 25), seed=st.integers(0, 10**6), context_len=st.integers(1, 6))
def test_windows_are_exactly_those_listed(data: st.DataObject, num_steps: int, seed: int, context_len: int) -> None:
    """No window crosses rows or tasks, joins episodes out of turn, or is missing; steps beyond `history_len` env steps
    of a learner, all its environments together, are not there. All columns are of the same steps."""
    done, dtype = random_done(num_steps, seed), data.draw(st.sampled_from([np.uint8, np.uint16, np.uint32]))
    keep_every = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    kept_steps, history_len = data.draw(st.integers(0, 15)), data.draw(st.integers(0, 25)) * NUM_ENVS
    tasks = data.draw(st.sets(st.sampled_from(TRAIN), min_size=1))
    rows = [row for row in range(NUM_ROWS) if TRAIN[row // PER_TASK] in tasks]
    steps = min(history_len // NUM_ENVS or num_steps, num_steps)
    expected = listed(done, rows, steps, keep_every, context_len, kept_steps)
    config = replace(CONFIG, keep_every=keep_every, kept_steps=kept_steps, history_len=history_len)
    histories = histories_of(done, dtype=dtype)
    if not expected:
        lengths = (n for n in range(1, context_len) if listed(done, rows, steps, keep_every, n, kept_steps))
        longest = max(lengths, default=0)
        named = r"\(trainer.mini_batch_length, or model.context_len if that is 0\)"
        message = (
            rf"window of {context_len} steps {named} is longer than the longest row of codes, {longest} steps with"
        )
        with pytest.raises(ConfigError, match=message):
            Windows(histories, config, ALIKE, sorted(tasks), context_len, CPU)
        return
    windows = Windows(histories, config, ALIKE, sorted(tasks), context_len, CPU)
    batch = whole(windows)
    assert windows.num_windows == len(expected) and Counter(codes_of(batch)) == Counter(expected)
    assert torch.equal(batch.action, batch.timestep % 5)
    ended = torch.from_numpy(done)[batch.obs, batch.timestep]
    assert torch.equal(batch.terminated, (ended & (batch.obs % 2 == 0)).long())
    assert torch.equal(batch.truncated, (ended & (batch.obs % 2 == 1)).long())
    floats = ("reward", "weight", "training_reward")
    assert all(
        column.dtype == (torch.float32 if name in floats else torch.long) for name, column in batch._asdict().items()
    )


def test_observations_of_many_numbers_keep_their_order() -> None:
    histories = histories_of(random_done(20))
    histories.columns["obs"] = np.random.default_rng(0).integers(99, size=(NUM_ROWS, 20, 4))
    histories.columns["action"] = np.broadcast_to(np.arange(NUM_ROWS)[:, None], (NUM_ROWS, 20))  # the row
    batch = whole(Windows(histories, replace(CONFIG, keep_every=[2]), ALIKE, TRAIN, 3, CPU))
    assert batch.obs.shape[1:] == (3, 4)
    assert torch.equal(batch.obs, torch.from_numpy(histories.columns["obs"])[batch.action, batch.timestep])


def test_the_training_reward_is_the_recorded_one_or_a_given_one() -> None:
    """A given one is made of whole lives, even if episodes are left out of the windows."""
    histories = histories_of(random_done(20), np.indices((NUM_ROWS, 20)).sum(0) % 2)
    histories.manifest["tasks"]["all"] = [[task] for task in range(max(TRAIN) + 1)]
    histories.manifest["config"] = {"env": {"name": "dark_room"}}
    histories.manifest["env"]["reward_values"] = [0.5, -3.0]
    config = replace(CONFIG, keep_every=[2], history_len=15 * NUM_ENVS)
    plain, other = (Windows(histories, config, ALIKE, TRAIN, 3, CPU, of) for of in (None, rewards_of_a_row))
    batch, again = whole(plain), whole(other)
    assert set(batch.reward.unique().tolist()) == {0.5, -3.0}
    assert torch.equal(batch.training_reward, batch.reward)
    assert torch.cat([*plain.split("training_reward", 7)]).min() == -3.0
    assert torch.equal(again.training_reward, 100.0 * batch.obs + batch.timestep)
    assert torch.equal(again.reward, batch.reward)
    assert torch.cat([*other.split("training_reward", 7)]).max() >= again.training_reward.max()


def learners_with_success(*success: float) -> Histories:
    """Learner k wins the part `success[k]` of its episodes of one step, during its whole life."""
    done = np.ones((NUM_ROWS, 100), bool)
    reward = np.stack([np.arange(100) % 10 < 10 * success[row // NUM_ENVS] for row in range(NUM_ROWS)])
    return histories_of(done, reward)


def test_learners_below_the_threshold_are_left_out() -> None:
    """The weights of the others compare with the selected rows alone."""
    histories = learners_with_success(0.2, 0.5, 0.9, 0.4, 1.0, 0.0)
    assert histories.final_success().tolist() == pytest.approx(np.array([[0.2, 0.5], [0.9, 0.4], [1.0, 0.0]]))
    config = replace(CONFIG, min_final_success=0.5)
    for tasks, learners in ((TRAIN, (1, 2, 4)), (TRAIN[:2], (1, 2))):
        found = whole(Windows(histories, config, ALIKE, tasks, 99, CPU)).obs
        assert set(found.flatten().tolist()) == {row for k in learners for row in (2 * k, 2 * k + 1)}
    by_gain = replace(ALIKE, weighting="improvement", discount=0.0)
    batch = whole(Windows(histories, replace(config, min_final_success=0.6, keep_every=[3]), by_gain, TRAIN, 5, CPU))
    assert torch.allclose(batch.weight, batch.reward / 0.95, atol=0.02)  # two learners win 0.9 and all episodes


@pytest.mark.parametrize(
    ("options", "objective", "tasks", "message"),
    [
        ({"history_len": 1}, "ad", 3, r"data\.history_len=1: must be at least 2, a step for each env.* codes"),
        ({"min_final_success": 0.8}, "ad", 3, r"no learner of .*codes reaches data\.min_final_success=0\.8.*0\.700"),
        ({"min_final_success": 0.8}, "ad", 1, r"0\.500"),  # the best of the tasks that are asked for
        ({}, "dpt", 3, r"objective\.name=dpt: optimal actions are unknown in codes"),
    ],
)
def test_unusable_histories_are_refused(options: dict, objective: str, tasks: int, message: str) -> None:
    histories = learners_with_success(0.2, 0.5, 0.7, 0.4, 0.3, 0.0)
    chosen = replace(ALIKE, name=objective)
    assert Windows(histories, CONFIG, chosen, TRAIN, 4, CPU).num_windows
    histories.columns["optimal_action"] = np.full_like(histories.columns["obs"], 5)  # unknown
    with pytest.raises(ConfigError, match=message):
        Windows(histories, replace(CONFIG, **options), chosen, TRAIN[:tasks], 4, CPU)


def test_optimal_actions_of_steps_that_are_left_out_may_be_unknown() -> None:
    histories = learners_with_success(0.2, 0.5, 0.7, 0.4, 0.3, 0.0)
    histories.columns["optimal_action"] = np.zeros_like(histories.columns["obs"])
    histories.columns["optimal_action"][:, 6:] = 5
    by_labels = replace(ALIKE, name="dpt")
    assert Windows(histories, replace(CONFIG, kept_steps=6), by_labels, TRAIN, 4, CPU).num_windows
    for options in ({"kept_steps": 7}, {"kept_steps": 6, "keep_every": [2]}):
        with pytest.raises(ConfigError, match="optimal actions are unknown"):
            Windows(histories, replace(CONFIG, **options), by_labels, TRAIN, 4, CPU)


@pytest.mark.parametrize("reward_values", [(), (0.0, -1.0)])
def test_all_learners_are_kept_where_no_success_may_be_possible(reward_values: tuple[float, ...], capsys) -> None:
    """Rewards that are not listed, or none above 0."""
    of_rooms = learners_with_success(*[0.0] * 6)
    env = of_rooms.manifest["env"] | {"reward_values": list(reward_values)}
    histories = Histories(of_rooms.folder, of_rooms.manifest | {"env": env}, of_rooms.columns)
    options = replace(CONFIG, min_final_success=0.5)
    assert Windows(histories, options, ALIKE, TRAIN, 9, CPU).num_windows
    assert "data.min_final_success=0.5 is left out" in capsys.readouterr().out


SPEC = discrete_spec(num_obs=4, num_actions=2, reward_values=(-0.5, 0.0, 1.0), width=0, max_episode_steps=4)
SHAPE = (3, 10)


def test_recency_grows_evenly_with_age() -> None:
    weights = step_weights("recency", 0.9, SPEC, np.zeros(SHAPE, int), np.zeros(SHAPE, bool))
    assert weights == pytest.approx(np.tile(np.arange(1, 11) / 5.5, (3, 1)))


@settings(max_examples=30)
@given(
    reward=arrays(np.int64, SHAPE, elements=st.integers(0, 2)),
    done=arrays(np.bool_, SHAPE),
    discount=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_improvement_is_the_return_to_go_over_that_of_others(reward, done, discount) -> None:
    gain = np.zeros(SHAPE)
    for row, start in np.ndindex(SHAPE):
        for k, t in enumerate(range(start, SHAPE[1])):
            gain[row, start] += discount**k * SPEC.reward_values[reward[row, t]]
            if done[row, t]:
                break
    weights = step_weights("improvement", discount, SPEC, np.array(SPEC.reward_values, np.float32)[reward], done)
    for stretch in (slice(0, 5), slice(5, 10)):
        alike = gain[:, stretch] - min(gain[:, stretch].min(), 0)
        expected = np.minimum(alike / alike.mean(), MOST) if alike.any() else np.ones_like(alike)
        assert weights[:, stretch] == pytest.approx(expected, rel=1e-5)
    values = np.array(SPEC.reward_values, np.float32)[reward]
    gains = (lives._returns_to_go(discount, values[rows], done[rows]) for rows in (slice(1), slice(1, 3)))
    ages = lives.all_ages([lives._ages_of(part, SPEC) for part in gains])
    assert step_weights("improvement", discount, SPEC, values, done, ages) == pytest.approx(weights, rel=1e-4)
    lucky = np.eye(50, 1, dtype=np.float32)  # one of 50
    assert step_weights("improvement", discount, SPEC, lucky, lucky >= 0)[:2, 0].tolist() == [MOST, 0]


def test_moments_of_numbers_far_from_zero_lose_no_digits() -> None:
    column = 1e6 + torch.randn(1000, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mean, std = mean_and_std(lambda: [column])
    assert std.item() == pytest.approx(column.std(correction=0).item(), rel=1e-4)
    assert mean.item() == pytest.approx(1e6)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Histories:
    return written(tmp_path_factory.mktemp("histories") / "whole")


@pytest.mark.parametrize(("options", "objective", "plugin"), KINDS)
def test_rows_are_prepared_a_few_at_a_time(store: Histories, options, objective, plugin, monkeypatch) -> None:
    """With the batches of those that are prepared at once. The mean weight is 1 but for clipping."""
    at_once = mixture_of(store, options, objective, plugin)
    for part in at_once.parts if objective.weighting != "none" else ():
        assert torch.cat([*part.split("weight", 1000)]).float().mean().item() == pytest.approx(1, abs=0.05)
    monkeypatch.setattr(columns, "_CHUNK", 40_000)
    monkeypatch.setattr(lives, "_AT_ONCE", 10_000)
    assert_same_batches(at_once, mixture_of(store, options, objective, plugin))


def test_an_array_on_disk_has_no_name_from_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that nothing of it is left when the process is killed while its space is reserved."""
    reserved, names = columns.reserve, list[Path]()

    def reserve(*arguments: Any) -> None:
        reserved(*arguments)
        names.extend(tmp_path.iterdir())

    monkeypatch.setattr(columns, "reserve", reserve)
    array = columns.scratch(tmp_path, (2, 3), np.float32)
    array[:] = 1
    assert array.sum() == 6 and names == []


class Unread:
    """Column that may not be read."""

    def __init__(self, column: np.ndarray) -> None:
        self.shape, self.dtype = column.shape, column.dtype

    def __len__(self) -> int:
        return self.shape[0]


def test_plain_windows_start_without_reading_a_row(store: Histories) -> None:
    """So the start of training does not depend on the size of the histories; with weights it does."""
    plain, tasks = replace(CONFIG, keep_every=[1], kept_steps=0, min_final_success=0.0), store.tasks["train"][:3]
    whole = Windows(store, plain, ALIKE, tasks, 12, CPU)
    unread = Histories(store.folder, store.manifest, {name: Unread(part) for name, part in store.columns.items()})
    windows = Windows(unread, plain, ALIKE, tasks, 12, CPU)
    assert (windows.num_windows, windows.num_rows) == (whole.num_windows, whole.num_rows) == (18 * 119, 18)
    with pytest.raises(TypeError, match="Unread"):
        Windows(unread, plain, replace(ALIKE, weighting="recency"), tasks, 12, CPU)
