"""A search continues after any interruption, and its score tells learning from not learning."""

import re
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import optuna
import pytest
import torch
from matplotlib import pyplot as plt

from icrl.config.compose import load_config
from icrl.config.options import replace
from icrl.config.root import Config
from icrl.contracts import ConfigError
from icrl.envs import make_env
from icrl.envs.rooms import DarkRoom
from icrl.plots.search_plots import PLOTS, search_table, write_search_plots
from icrl.programs import search_params
from icrl.programs.search_params import main, score, searched_task
from icrl.runs.files import read_json

OPTIONS = ("experiment=tiny", "device=cpu", "num_threads=1")
QUICK = ("search.num_learners=1", "search.num_env_steps=200")


def tiny(root: Path, *options: str) -> Config:
    return load_config([*OPTIONS, f"root={root}", *options])


def searched(root: Path, num_trials: int, *options: str) -> dict[str, Any]:
    """Search until there are `num_trials`; returns the results."""
    return read_json(main(tiny(root, *QUICK, f"search.num_trials={num_trials}", *options)) / "results.json")


def test_an_interrupted_search_tries_the_same_as_an_undisturbed_one(tmp_path, monkeypatch, capsys):
    """Twelve trials are more than the random ones that the sampler starts with."""
    scored: list[Config] = []
    monkeypatch.setattr(search_params, "score", lambda *arguments: scored.append(arguments[0]) or score(*arguments))
    closed: list[int] = []
    monkeypatch.setattr(DarkRoom, "close", lambda env: closed.append(id(env)))
    results = searched(tmp_path / "undisturbed", 12)
    values = [trial["value"] for trial in results["trials"]]
    assert len(scored) == len(values) == 12 and len(set(values)) > 1 and len(closed) == 1 + 12
    best = results["trials"][values.index(max(values))]
    assert best == {"value": results["value"], **results["best"]} and results["value"] == max(values)
    printed = re.findall(r"source\.\S+", capsys.readouterr().out)
    source = load_config([*OPTIONS, *printed]).source
    assert {option.partition("=")[0] for option in printed} == {f"source.{name}" for name in results["best"]}
    assert all(getattr(source, name) == pytest.approx(value, rel=1e-3) for name, value in results["best"].items())
    first = searched(tmp_path, 11)
    with monkeypatch.context() as patch, pytest.raises(SystemExit):  # amid the next trial
        patch.setattr(search_params, "score", lambda *_: sys.exit())
        searched(tmp_path, 12)
    second = searched(tmp_path, 12)
    assert second["trials"] == results["trials"] and second["trials"][:11] == first["trials"]
    assert second["times"][:11] == first["times"] and len(second["times"]) == 12
    assert searched(tmp_path, 2) == second, "fewer trials than there are must not take any away"
    assert len(scored) == 24
    for option in ("search.goal_row=3", "seed=1", "env.terminate_on_goal=false"):
        with pytest.raises(ConfigError, match=re.escape(option.split("=")[0])):
            searched(tmp_path, 13, option)
    pictures = [*(tmp_path / "logs/tiny/search").glob("*.png")]
    assert {path.stem for path in pictures} == PLOTS.keys()
    assert {plt.imread(path).shape[:2] for path in pictures} == {(700, 1200)}


@pytest.mark.parametrize("values", [[0.5], [0.0, 0.0, 0.0]])
def test_pictures_of_few_trials_leave_pyplot_alone(tmp_path, values):
    study = optuna.create_study(direction="maximize")
    distributions = {name: search_params.SPACE[name] for name in ("discount", "hidden_size")}
    params = {"discount": 0.9, "hidden_size": 64}
    for value in values:
        study.add_trial(optuna.create_trial(value=value, params=params, distributions=distributions))
    plt.switch_backend("svg")
    before, figures = dict(mpl.rcParams), plt.get_fignums()
    write_search_plots(tmp_path, study)
    assert dict(mpl.rcParams) == before and plt.get_fignums() == figures and mpl.get_backend() == "svg"


def test_table_has_the_best_first():
    trials = [{"value": value, "learning_rate": value / 100} for value in (0.2, 0.9, 0.5)]
    header, _, *rows = search_table(trials, num_best=2).splitlines()
    assert header.split() == ["trial", "success", "learning_rate"]
    assert [row.split() for row in rows] == [["2", "0.900", "0.009"], ["3", "0.500", "0.005"]]


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ("search.num_env_steps=2001", ["search.num_env_steps=2001", "source.num_envs", "source.unroll_length"]),
        ("source=q_learning", ["source.name=q_learning", "a2c"]),
        ("search.num_env_steps=200 source.initial_collect_steps=300", ["source.initial_collect_steps=300"]),
        ("env=bandit", ["env.name=bandit: the search needs a goal in a room"]),
        ("search.goal_row=2 search.goal_column=2", ["search.goal_row=2 and search.goal_column=2: no task"]),
        ("tasks.split=list tasks.held_out=[0] search.goal_row=0 search.goal_column=0", ["held out by tasks.split"]),
    ],
)
def test_impossible_searches_are_refused(tmp_path, options, parts):
    """The cell in the centre, where all episodes start, is no goal."""
    with pytest.raises(ConfigError) as refused:
        main(load_config(["experiment=tiny", f"root={tmp_path}", *options.split()]))
    assert all(part in str(refused.value) for part in parts), refused.value
    assert not (tmp_path / "logs").exists()


def test_the_searched_task_is_the_first_with_its_goal_in_the_cell():
    goal = ("env.size=4", "search.goal_row=1", "search.goal_column=1", "tasks.num_train=8")
    for env, expected in (("dark_room", [5]), ("dark_room_permuted", [5, 0]), ("dark_key_to_door", [0, 5])):
        config = load_config([f"env={env}", *goal, "data.num_development_tasks=2"])
        assert searched_task(config, make_env(config.env)).tolist() == [expected]


def test_score_tells_learning_from_not_learning(tmp_path):
    life = ("source.num_learners=4", "source.num_env_steps=3000", "source.history_steps=3000")
    config = tiny(tmp_path, *life, "search.goal_row=1", "search.goal_column=3")
    good, hopeless = (
        score(replace(config, source=replace(config.source, learning_rate=rate)), torch.device("cpu"))
        for rate in (0.01, 1e-8)
    )
    assert 0 <= hopeless < 0.35 < good <= 1
    far = tiny(tmp_path)  # the corner, 4 steps away, in lives of 3 steps
    short = replace(far.source, num_env_steps=3 * far.source.num_envs, unroll_length=3.0)
    assert score(replace(far, source=short), torch.device("cpu")) == 0
