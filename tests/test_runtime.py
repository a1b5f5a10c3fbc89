"""How an entry point runs: its help, and what it says to wrong options."""

import io
import os
import signal

import pytest

from src.config import CONF, load_config
from src.contracts import ConfigError
from src.options import walk
from src.runtime import GROUPS, help_text, prepare, run_stage
from src.schema import Config


def test_help_lists_every_option_with_meaning_range_and_default() -> None:
    text = help_text("src.train_agents", "What it is for.")
    assert text.startswith("usage: python -m src.train_agents [KEY=VALUE ...]\n\nWhat it is for.")
    paragraphs, option = {}, ""
    for line in text.splitlines():
        if line.startswith("      "):
            paragraphs[option] += f" {line.strip()}"
        else:
            option = line.strip()
            paragraphs[option] = ""
    for key, value, field in walk(load_config()):
        explained = paragraphs[f"{key}={value}"]
        limits = field.metadata
        assert " ".join(limits["meaning"].split()) in explained
        if limits["choices"]:
            assert "one of " + ", ".join(limits["choices"]) in explained
        elif field.type in (int, float, bool):
            assert f"({field.type.__name__}" in explained
        for sign, limit in ((">", "above"), (">=", "low"), ("<=", "high")):
            if limits[limit] is not None:
                assert f"{sign} {limits[limit]:g}" in explained, key


def test_help_lists_every_preset() -> None:
    lines = help_text("src.train_agents", "What it is for.").splitlines()
    assert any(line.startswith("  env=bandit|") and "|dark_room|dark_room_classic|" in line for line in lines)
    assert "  experiment=default|reference|searcher|tiny" in lines
    for group in GROUPS:
        (line,) = [line for line in lines if line.startswith(f"  {group}=")]
        assert line.split("=")[1].split("|") == sorted(path.stem for path in (CONF / group).glob("*.yaml"))


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_a_stage_helps_without_working(
    flag: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["stage", "seed=1", flag])
    run_stage(lambda _: pytest.fail("it worked"), "src.stage", "What it is for.")
    assert "usage: python -m src.stage" in capsys.readouterr().out


@pytest.mark.parametrize("argument", ["--seed", "-x", "seed=-1", "seed"])
def test_a_stage_refuses_wrong_options_in_one_line_before_any_work(
    argument: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["stage", argument])
    with pytest.raises(SystemExit) as stopped:
        run_stage(lambda _: pytest.fail("it worked"), "src.stage", "What it is for.")
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("error: ") and argument.split("=", maxsplit=1)[0] in line


def test_a_stage_gets_the_configuration_of_its_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    given_to: list[Config] = []
    monkeypatch.setattr("sys.argv", ["stage", "env.size=7", "experiment=tiny"])
    run_stage(given_to.append, "src.stage", "What it is for.")
    assert given_to == [load_config(["env.size=7", "experiment=tiny"])]


def test_without_a_terminal_there_is_nobody_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config(["checkpoints.on_crash=ask"])
    for stdin in (io.StringIO(), None):
        monkeypatch.setattr("sys.stdin", stdin)
        with pytest.raises(ConfigError, match=r"checkpoints\.on_crash=ask .* stdin .* save or skip"):
            prepare(config)


def test_sigusr2_does_not_end_a_stage_that_has_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["stage"])
    before = signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    try:
        run_stage(lambda _: os.kill(os.getpid(), signal.SIGUSR2), "src.stage", "What it is for.")
    finally:
        signal.signal(signal.SIGUSR2, before)
