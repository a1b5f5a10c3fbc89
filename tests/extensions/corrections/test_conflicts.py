"""All conflicts of a command line, and the command that has none."""

import shlex
from contextlib import closing

import pytest
from installed import needs

from icrl.app.command_line import run_program
from icrl.app.compose import load_config
from icrl.app.root import Config
from icrl.contracts import ConfigError
from icrl.envs import make_env
from icrl.envs.tasks import development_of, split_tasks
from icrl.extensions.corrections import conflicts

CONFLICTS = [  # options, and parts of the lines about them
    (["tasks.num_train=80"], ["tasks.num_train=80"]),
    pytest.param(
        [
            *("env.id=Taxi-v4", "env.max_episode_steps=200", "env.width=4", "env.reward_values=[0.0,1.0]"),
            "env.tasks=[{}, {is_rainy: true}, {is_rainy: true, rainy_probability: 0.7}]",
        ],
        ["env.id belongs to env=gymnasium", "env.width=4", "env.reward_values=[0.0, 1.0]: lacks -10, -1, 20"],
        marks=needs("from_gymnasium"),
    ),
    pytest.param(
        ["env=gymnasium", "env.id=CliffWalking-v1", "env.tasks=[{}, {is_slippery: true}]", "tasks.num_train=2"],
        ["env.success=goal needs a positive reward", "has 2 tasks"],
        marks=needs("from_gymnasium"),
    ),
    (
        [
            *("source.num_env_steps=30050", "source.history_steps=30055", "modell.context_len=4000"),
            *("data.kept_steps=0", "trainer.mini_batch_length=4000"),
        ],
        ["source.num_env_steps=30050", "source.history_steps=30055", "modell: there is no", "mini_batch_length=4000"],
    ),
    (["tasks.num_train=9", "data.num_development_tasks=9"], ["data.num_development_tasks=9"]),
    (["env.max_episode_steps=5000", "source.num_env_steps=30000"], ["evaluation.num_episodes=2"]),
]


@pytest.mark.parametrize(("options", "parts"), CONFLICTS)
def test_all_conflicts_are_told_at_once_with_a_command_that_has_none(options, parts, capsys, monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", ["stage", *options])
    with pytest.raises(SystemExit):
        run_program(_split, Config, "train_agents", "", "all options")
    told = capsys.readouterr().err.strip().splitlines()
    command = told.pop() if len(told) > len(parts) else ""
    assert len(told) == len(parts) and all(part in line for part, line in zip(parts, told, strict=True)), told
    solvable = "has 2 tasks" not in parts
    assert command.startswith("this command satisfies all rules: icrl train-agents ") == solvable
    if solvable:
        _split(load_config(shlex.split(command.partition("train-agents ")[2])))


def _split(config: Config) -> None:
    with closing(make_env(config.env)) as env:
        development_of(env, config, split_tasks(env, config).train)


def test_the_pipeline_splits_tasks_too() -> None:
    with pytest.raises(ConfigError) as first:
        _split(load_config(["tasks.num_train=80"]))
    *_, command = conflicts.further_conflicts(first.value, Config, "pipeline", ["tasks.num_train=80"])
    assert command.startswith("this command satisfies all rules: icrl pipeline ")


def test_the_programs_that_have_a_missing_option_are_named(capsys, monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", ["stage", "search.num_trials=3"])
    with pytest.raises(SystemExit):
        run_program(_split, Config, "train_agents", "", "all options")
    told = capsys.readouterr().err.splitlines()
    assert told == ["error: search: there is no such option", "       search belongs to icrl search-params"]
