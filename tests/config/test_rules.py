"""Refusals: every line of `refusals.txt` is a command line and what its one-line error must name."""

import re
from pathlib import Path

import pytest

from icrl.config.compose import load_config, load_players_config
from icrl.contracts import ConfigError

# All that the rules are about, so that other defaults do not change them.
PLAIN = (
    *("env.max_episode_steps=20", "tasks.num_train=57", "source.num_learners=10", "source.num_envs=10"),
    *("source.unroll_length=10", "source.num_iterations=0", "source.num_env_steps=30000"),
    *("source.history_steps=30000", "source.videos_per_task=1", "source.mini_batch_length=0"),
    *("source.mini_batch_size=0", "data.history_len=0", "data.kept_steps=0", "data.num_development_tasks=6"),
    *("model.embed_dim=64", "model.num_heads=4", "model.context_len=160", "model.max_size=17"),
    *("model.position=learned", "model.add_env_time=true", "model.obs_encoding=coordinates"),
    *("trainer.mini_batch_size=32", "evals.num_evals=8", "evals.num_eval_episodes=256"),
    *("evals.num_eval_environments=16", "checkpoints.num_checkpoints=10", "summaries.num_summaries=100"),
    *("evaluation.num_episodes=40", "evaluation.checkpoint=best", "search.num_env_steps=20000"),
    *("critic.imitation_scaling=0", "awr.inverse_temperature=10", "policy.advantage_scale=0"),
)
LOADERS = {
    "config": lambda overrides: load_config([*PLAIN, *overrides]),
    "point_game": lambda overrides: load_config(["experiment=point_game", "evaluation.num_episodes=4", *overrides]),
    "players": load_players_config,
}


def table() -> list[tuple[str, list[str], list[str]]]:
    """(configuration, overrides, what the error names) of each line."""
    rows, section = [], ""
    for line in Path(__file__).with_name("refusals.txt").read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line:
            overrides, named = line.split("  =>  ")
            rows.append((section, overrides.split("  "), named.split("  &  ")))
    return rows


@pytest.mark.parametrize(("section", "overrides", "named"), table())
def test_a_refusal_names_field_value_and_what_is_allowed(section: str, overrides: list[str], named: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        LOADERS[section](overrides)
    message = str(refused.value)
    assert "\n" not in message
    assert all(part in message for part in named), message


@pytest.mark.parametrize("line", Path(__file__).with_name("allowed.txt").read_text().splitlines())
def test_options_that_only_nearly_conflict_are_allowed(line: str) -> None:
    point_game = line.startswith("experiment=point_game")
    load_config([*(() if point_game else PLAIN), *re.split(r" (?=[\w.]+=)", line)])
