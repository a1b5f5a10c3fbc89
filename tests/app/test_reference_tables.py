"""The tables "options of the reference and ours" in the docs: all options in them exist, with the defaults they say."""

import re
from functools import cache
from typing import Any

import pytest
from pages import check_options_of_table, rows_of

from icrl.app.compose import load_config, presets_of
from icrl.config.options import walk

CHOSEN = [f"{group}={name}" for group in ("source", "optimizer") for name in presets_of(group)]
HEADINGS = {
    "trainer.md": "## Settings of the reference, and ours",
}
NUM_SETTINGS = 61  # of the reference trainer
# The default here, as the last column shows it, by document and first name of a row: option, preset, value.
DEFAULTS: list[tuple[str, str, str, list[str], Any, str]] = [
    ("trainer.md", "random_seed", "seed", [], 0, "; 0"),
    ("trainer.md", "num_iterations", "source.num_env_steps", [], 30000, "`source.num_env_steps=30000`"),
    ("trainer.md", "num_iterations", "trainer.num_iterations", [], 2000, "`trainer.num_iterations=2000`"),
    ("trainer.md", "unroll_length", "source.unroll_length", [], 10.0, "8; 10 (Q-learning 1, DQN 2)"),
    ("trainer.md", "unroll_length", "source.unroll_length", ["source=q_learning"], 1.0, "Q-learning 1"),
    ("trainer.md", "unroll_length", "source.unroll_length", ["source=dqn"], 2.0, "DQN 2"),
    ("trainer.md", "initial_collect_steps", "source.initial_collect_steps", [], 0, "0; 0 (DQN 400)"),
    ("trainer.md", "initial_collect_steps", "source.initial_collect_steps", ["source=dqn"], 400, "DQN 400"),
    ("trainer.md", "num_updates_per_train_iter", "source.num_updates_per_train_iter", [], 1, "4; 1"),
    ("trainer.md", "mini_batch_length", "source.mini_batch_length", [], 0, "none; 0"),
    ("trainer.md", "mini_batch_length", "source.mini_batch_length", ["source=dqn"], 1, "DQN 1"),
    ("trainer.md", "mini_batch_length", "trainer.mini_batch_length", [], 0, "none; 0"),
    ("trainer.md", "mini_batch_size", "source.mini_batch_size", [], 0, "0, all windows"),
    ("trainer.md", "mini_batch_size", "source.mini_batch_size", ["source=dqn"], 32, "DQN 32"),
    ("trainer.md", "mini_batch_size", "trainer.mini_batch_size", [], 32, "and 32"),
    ("trainer.md", "async_unroll", "source.async_unroll", [], False, "equal: false"),
    ("trainer.md", "unroll_queue_size", "source.unroll_queue_size", [], 2, "200; 2"),
    ("trainer.md", "num_checkpoints", "checkpoints.num_checkpoints", [], 10, "equal: 10"),
    ("trainer.md", "evaluate", "source.evaluate", [], False, "false; false, true"),
    ("trainer.md", "evaluate", "trainer.evaluate", [], True, "false; false, true"),
    ("trainer.md", "num_evals", "evals.num_evals", [], 5, "none, 10; 5, 0"),
    ("trainer.md", "num_evals", "evals.eval_interval", [], 0, "none, 10; 5, 0"),
    ("trainer.md", "epsilon_greedy", "evals.sample_probability", [], 1.0, "1.0, always drawn"),
    ("trainer.md", "epsilon_greedy", "evaluation.sample_probability", [], 1.0, "1.0, always drawn"),
    ("trainer.md", "num_eval_episodes", "evals.num_eval_episodes", [], 128, "128, 8"),
    ("trainer.md", "num_eval_episodes", "evals.num_eval_environments", [], 8, "128, 8"),
    ("trainer.md", "async_eval", "evals.async_eval", [], True, "equal: true"),
    ("trainer.md", "num_summaries", "summaries.num_summaries", [], 100, "none, 50; 100, 0"),
    ("trainer.md", "num_summaries", "summaries.summary_interval", [], 0, "none, 50; 100, 0"),
    ("trainer.md", "debug_summaries", "summaries.details", [], False, "equal: false"),
    ("trainer.md", "summarize_gradient_noise_scale", "summaries.gradient_noise_scale", [], "none", "false; none"),
    ("trainer.md", "profiling", "summaries.profiled_iterations", [], 0, "false; 0"),
    ("trainer.md", "enable_amp", "device.amp_dtype", [], "none", "false; none"),
    *(
        ("trainer.md", "whole_replay_buffer_training", f"source.{name}", [f"source={source}"], default, shown)
        for name in ("whole_replay_buffer_training", "clear_replay_buffer")
        for source, default, shown in (("q_learning", True, "true, true for Q"), ("dqn", False, "false, false for DQN"))
    ),
    ("trainer.md", "replay_buffer_length", "source.replay_buffer_length", ["source=dqn"], 1000, "1024; 1000"),
    ("trainer.md", "priority_replay", "source.priority_replay", ["source=q_learning"], False, "false for Q-learning"),
    ("trainer.md", "priority_replay", "source.priority_replay", ["source=dqn"], True, "true for DQN"),
    ("trainer.md", "priority_replay_alpha", "source.priority_replay_alpha", ["source=dqn"], 0.6, "DQN 0.6"),
    ("trainer.md", "offline_buffer_dir", "source.offline_buffer_dir", ["source=dqn"], [], "none, all; none, all"),
    ("trainer.md", "rl_train_after_update_steps", "source.rl_train_after_update_steps", ["source=dqn"], 0, "0; 0"),
]


@cache
def options_of(*chosen: str) -> dict[str, Any]:
    """Default of each option by its key, with presets."""
    return {key: default for key, default, _ in walk(load_config(chosen))}


@pytest.mark.parametrize("page", HEADINGS)
def test_every_option_exists(page: str) -> None:
    known = {key for one in ("experiment=four_layers", *CHOSEN) for key in options_of(one)}
    check_options_of_table(rows_of(page, HEADINGS[page]), known)


def test_the_table_has_every_setting_of_the_reference_trainer() -> None:
    names = [
        name for row in rows_of("trainer.md", HEADINGS["trainer.md"]) for name in re.findall(r"`([a-z_]+)`", row[0])
    ]
    assert len(names) == len({*names}) == NUM_SETTINGS


@pytest.mark.parametrize(("page", "row", "key", "chosen", "value", "shown"), DEFAULTS)
def test_defaults_are_those_of_the_options(page: str, row: str, key: str, chosen: Any, value: Any, shown: str) -> None:
    found = [
        cells for cells in rows_of(page, HEADINGS[page]) if cells[0].replace("`", "").startswith(row.replace("`", ""))
    ]
    assert found and any(shown in cells[-1] for cells in found), (row, found)
    options = options_of(*(chosen if "experiment" in str(chosen) else ["experiment=four_layers", *chosen]))
    *_, part = key.split(".")
    assert (options[key] if key in options else options[key.removesuffix(f".{part}")][part]) == value
