"""The search goes on where it was, whatever ended it, and its score tells learning from not learning."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from icrl.config.compose import load_config
from icrl.config.env_schema import DarkRoomConfig
from icrl.config.options import replace
from icrl.config.paths import PROJECT
from icrl.config.root import Config
from icrl.contracts import ConfigError
from icrl.envs import make_env
from icrl.envs.core import TensorEnv
from icrl.envs.dark_room import DarkRoom
from icrl.plots.search_plots import search_table
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


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a search that ran in one go, longer than the sampler's random start."""
    root = tmp_path_factory.mktemp("undisturbed")
    return main(tiny(root, *QUICK, "search.num_trials=13"))


def test_results_and_picture(undisturbed: Path) -> None:
    results = read_json(undisturbed / "results.json")
    values = [trial["value"] for trial in results["trials"]]
    assert len(values) == 13
    assert results["value"] == max(values)
    best = results["trials"][values.index(max(values))]
    assert best == {"value": results["value"], **results["best"]}
    assert len(set(values)) > 1
    with Image.open(undisturbed / "search.png") as picture:
        picture.load()
        assert picture.size == (1200, 700)


def test_a_second_call_adds_only_what_is_missing(
    tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored: list[Config] = []
    monkeypatch.setattr(search_params, "score", lambda *arguments: scored.append(arguments[0]) or score(*arguments))
    first = searched(tmp_path, 11)
    assert len(scored) == 11
    second = searched(tmp_path, 13)
    assert len(scored) == 13
    assert second["trials"][:11] == first["trials"]
    assert second == read_json(undisturbed / "results.json"), "an interruption changed what is tried"
    assert searched(tmp_path, 13) == second
    assert searched(tmp_path, 2) == second, "fewer trials than there are must not take any away"
    assert len(scored) == 13


def test_killed_amid_the_search(tmp_path: Path) -> None:
    long = ("search.num_learners=2", "search.num_env_steps=4000")  # trials that last, so that one is under way
    process = subprocess.Popen(
        [sys.executable, "-m", "src.search_params", *OPTIONS, f"root={tmp_path}", *long, "search.num_trials=500"],
        cwd=PROJECT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait(lambda: len(_trials(tmp_path)) >= 2, process)
    finally:
        process.kill()
        process.wait()
    before = _trials(tmp_path)
    assert 2 <= len(before) < 500
    folder = main(tiny(tmp_path, *long, f"search.num_trials={len(before) + 1}"))
    results = read_json(folder / "results.json")
    assert results["trials"][:-1] == before
    assert len(results["trials"]) == len(before) + 1
    assert (folder / "search.png").exists()


def test_the_study_of_another_problem_is_refused(tmp_path: Path) -> None:
    before = searched(tmp_path, 1)
    for option in ("search.goal_row=3", "seed=1", "env.terminate_on_goal=false"):
        with pytest.raises(ConfigError, match=re.escape(option.split("=")[0])):
            searched(tmp_path, 2, option)
    assert read_json(tmp_path / "logs" / "tiny" / "search" / "results.json") == before


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["search.num_env_steps=2001"], ["search.num_env_steps=2001", "source.num_envs", "source.unroll_length"]),
        (["source=q_learning"], ["source.name=q_learning", "a2c"]),
        (
            ["search.num_env_steps=200", "source.initial_collect_steps=300"],
            ["search.num_env_steps=200", "source.initial_collect_steps=300"],
        ),
    ],
)
def test_what_cannot_be_searched_is_refused(tmp_path: Path, options: list[str], parts: list[str]) -> None:
    config = load_config([*options, "experiment=tiny", f"root={tmp_path}"])
    with pytest.raises(ConfigError) as refused:
        main(config)
    assert all(part in str(refused.value) for part in parts)
    assert not (tmp_path / "logs").exists()


def test_what_is_printed_can_be_used_as_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = searched(tmp_path, 2)
    options = re.findall(r"source\.\S+", capsys.readouterr().out)
    source = load_config([*OPTIONS, *options]).source
    assert len(options) == len(results["best"])
    for name, value in results["best"].items():
        assert getattr(source, name) == pytest.approx(value, rel=1e-3)


def test_score_tells_learning_from_not_learning(tmp_path: Path) -> None:
    life = ("source.num_learners=4", "source.num_env_steps=3000", "source.history_steps=3000")
    config = tiny(tmp_path, *life, "search.goal_row=1", "search.goal_column=3")
    good, hopeless = (
        score(replace(config, source=replace(config.source, learning_rate=rate)), torch.device("cpu"))
        for rate in (0.01, 1e-8)
    )
    assert 0 <= hopeless < 0.35 < good <= 1


def test_every_environment_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[TensorEnv] = []

    class Watched(DarkRoom):
        closed = False

        def close(self) -> None:
            self.closed = True

    def make(config: DarkRoomConfig, device: torch.device) -> TensorEnv:
        made.append(Watched(config))
        return made[-1]

    monkeypatch.setattr(search_params, "make_env", make)
    searched(tmp_path, 2)
    assert len(made) == 3 and all(env.closed for env in made)


def test_score_of_lives_too_short_for_an_episode(tmp_path: Path) -> None:
    config = tiny(tmp_path)  # the far corner, 4 steps away
    short = replace(config.source, num_env_steps=3 * config.source.num_envs, unroll_length=3.0)
    assert score(replace(config, source=short), torch.device("cpu")) == 0


def test_table_has_the_best_first() -> None:
    trials = [{"value": value, "learning_rate": value / 100} for value in (0.2, 0.9, 0.5)]
    header, _, *rows = search_table(trials, num_best=2).splitlines()
    assert header.split() == ["trial", "success", "learning_rate"]
    assert [row.split() for row in rows] == [["2", "0.900", "0.009"], ["3", "0.500", "0.005"]]


def _trials(root: Path) -> list[dict[str, Any]]:
    """What a search, that may be under way, has kept so far."""
    path = root / "logs" / "tiny" / "search" / "results.json"
    return read_json(path)["trials"] if path.exists() else []


def _wait(condition: Any, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, "the search ended by itself"
        assert time.monotonic() < end
        time.sleep(0.05)


def test_the_searched_task_is_the_first_with_its_goal_in_the_cell() -> None:
    goal = (
        "env.size=4",
        "search.goal_row=1",
        "search.goal_column=1",
        "tasks.num_train=8",
        "data.num_development_tasks=2",
    )
    for env, expected in (("dark_room", [5]), ("dark_room_permuted", [5, 0]), ("dark_key_to_door", [0, 5])):
        config = load_config([f"env={env}", *goal])
        assert searched_task(config, make_env(config.env)).tolist() == [expected]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("env=bandit",), "env.name=bandit: the search is on a goal in a room"),
        (("search.goal_row=4", "search.goal_column=4"), "search.goal_row=4 and search.goal_column=4: no task"),
        (("tasks.split=quadrant",), "search.goal_row=0 and search.goal_column=0: held out by tasks.split=quadrant"),
    ],
)
def test_a_search_needs_a_goal_in_a_room(options: tuple[str, ...], message: str) -> None:
    """The cell in the centre, where all episodes start, is no goal."""
    config = load_config(options)
    with pytest.raises(ConfigError, match=re.escape(message)):
        searched_task(config, make_env(config.env))
