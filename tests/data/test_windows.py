"""Windows against a list of all of them, made by hand."""

import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lives import ALIKE, CONFIG, CPU, NUM_ENVS, NUM_ROWS, PER_TASK, TRAIN, Code, codes_of, histories_of, random_done

from icrl.config.options import replace
from icrl.config.root import DataConfig
from icrl.contracts import Batch, ConfigError
from icrl.data.history_store import Histories
from icrl.data.rewards import History, RewardPlugin
from icrl.data.windows import Windows


def all_codes(windows: Windows) -> list[Code]:
    return codes_of(windows.at(torch.arange(windows.num_windows)))


def listed(
    done: np.ndarray, rows: list[int], num_steps: int, keep_every: list[int], context_len: int, kept_steps: int = 0
) -> list[Code]:
    """Row by row, pace by pace, phase by phase: the steps of episodes phase, phase + k, ..., and every window of the
    first `kept_steps` of them."""
    codes = []
    phases = [(k, phase) for k in keep_every for phase in range(k)]
    for row, (every, phase) in itertools.product(rows, phases):
        kept, episode = [], 0
        for step in range(num_steps):
            if episode % every == phase:
                kept.append(step)
            episode += int(done[row, step])
        kept = kept[: kept_steps or num_steps]
        windows = (tuple(kept[start : start + context_len]) for start in range(len(kept) - context_len + 1))
        codes += [((row,) * context_len, places) for places in windows]
    return codes


@settings(max_examples=60, deadline=None)
@given(
    num_steps=st.integers(3, 25),
    seed=st.integers(0, 10**6),
    keep_every=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    kept_steps=st.integers(0, 15),
    context_len=st.integers(1, 6),
    tasks=st.sets(st.sampled_from(TRAIN), min_size=1),
    history_len=st.integers(0, 25).map(lambda steps_each: steps_each * NUM_ENVS),
)
def test_windows_are_exactly_those_listed(
    num_steps: int,
    seed: int,
    keep_every: list[int],
    kept_steps: int,
    context_len: int,
    tasks: set[int],
    history_len: int,
) -> None:
    """No window crosses rows or tasks, joins episodes out of turn, or is missing, whatever the phase; steps beyond
    `history_len` env steps of a learner, all its environments together, are not there."""
    done = random_done(num_steps, seed)
    rows = [row for row in range(NUM_ROWS) if TRAIN[row // PER_TASK] in tasks]
    expected = listed(
        done, rows, min(history_len // NUM_ENVS or num_steps, num_steps), keep_every, context_len, kept_steps
    )
    config = replace(CONFIG, keep_every=keep_every, kept_steps=kept_steps, history_len=history_len)
    if not expected:
        with pytest.raises(ConfigError, match=f"model.context_len={context_len} is longer than every history"):
            Windows(histories_of(done), config, ALIKE, sorted(tasks), context_len, CPU)
        return
    windows = Windows(histories_of(done), config, ALIKE, sorted(tasks), context_len, CPU)
    assert windows.num_windows == len(expected)
    assert Counter(all_codes(windows)) == Counter(expected)


def test_all_columns_of_a_window_are_of_the_same_steps() -> None:
    windows = Windows(histories_of(random_done(20)), CONFIG, ALIKE, TRAIN, 4, CPU)
    batch = windows.at(torch.arange(50))
    assert torch.equal(batch.action, batch.timestep % 5)
    assert all(column.shape == (50, 4) for column in batch)
    floats = ("weight", "training_reward")
    assert {name: column.dtype for name, column in batch._asdict().items()} == {
        name: torch.float32 if name in floats else torch.long for name in Batch._fields
    }


def test_the_ends_of_episodes_are_those_of_the_steps_of_a_window() -> None:
    """Of each kind, at the step that ended; rows are terminated or truncated by turns."""
    done = random_done(20)
    windows = Windows(histories_of(done), CONFIG, ALIKE, TRAIN, 4, CPU)
    batch = windows.at(torch.arange(windows.num_windows))
    ended = torch.from_numpy(done)[batch.obs, batch.timestep]
    assert torch.equal(batch.terminated, (ended & (batch.obs % 2 == 0)).long())
    assert torch.equal(batch.truncated, (ended & (batch.obs % 2 == 1)).long())
    assert batch.terminated.any() and batch.truncated.any()


def worth(life: History) -> np.ndarray:
    """A number for every step of every life; of what a plug-in may see, the reward that was seen too."""
    return (100 * life.obs + life.timestep - 1000 * life.reward).astype(np.float32)


def test_what_is_learned_from_is_the_reward_or_what_a_plugin_makes_of_it() -> None:
    """Also where episodes are left out, whose lives the plug-in still sees whole."""
    done, reward = random_done(20), np.indices((NUM_ROWS, 20)).sum(0) % 2
    histories = histories_of(done, reward)
    histories.manifest["tasks"]["all"] = [[task] for task in range(max(TRAIN) + 1)]
    histories.manifest["config"] = {"env": {"name": "dark_room"}}
    histories.manifest["env"]["reward_values"] = [0.5, -3.0]
    config = replace(CONFIG, keep_every=[2], history_len=15 * NUM_ENVS)
    plain = Windows(histories, config, ALIKE, TRAIN, 3, CPU)
    batch = plain.at(torch.arange(plain.num_windows))
    seen = torch.tensor([0.5, -3.0])[batch.reward]
    assert torch.equal(batch.training_reward, seen)
    assert plain.largest_payoff == 3.0
    other = Windows(histories, config, ALIKE, TRAIN, 3, CPU, RewardPlugin("worth", "", "", worth))
    again = other.at(torch.arange(other.num_windows))
    assert torch.equal(again.training_reward, 100 * batch.obs + batch.timestep - 1000 * seen)
    assert torch.equal(again.reward, batch.reward)
    assert other.largest_payoff >= again.training_reward.abs().max()


def test_less_than_a_step_of_every_environment_is_not_all() -> None:
    histories = histories_of(random_done(20))
    config = replace(CONFIG, history_len=NUM_ENVS - 1)
    message = rf"data\.history_len={NUM_ENVS - 1}: must be at least the {NUM_ENVS} environments of a learner in codes"
    with pytest.raises(ConfigError, match=message):
        Windows(histories, config, ALIKE, TRAIN, 1, CPU)
    one_each = Windows(histories, replace(CONFIG, history_len=NUM_ENVS), ALIKE, TRAIN, 1, CPU)
    assert one_each.num_windows == NUM_ROWS


def test_rooms_with_more_than_256_cells() -> None:
    done = random_done(12)
    windows = Windows(histories_of(done, dtype=np.uint16), CONFIG, ALIKE, TRAIN, 3, CPU)
    assert Counter(all_codes(windows)) == Counter(listed(done, list(range(NUM_ROWS)), 12, [1], 3))


def learners_with_success(success: list[float]) -> Histories:
    """Learner k wins the part `success[k]` of its episodes, at the end of its life and before: episodes of one step."""
    num_steps = 100
    done = np.ones((NUM_ROWS, num_steps), bool)
    reward = np.stack([np.arange(num_steps) % 10 < 10 * success[row // NUM_ENVS] for row in range(NUM_ROWS)])
    return histories_of(done, reward)


def test_learners_that_did_not_learn_are_left_out() -> None:
    histories = learners_with_success([0.2, 0.5, 0.9, 0.4, 1.0, 0.0])
    assert histories.final_success().tolist() == pytest.approx(np.array([[0.2, 0.5], [0.9, 0.4], [1.0, 0.0]]))
    config = replace(CONFIG, min_final_success=0.5)
    rows = {row for rows, _ in all_codes(Windows(histories, config, ALIKE, TRAIN, 99, CPU)) for row in rows}
    assert rows == {row for learner in (1, 2, 4) for row in (2 * learner, 2 * learner + 1)}
    some = {row for rows, _ in all_codes(Windows(histories, config, ALIKE, TRAIN[:2], 99, CPU)) for row in rows}
    assert some == {2, 3, 4, 5}


def test_no_learner_left_is_an_error_that_names_the_best() -> None:
    histories = learners_with_success([0.2, 0.5, 0.7, 0.4, 0.3, 0.0])
    config = replace(CONFIG, min_final_success=0.8)
    with pytest.raises(ConfigError, match=r"data\.min_final_success=0\.8 leaves nothing of codes.*0\.700"):
        Windows(histories, config, ALIKE, TRAIN, 4, CPU)
    with pytest.raises(ConfigError, match=r"0\.500"):  # the best of those that are asked for
        Windows(histories, config, ALIKE, TRAIN[:1], 4, CPU)


def test_no_window_left_is_an_error_that_names_the_longest() -> None:
    done = np.zeros((NUM_ROWS, 20), bool)
    done[:, 11] = True
    config: DataConfig = replace(CONFIG, keep_every=[2])
    with pytest.raises(
        ConfigError,
        match=r"context_len=13 .*keep_every=\[2\] and data.kept_steps=0 leave of codes: the longest has 12 steps",
    ):
        Windows(histories_of(done), config, ALIKE, TRAIN, 13, CPU)


def test_the_weights_of_a_window_are_those_of_its_steps() -> None:
    """Of rows that are selected alone: learners that were left out are not who others are compared with."""
    histories = learners_with_success([0.2, 0.5, 0.9, 0.4, 1.0, 0.0])
    config = replace(CONFIG, min_final_success=0.6, keep_every=[3])
    by_gain = replace(ALIKE, weighting="improvement", discount=0.0, max_weight=100.0)
    batch = (windows := Windows(histories, config, by_gain, TRAIN, 5, CPU)).at(torch.arange(windows.num_windows))
    won = batch.reward.float()
    assert len(torch.unique(batch.obs)) == 4
    assert torch.allclose(batch.weight, won / 0.95, atol=0.02)  # two learners win 0.9 and all of their episodes


def test_unknown_optimal_actions_are_refused_before_they_are_needed() -> None:
    histories = histories_of(random_done(20))
    dpt = replace(ALIKE, name="dpt")
    assert Windows(histories, CONFIG, dpt, TRAIN, 4, CPU).num_windows
    histories.columns["optimal_action"] = np.full_like(histories.columns["obs"], 5)
    assert Windows(histories, CONFIG, ALIKE, TRAIN, 4, CPU).num_windows
    with pytest.raises(ConfigError, match=r"objective\.name=dpt: nobody knows what is optimal in codes"):
        Windows(histories, CONFIG, dpt, TRAIN, 4, CPU)
