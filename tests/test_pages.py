"""Code and commands of the documentation: blocks run as they stand, and commands have options that exist."""

import math
import re
import runpy
import shlex
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from harness import done
from installed import ABSENT, needs, worlds
from pages import PAGES, blocks, check_command, commands, rows_of, run_blocks

from icrl import extensions
from icrl.app import compose
from icrl.app.compose import compose_config
from icrl.app.root import Config
from icrl.envs import make_env
from icrl.envs.tasks import split_tasks
from icrl.runs.files import PROJECT

# Budgets of a few updates, which leave the worlds, recipes and names of the pages as they are
BUDGET = (
    *("device=cpu", "num_threads=1", "source.num_learners=1", "source.num_env_steps=600", "source.history_steps=600"),
    *("source.videos_per_task=0", "data.min_final_success=0", "trainer.num_iterations=2", "trainer.evaluate=false"),
    *("evaluation.num_episodes=2", "evaluation.num_streams=1", "evaluation.num_bootstrap=100"),
    *("evaluation.videos=false", "evaluation.ablations=false", "evaluation.moved_goal=false"),
    *("evaluation.temperatures=[]", "checkpoints.num_checkpoints=1", "summaries.num_summaries=1"),
)
TRIALS = (
    *("finetune.num_iterations=1", "finetune.num_tasks=2", "finetune.num_unsolvable=1", "finetune.num_mini_batches=1"),
    *("finetune.trial_steps=40", "model.context_len=60"),
)
FILE = r"\b(?:src|tests|benchmarks|docs|examples)/[\w/]+\.(?:py|yaml|md)\b"
WORLDS = {name: row for row in rows_of("worlds.md", "# Worlds") for name in worlds(*re.findall(r"`(\w+)`", row[0]))}
EXTRAS = ("locomotion", "minigrid", "meta_world", "Taxi", "gymnasium_pendulum")  # their packages are not in CI


@pytest.mark.parametrize("command", commands())
def test_commands_have_options_that_exist(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if any(package in command for package in EXTRAS):
        pytest.skip("needs a package that is not installed here")
    monkeypatch.chdir(PROJECT)
    check_command(command)


def test_wrong_commands_are_found() -> None:
    found = commands()
    assert len(found) > 60 and "src.pipeline experiment=quick" in found


@pytest.mark.parametrize("name", WORLDS)
def test_worlds_have_as_many_tasks_as_the_page_says(name: str) -> None:
    _, tasks, split, *_ = WORLDS[name]
    config = compose_config(Config, [f"env={name}"])
    with closing(make_env(config.env)) as env:
        train, held_out = split_tasks(env, config)
        assert len(env.all_tasks()) == math.prod(map(int, re.findall(r"^\d+|(?<=goals x )\d+", tasks)))
        assert f"{len(train)} / {len(held_out)}" == split


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a reader who has given the commands of `start.md`, with little training."""
    folder = tmp_path_factory.mktemp("reader")
    for line in "".join(blocks(PROJECT / "docs/start.md", "sh")).splitlines():
        words = shlex.split(line)
        if words[0] == "make":
            dry = subprocess.run(["make", "--dry-run", *words[1:]], cwd=PROJECT, capture_output=True, check=False)
            assert dry.returncode == 0, dry.stderr
        elif words[0] == "python" and "--help" not in words:
            done(words[2].removeprefix("src."), folder, *BUDGET, "source.noise=[0.1]", preset=words[3:])
        else:
            assert words[0] in ("source", "python"), line
    return folder


@needs("as_gymnasium")
@pytest.mark.long
def test_start_in_five_minutes(reader: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    found = run_blocks("docs/start.md", reader, monkeypatch)
    assert found["returns"].shape == (1, 20) and found["played"].success.shape == (7, 10, 20)
    assert {path.name for path in (reader / "logs").iterdir()} == {"another-seed", "dark_room-quick", "larger-room"}


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder in which `make run` has been given, with little training and no evaluation."""
    folder = tmp_path_factory.mktemp("tuned")
    for stage in ("train_agents", "train_gpt", "finetune"):
        done(stage, folder, *BUDGET, *TRIALS, preset=[])
    return folder


@needs("as_gymnasium")
def test_the_example_of_the_readme(tuned: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    run_blocks("README.md", tuned, monkeypatch)
    assert re.match(r"\[\[[01.\s]+\]\]", capsys.readouterr().out)


@pytest.mark.parametrize("script", [pytest.param("act.py", marks=needs("as_gymnasium")), "read_histories.py"])
def test_examples_read_what_make_run_left(script: str, tuned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tuned)
    monkeypatch.setattr(sys, "argv", [script])
    runpy.run_path(str(PROJECT / "examples" / script), run_name="__main__")


def test_the_script_that_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    short = (*BUDGET, f"root={tmp_path}")
    monkeypatch.setattr(compose, "load_config", lambda options: compose_config(Config, [*options, *short]))
    monkeypatch.chdir(tmp_path)
    exec(blocks(PROJECT / "docs/your_own.md", "python")[0], found := {"__name__": "__main__"})
    assert found["folder"] == tmp_path / "logs/mine" and f"{found['policy']!r}\n" in capsys.readouterr().out


def test_files_that_pages_name_exist() -> None:
    named = {(page.name, path) for page in PAGES for path in re.findall(FILE, page.read_text(encoding="utf-8"))}
    assert len(named) > 40
    missing = [(page, path) for page, path in sorted(named) if not (PROJECT / path).exists()]
    assert not [found for found in missing if not ABSENT & {*Path(found[1]).parts}]


def test_every_python_block_is_tried_here() -> None:
    """But for those of extensions."""
    tried = {"README", "start", "your_own"}
    assert {page.stem for page in PAGES if blocks(page, "python")} - {*extensions.NAMES} == tried
