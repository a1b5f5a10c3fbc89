"""How an entry point runs: its help, what it says to wrong options, and where it computes."""

import io
import os
import signal

import pytest
import torch

from icrl.config.command_line import LARGE, help_text, run_stage
from icrl.config.compose import load_config, load_players_config, presets_of
from icrl.config.options import walk
from icrl.config.paths import PROJECT
from icrl.config.root import Config
from icrl.contracts import ConfigError
from icrl.runs.device import DeviceConfig, device_of, dtype_of, prepare


def test_help_lists_the_options_of_the_choices_made() -> None:
    text = help_text("src.train_agents", "meaning", Config, load_config, ["source=dqn"])
    config = load_config(["source=dqn"])
    for key, value, option in walk(config):
        assert f"  {key}={value}\n" in text
        assert option.allowed.split()[0] in text
    assert "source.target_update_rate" in text and "source.value_coefficient" not in text


def test_help_of_a_group_lists_its_choices() -> None:
    text = help_text("src.train_agents", "meaning", Config, load_config, ["source"])
    assert all(f"  {name}" in text for name in presets_of("source")) and "num_learners" not in text
    assert "17 x 17" in help_text("src.train_agents", "", Config, load_config, ["env"])


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


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 14.9 GiB for an array"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 80 bytes"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nSee the documentation"),
        OverflowError("Python int too large to convert to C long"),
    ],
)
def test_where_memory_runs_out_one_line_names_the_program_and_what_to_lower(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def main(_: Config) -> None:
        raise error

    monkeypatch.setattr("sys.argv", ["stage"])
    with pytest.raises(SystemExit) as stopped:
        run_stage(main, "src.evaluate", "")
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("error: src.evaluate needs more memory than is free: lower evaluation.num_streams")
    assert str(error).splitlines()[0] in line


def test_every_program_says_what_to_lower() -> None:
    programs = (path for path in (PROJECT / "src/icrl/programs").glob("[a-z]*.py") if path.stem != "upgrade")
    named = {f"src.{path.stem}" for path in programs}
    assert named == set(LARGE)
    known = {key for key, _, _ in (*walk(load_config()), *walk(load_players_config()))}
    for keys in LARGE.values():
        assert {key for key in keys.split(", ") if "." in key} <= known


@pytest.mark.parametrize("error", [RuntimeError("shapes do not fit"), ValueError("no"), OverflowError("math range")])
def test_other_errors_stay_what_they_are(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def main(_: Config) -> None:
        raise error

    monkeypatch.setattr("sys.argv", ["stage"])
    with pytest.raises(type(error), match=str(error)):
        run_stage(main, "src.train_gpt", "")


@pytest.mark.parametrize(
    ("asked", "num_gpus", "expected"),
    [
        ("auto", 0, "cpu"),
        ("auto", 2, "cuda"),
        ("cpu", 2, "cpu"),
        ("cuda", 1, "cuda"),
        ("cuda:0", 1, "cuda:0"),
        ("cuda:1", 2, "cuda:1"),
        ("cuda", 0, r"device\.type=cuda: no GPU .* device=cpu"),
        ("cuda:0", 0, r"device\.type=cuda:0: no GPU .* device=cpu"),
        ("cuda:2", 2, r"device\.type=cuda:2: this machine has cuda:0 to cuda:1"),
    ],
)
def test_tensors_live_where_they_are_asked_to(
    asked: str, num_gpus: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: num_gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)
    config = load_config([f"device.type={asked}"])
    if expected.startswith("device"):
        with pytest.raises(ConfigError, match=expected):
            device_of(config)
    else:
        assert device_of(config) == torch.device(expected)


@pytest.mark.parametrize("preset", ["auto", "cpu", "cuda"])
def test_every_device_has_a_preset(preset: str) -> None:
    config = load_config([f"device={preset}"])
    assert config.device == DeviceConfig(type=preset, dtype="float32", amp_dtype="none")
    assert dtype_of(config) == torch.float32
    assert dtype_of(load_config([f"device={preset}", "device.dtype=float64"])) == torch.float64
