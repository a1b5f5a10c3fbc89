"""How an entry point runs: its help, what it says to wrong options, and where it computes."""

import os
import re
import runpy
import signal
from collections.abc import Callable
from importlib import import_module
from threading import Thread
from typing import Any
from unittest.mock import Mock

import pytest
import torch

import icrl.__main__
from icrl import extensions
from icrl.__main__ import PROGRAMS
from icrl.app.command_line import description, help_text, run_program
from icrl.app.compose import CONF, compose_config, load_config, presets_of
from icrl.app.root import CHOICES, Config
from icrl.config.options import walk
from icrl.contracts import ConfigError, Stopped
from icrl.programs import evaluate
from icrl.runs.device import device_of


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Run a stage with a command line; its `main` raises `error` unless another is given."""

    def start(*arguments: str, main: Any = None, error: BaseException | None = None) -> None:
        def fail(_: Config) -> None:
            raise error or AssertionError("it worked")

        monkeypatch.setattr("sys.argv", ["stage", *arguments])
        run_program(main or fail, Config, "evaluate", "What it is for.", evaluate.LARGE)

    return start


def test_help_is_short_and_explains_what_is_named() -> None:
    short = help_text("train_agents", "Meaning.\n\npython -m src.train_agents\n\nMore.", Config)
    assert "usage: icrl train-agents" in short and "Meaning." in short and "More." not in short
    assert "More." in help_text("train_agents", "Meaning.\n\nusage\n\nMore.", Config, ["all"])
    assert all(f" {name}" in short for name in Config.model_fields)
    for given, shown in ((["all"], ""), (["source=a2c"], "source."), (["source.num_envs"], "source.num_e")):
        text = help_text("train_agents", "meaning", Config, given)
        for key, value, option in walk(load_config([one for one in given if "=" in one])):
            assert (f"  {key}={value}\n" in text) == key.startswith(shown) or key == "source.num_env_steps"
            assert not key.startswith(shown) or option.allowed.split()[0] in text
    text = help_text("train_agents", "meaning", Config, ["source"])
    assert all(f"  {name}" in text for name in presets_of("source")) and "source.value_coefficient" in text
    of_name = help_text("train_agents", "meaning", Config, ["source.name"])
    assert all(re.search(rf"\b{name}\b", of_name) for name in CHOICES["source"]())
    with pytest.raises(ConfigError, match=r"--help sorce: .*did you mean source\?"):
        help_text("train_agents", "", Config, ["sorce"])


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_clone_has_every_program_and_each_helps_on_one_screen(name, monkeypatch, capsys) -> None:
    """Without working or starting another process."""
    monkeypatch.setattr("subprocess.Popen", Mock(side_effect=AssertionError("another program")))
    monkeypatch.setattr("os.execv", Mock(side_effect=AssertionError("another program")))
    monkeypatch.setattr("sys.argv", [f"src/{name}.py", "-h"])
    runpy.run_module(f"src.{name}", run_name="__main__", alter_sys=True)
    in_clone = capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["icrl", name.replace("_", "-"), "--help"])
    icrl.__main__.main()
    installed = capsys.readouterr().out
    for text, command in ((in_clone, f"python -m src.{name} "), (installed, f"icrl {name.replace('_', '-')} ")):
        lines = text.splitlines()
        assert command in text and len(lines) <= 30 and max(map(len, lines)) <= 100
    reads_own = hasattr(import_module(PROGRAMS[name]), "command")
    assert "src." not in installed and (reads_own or f"src.{name} --help all" in in_clone)


def test_every_preset_says_what_it_is() -> None:
    paths = [path for folder in (CONF, *extensions.preset_folders()) for path in folder.glob("*/*.yaml")]
    assert len(paths) > 100 and not [path for path in paths if not description(path)]


@pytest.mark.parametrize(
    ("arguments", "proposed"),
    [
        (["--seed=1"], "--seed=1: options are written KEY=VALUE: did you mean seed=1?"),
        (["--env.tasks=[{a: 1}]"], "did you mean 'env.tasks=[{a: 1}]'?"),
        (["name=x", "--env.size", "7"], "--env.size: options are written KEY=VALUE; --help lists them"),
        (["seed=", "1"], "1: options are written KEY=VALUE; --help lists them"),
        (["experiment=tiny", "experiment=tour"], "experiment=tiny experiment=tour: only one preset"),
    ],
)
def test_other_forms_of_an_option_are_refused_with_its_form_here(arguments, proposed, start, capsys) -> None:
    with pytest.raises(SystemExit):
        start(*arguments)
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert proposed in line


SHORT = "error: evaluate needs more memory than is free: lower evaluation.num_streams"


@pytest.mark.parametrize(
    ("argument", "error", "parts"),
    [
        ("--seed", None, ["error: ", "--seed"]),
        ("seed=-1", None, ["error: ", "seed"]),
        ("seed=1", MemoryError("Unable to allocate 14.9 GiB for an array"), [SHORT, "14.9 GiB"]),
        ("seed=1", RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), [SHORT, "can't allocate"]),
        ("seed=1", torch.OutOfMemoryError("CUDA out of memory. Tried 2.00 GiB.\nSee"), [SHORT, "2.00 GiB"]),
        ("seed=1", OverflowError("Python int too large to convert to C long"), [SHORT, "too large"]),
        ("seed=1", Stopped("SIGTERM: update 3 is saved"), ["SIGTERM: ", "is saved"]),
        ("seed=1", KeyboardInterrupt(), ["interrupted: ", "the same command continues"]),
    ],
)
def test_wrong_options_a_lack_of_memory_and_a_stop_are_one_line(argument, error, parts, start, capsys):
    with pytest.raises(SystemExit) as stopped:
        start(argument, error=error)
    assert stopped.value.code == {Stopped: 143, KeyboardInterrupt: 130}.get(type(error), 2)
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith(parts[0]) and parts[1] in line


@pytest.mark.parametrize("error", [RuntimeError("shapes do not fit"), ValueError("no"), OverflowError("math range")])
def test_other_errors_stay_what_they_are(error: Exception, start: Any) -> None:
    with pytest.raises(type(error), match=str(error)):
        start(error=error)


def test_a_thread_that_fails_is_reported_unless_it_could_not_write(start: Any, capsys: Any) -> None:
    """Write errors of TensorBoard's thread reach the main one later."""

    def main(_: Config) -> None:
        for error in (OSError("no space"), ValueError("odd")):
            thread = Thread(target=Mock(side_effect=error))
            thread.start()
            thread.join()

    start(main=main)
    said = capsys.readouterr().err
    assert "ValueError: odd" in said and "no space" not in said


def test_a_stage_gets_the_configuration_of_its_command_line_and_ignores_sigusr2_without_a_loop(start: Any) -> None:
    given_to: list[Config] = []
    start("env.size=7", "experiment=tiny", main=given_to.append)
    assert given_to == [load_config(["env.size=7", "experiment=tiny"])]
    before = signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    try:
        start(main=lambda _: os.kill(os.getpid(), signal.SIGUSR2))
    finally:
        signal.signal(signal.SIGUSR2, before)


@pytest.mark.parametrize("asked", ["seed=null", "+seed=NULL"])
def test_a_drawn_seed_is_printed(asked: str, start: Any, tmp_path: Any, capsys: Any) -> None:
    given_to: list[Config] = []
    start(asked, f"root={tmp_path}", main=given_to.append)
    assert capsys.readouterr().out == f"seed={given_to[0].seed}\n"


def test_every_program_says_what_to_lower() -> None:
    programs = [import_module(module) for module in PROGRAMS.values()]
    large = [program.LARGE for program in programs if not hasattr(program, "command")]
    roots = {Config, *(program.OPTIONS for program in programs if hasattr(program, "OPTIONS"))}
    known = {key for root in roots for key, _, _ in walk(compose_config(root, []))}
    assert {key for keys in large for key in keys.split(", ") if "." in key} <= known


@pytest.mark.parametrize(
    ("asked", "num_gpus", "expected"),
    [
        ("auto", 0, "cpu"),
        ("auto", 2, "cuda"),
        ("cpu", 2, "cpu"),
        ("cuda:1", 2, "cuda:1"),
        ("cuda", 0, r"device\.type=cuda: no GPU .* device=cpu"),
        ("cuda:2", 2, r"device\.type=cuda:2: this machine has cuda:0 to cuda:1"),
    ],
)
def test_tensors_live_where_they_are_asked_to(asked, num_gpus, expected, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: num_gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)
    config = load_config([f"device.type={asked}"])
    if expected.startswith("device"):
        with pytest.raises(ConfigError, match=expected):
            device_of(config)
    else:
        assert device_of(config) == torch.device(expected)
