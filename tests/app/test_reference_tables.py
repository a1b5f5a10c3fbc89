"""The tables "options of the reference and ours" in the docs: all options in them exist, with the defaults they say."""

import re
from functools import cache
from typing import Any

import pytest
from pages import check_options_of_table, rows_of

from icrl.app.compose import load_config, presets_of
from icrl.config.options import walk

CHOSEN = [f"{group}={name}" for group in ("source", "optimizer") for name in presets_of(group)]
ROWS = rows_of("trainer.md", "## Settings of the reference, and ours")
NUM_SETTINGS = 61  # of the reference trainer
# The default here, as the last column shows it, by first name of a row: option, preset, value.
DEFAULTS: list[tuple[str, str, list[str], Any, str]] = [
    ("random_seed", "seed", [], 0, "; 0"),
    ("num_iterations", "source.num_env_steps", [], 30000, "`source.num_env_steps=30000`"),
    ("num_iterations", "trainer.num_iterations", [], 2000, "`trainer.num_iterations=2000`"),
    ("unroll_length", "source.unroll_length", [], 10.0, "8; 10 (Q-learning 1, DQN 2)"),
    ("unroll_length", "source.unroll_length", ["source=q_learning"], 1.0, "Q-learning 1"),
    ("unroll_length", "source.unroll_length", ["source=dqn"], 2.0, "DQN 2"),
    ("initial_collect_steps", "source.initial_collect_steps", [], 0, "0; 0 (DQN 400)"),
    ("initial_collect_steps", "source.initial_collect_steps", ["source=dqn"], 400, "DQN 400"),
    ("num_updates_per_train_iter", "source.num_updates_per_train_iter", [], 1, "4; 1"),
    ("mini_batch_length", "source.mini_batch_length", [], 0, "none; 0"),
    ("mini_batch_length", "source.mini_batch_length", ["source=dqn"], 1, "DQN 1"),
    ("mini_batch_length", "trainer.mini_batch_length", [], 0, "none; 0"),
    ("mini_batch_size", "source.mini_batch_size", [], 0, "0, all windows"),
    ("mini_batch_size", "source.mini_batch_size", ["source=dqn"], 32, "DQN 32"),
    ("mini_batch_size", "trainer.mini_batch_size", [], 32, "and 32"),
    ("async_unroll", "source.async_unroll", [], False, "equal: false"),
    ("unroll_queue_size", "source.unroll_queue_size", [], 2, "200; 2"),
    ("num_checkpoints", "checkpoints.num_checkpoints", [], 10, "equal: 10"),
    ("evaluate", "source.evaluate", [], False, "false; false, true"),
    ("evaluate", "trainer.evaluate", [], True, "false; false, true"),
    ("num_evals", "evals.num_evals", [], 5, "none, 10; 5, 0"),
    ("num_evals", "evals.eval_interval", [], 0, "none, 10; 5, 0"),
    ("epsilon_greedy", "evals.sample_probability", [], 1.0, "1.0, always drawn"),
    ("epsilon_greedy", "evaluation.sample_probability", [], 1.0, "1.0, always drawn"),
    ("num_eval_episodes", "evals.num_eval_episodes", [], 128, "128, 8"),
    ("num_eval_episodes", "evals.num_eval_environments", [], 8, "128, 8"),
    ("async_eval", "evals.async_eval", [], True, "equal: true"),
    ("num_summaries", "summaries.num_summaries", [], 100, "none, 50; 100, 0"),
    ("num_summaries", "summaries.summary_interval", [], 0, "none, 50; 100, 0"),
    ("debug_summaries", "summaries.details", [], False, "equal: false"),
    ("summarize_gradient_noise_scale", "summaries.gradient_noise_scale", [], "none", "false; none"),
    ("profiling", "summaries.profiled_iterations", [], 0, "false; 0"),
    ("enable_amp", "device.amp_dtype", [], "none", "false; none"),
    *(
        ("whole_replay_buffer_training", f"source.{name}", [f"source={source}"], default, shown)
        for name in ("whole_replay_buffer_training", "clear_replay_buffer")
        for source, default, shown in (("q_learning", True, "true, true for Q"), ("dqn", False, "false, false for DQN"))
    ),
    ("replay_buffer_length", "source.replay_buffer_length", ["source=dqn"], 1000, "1024; 1000"),
    ("priority_replay", "source.priority_replay", ["source=q_learning"], False, "false for Q-learning"),
    ("priority_replay", "source.priority_replay", ["source=dqn"], True, "true for DQN"),
    ("priority_replay_alpha", "source.priority_replay_alpha", ["source=dqn"], 0.6, "DQN 0.6"),
    ("offline_buffer_dir", "source.offline_buffer_dir", ["source=dqn"], [], "none, all; none, all"),
    ("rl_train_after_update_steps", "source.rl_train_after_update_steps", ["source=dqn"], 0, "0; 0"),
]


@cache
def options_of(*chosen: str) -> dict[str, Any]:
    """Default of each option by its key, with presets."""
    return {key: default for key, default, _ in walk(load_config(chosen))}


def test_every_option_exists() -> None:
    check_options_of_table(ROWS, {key for one in ("experiment=four_layers", *CHOSEN) for key in options_of(one)})


def test_the_table_has_every_setting_of_the_reference_trainer() -> None:
    names = [name for row in ROWS for name in re.findall(r"`([a-z_]+)`", row[0])]
    assert len(names) == len({*names}) == NUM_SETTINGS


@pytest.mark.parametrize(("row", "key", "chosen", "value", "shown"), DEFAULTS)
def test_defaults_are_those_of_the_options(row: str, key: str, chosen: list[str], value: Any, shown: str) -> None:
    found = [cells for cells in ROWS if cells[0].replace("`", "").startswith(row)]
    assert found and any(shown in cells[-1] for cells in found), (row, found)
    assert options_of("experiment=four_layers", *chosen)[key] == value
