"""Conversion of files that the programs of version 0.8.0 (commit 429b119) wrote, which are in `data_08.tar.xz`:
`runs/`, and `players/` with runs of the program of the extension point_game."""

import json
import shutil
import tarfile
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from harness import Exploit, done, files_of, flip, refusal
from shards import union_of

from icrl import extensions
from icrl.__main__ import PROGRAMS, run
from icrl.app.compose import load_config
from icrl.contracts import ConfigError, PipelineError
from icrl.data.history_store import open_histories, read_manifest
from icrl.extensions.upgrade._versions import present_config
from icrl.extensions.upgrade.programs import upgrade
from icrl.runs.files import read_json, sha256, write_json

A2C = (  # the options of the runs in the archive, as they are called today
    *("experiment=four_layers", "name=a2c", "device=cpu", "num_threads=1"),
    *("env.size=3", "env.max_episode_steps=4", "tasks.num_train=5"),
    *("source.num_learners=1", "source.num_envs=2", "source.unroll_length=5"),
    *("source.num_env_steps=100", "source.history_steps=100", "source.videos_per_task=0"),
    *("data.keep_every=1", "data.kept_steps=0", "data.num_development_tasks=2", "data.min_final_success=0"),
    *("model.context_len=8", "model.embed_dim=8", "model.num_layers=1", "model.num_heads=2", "model.ff_dim=16"),
    *("trainer.num_iterations=6", "trainer.mini_batch_size=4", "summaries.num_summaries=1"),
    *("checkpoints.num_checkpoints=0", "checkpoints.checkpoint_interval=2", "checkpoints.keep_last=1"),
    *("evals.num_evals=1", "evals.num_eval_episodes=4", "evals.num_eval_environments=2", "evals.async_eval=false"),
    *("evaluation.num_episodes=3", "evaluation.num_streams=1", "evaluation.num_probe_streams=1"),
    *("evaluation.num_bootstrap=100", "evaluation.videos=false"),
    *("evaluation.ablations=false", "evaluation.temperatures=[]"),
)
HIDDEN = "source.hidden_size=8"
EXPERT = (
    *(*A2C, "name=expert", "source=noise_distillation", "source.teacher=a2c"),
    *("source.num_env_steps=50", "source.history_steps=50"),
)
LONG = (*A2C, HIDDEN, "source.num_env_steps=500", "source.history_steps=500", "trainer.num_iterations=20")
GPT = ("histories=a2c", "source.num_env_steps=100", "source.history_steps=100")
MODELS = ("train_gpt", "train_ilql", "extract_policy")
PLAYERS = (
    *("num_threads=1", "players=tiny", "evaluation.num_games=2", "evaluation.num_final_games=2"),
    *("evaluation.pictures=false", "checkpoints.keep_last=1"),
)


MISSING = {"offline_rl", "experts"} - {*extensions.NAMES}
pytestmark = pytest.mark.skipif(bool(MISSING), reason="their runs are among those of 0.8")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archive")
    with tarfile.open(Path(__file__).with_name("data_08.tar.xz")) as packed:
        packed.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def old(archive: Path) -> Path:
    """Runs of 0.8; only to be read."""
    return archive / "runs"


@pytest.fixture(scope="module")
def conversion(old: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Converted runs, and the checksums of their files before the tests that continue them."""
    root = shutil.copytree(old, tmp_path_factory.mktemp("converted") / "root")
    assert upgrade.main(root) == [
        "a2c: histories converted, awr: 5 files converted, evaluation: kept as old-evaluation, gpt: 5 files converted, "
        "ilql: 5 files converted, source: 3 files converted",
        "expert: histories converted, source: 3 files converted",
        "killed: histories converted, gpt: 3 files converted, source: 2 files converted",
    ]
    return root, checksums_of(root)


@pytest.fixture
def converted(conversion: tuple[Path, dict[str, str]]) -> Path:
    return conversion[0]


def checksums_of(root: Path) -> dict[str, str]:
    return {name: checksum for name, (checksum, _) in files_of(root).items()}


@pytest.fixture
def copy(old: Path, tmp_path: Path) -> Path:
    return shutil.copytree(old, tmp_path / "copy")


@pytest.mark.parametrize(
    ("stage", "options", "said"),
    [
        ("train_agents", (*A2C, HIDDEN), "5 training tasks"),
        ("train_agents", EXPERT, "5 training tasks"),
        *[(stage, (*A2C, HIDDEN), "all 6 updates of a2c are done") for stage in MODELS],
    ],
)
def test_finished_runs_are_recognised(converted, stage, options, said):
    assert said in done(stage, converted, preset=options)
    message = refusal(stage, converted, "seed=1", preset=options)
    assert "seed=0" in message and "name=" in message


@pytest.mark.parametrize("policy", ["policy.model=awr", "policy.advantage_scale=1"])  # the latter is of gpt and ilql
def test_converted_models_are_evaluated(converted, policy):
    assert "held-out tasks solved" in done("evaluate", converted, policy, preset=(*A2C, HIDDEN))


def test_killed_runs_continue_as_if_they_had_not_been_killed(converted):
    """Both are compared with a run from the start. It is of this machine, so weights may differ by rounding."""
    for folder in ("source", "gpt"):
        paths = (converted / "logs/killed" / folder).glob("last-*.pt")
        assert [path.stem for path in paths] == ["last-000000002"]
    assert open_histories(converted / "histories/a2c").columns["obs"].shape == (10, 50)
    assert read_manifest(converted / "histories/killed")["owner"]["program"] == "train_agents"
    for name in ("killed", "fresh"):
        done("train_agents", converted, f"name={name}", preset=LONG)
        done("train_gpt", converted, f"name={name}", preset=(*LONG, *GPT))
    killed, fresh = (open_histories(converted / "histories" / name) for name in ("killed", "fresh"))
    for name, column in killed.columns.items():
        assert np.array_equal(column, fresh.columns[name]), name
    last = "gpt/last-000000020.pt"
    killed, fresh = (torch.load(converted / "logs" / name / last)["model"] for name in ("killed", "fresh"))
    torch.testing.assert_close(killed, fresh)


@pytest.mark.skipif("train_players" not in PROGRAMS, reason="the extension point_game is not installed")
def test_players_continue_with_all_that_they_learned_from(archive, tmp_path, monkeypatch, capsys):
    """Those that are finished are recognised. A game may go another way where this machine rounds otherwise than the
    one that began, so a run from the start is nothing to compare with."""
    root = shutil.copytree(archive / "players", tmp_path / "root")
    last = root / "logs/killed_players/players/last-000000004.pt"
    before = torch.load(last)["learners"]
    assert upgrade.main(root) == ["killed_players: players: 2 files converted", "players: players: 5 files converted"]
    after = torch.load(last)
    for role in ("host", "agent"):
        for part in ("network", "target_network", "replay"):
            torch.testing.assert_close(after[role][part], before[role][part], rtol=0, atol=0)
        moments = (learner[role]["optimizer"]["state"] for learner in (after, before))
        torch.testing.assert_close(*moments, rtol=0, atol=0)
    for name, updates in (("players", 6), ("killed_players", 8)):
        options = (f"name={name}", f"training.num_updates={updates}", f"root={root}")
        monkeypatch.setattr("sys.argv", ["icrl", *PLAYERS, *options])
        run("train_players")
        assert f"all {updates} updates of {name} are done" in capsys.readouterr().out


def test_players_need_their_program(archive, tmp_path, monkeypatch):
    monkeypatch.setattr("icrl.extensions.programs", dict)
    root = shutil.copytree(archive / "players", tmp_path / "root")
    with pytest.raises(PipelineError, match="only where the extension point_game is installed"):
        upgrade.main(root)


def test_one_run_alone_is_converted(copy, conversion):
    before = files_of(copy)
    assert upgrade.main(copy, "expert") == ["expert: histories converted, source: 3 files converted"]
    after = files_of(copy)
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed and all("expert" in name or name == "upgraded.json" for name in changed)
    upgrade.main(copy)
    assert checksums_of(copy) == conversion[1]
    with pytest.raises(ConfigError, match="name=nobody: no such run .* a2c, expert, killed"):
        upgrade.main(copy, "nobody")


def set_option(path: Path, option: str | None, value: object) -> None:
    """Change an option of the model in a sidecar; None: all options of the run."""
    about = read_json(path)
    if option:
        about["description"]["config"]["model"][option] = value
    else:
        about["description"]["config"] = value
    write_json(path, about)


def hold_code(sidecar: Path) -> None:
    """Put an object that would run code into the state beside a sidecar, with the right checksum."""
    state = sidecar.with_suffix(".pt")
    torch.save({"model": Exploit(state.with_name("code_ran"))}, state)
    write_json(sidecar, read_json(sidecar) | {"state_sha256": sha256(state)})


last_bit = partial(flip, position=-1)
GPT_SIDECAR = "logs/a2c/gpt/last-000000006.json"


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        ("logs/a2c/gpt/last-000000006.pt", last_bit, "missing, damaged or renamed"),
        ("logs/a2c/source/finished.json", lambda path: path.write_text("{}"), "finished.json is damaged"),
        (GPT_SIDECAR, lambda path: set_option(path, "unheard_of", 1), "model.unheard_of: this version has no"),
        (GPT_SIDECAR, hold_code, "last-000000006.pt cannot be used"),
        (GPT_SIDECAR, lambda path: set_option(path, None, {}), "last-000000006.json cannot be used: KeyError"),
        ("histories/a2c/reward.npy", last_bit, "reward.npy is missing or damaged"),
        ("histories/a2c/manifest.json", last_bit, "manifest.json"),
        ("logs/a2c/old-evaluation", Path.mkdir, "old-evaluation exists already"),
    ],
)
def test_a_refusal_changes_nothing(copy, name, damage, said):
    damage(copy / name)
    before = files_of(copy)
    with pytest.raises(PipelineError, match=said):
        upgrade.main(copy)
    assert {name: file for name, file in files_of(copy).items() if not name.startswith(upgrade.STAGING)} == before


def test_an_interrupted_conversion_is_completed(copy, conversion, monkeypatch):
    replace, calls = Path.replace, iter(range(10**6))

    def fail(path: Path, target: Path) -> Path:
        if upgrade.STAGING in str(path) and upgrade.STAGING not in str(target) and next(calls) == 7:
            raise OSError("power cut")
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="power cut"):
        upgrade.main(copy)
    monkeypatch.undo()
    assert all(line.endswith(": nothing to convert") for line in upgrade.main(copy))
    assert checksums_of(copy) == conversion[1]


def test_a_conversion_is_not_started_beside_another_and_is_interrupted_in_one_line(
    copy, conversion, monkeypatch, capsys
):
    staged = upgrade.write_json

    def second(path: Path, content: dict) -> None:
        with pytest.raises(PipelineError, match="another run is writing to"):
            upgrade.main(copy)
        staged(path, content)

    monkeypatch.setattr(upgrade, "write_json", second)
    upgrade.main(copy)
    assert checksums_of(copy) == conversion[1]
    monkeypatch.setattr(upgrade, "finish", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(SystemExit, match="130"):
        upgrade.command([f"root={copy}"])
    assert capsys.readouterr().err.count("\n") == 1


def test_files_of_this_version_stay_as_they_are(root):
    before = files_of(root)
    assert upgrade.main(root) == ["tiny: nothing to convert"]
    assert files_of(root) == before


def test_a_model_of_08_with_env_time_and_no_position_code_has_the_code_env_time(old):
    """Which is what its model has: since then position=none means none."""
    config = read_json(old / GPT_SIDECAR)["description"]["config"]
    config["model"] |= {"position": "none", "add_env_time": True}
    config["encoder"] |= {"position_encoder": "none"}
    present, record = present_config(config)
    assert (present.model.position, present.encoder.position) == ("env_time", "env_time")
    record["model"]["position"] = "none"
    assert present_config(record)[0].model.position == "none"


def test_command_line(copy, monkeypatch, capsys):
    root, usage = f"root={copy}", "error: usage: icrl upgrade root=FOLDER [name=RUN]"
    for arguments, said in ((["--help"], "root=FOLDER"), ([root, "name=expert"], "expert: histories converted")):
        monkeypatch.setattr("sys.argv", ["icrl", *arguments])
        run("upgrade")
        assert said in capsys.readouterr().out
    for arguments in ([root, "seed=1"], [], ["root="], ["root"]):
        monkeypatch.setattr("sys.argv", ["icrl", *arguments])
        with pytest.raises(SystemExit, match="2"):
            run("upgrade")
        assert usage in capsys.readouterr().err


def test_folders_of_another_root_are_not_renamed(tmp_path):
    root, other = tmp_path / "root", tmp_path / "other"
    for folder in (root / "logs/a/evaluation", other):
        folder.mkdir(parents=True)
    asked = [str(other), "../other", "logs/a/evaluation"]
    write_json(root / upgrade.STAGING / "complete.json", {"aside": asked})
    upgrade.finish(root)
    assert other.exists() and (root / "logs/a/old-evaluation").exists()


def test_a_recorded_call_is_not_made(root, tmp_path):
    (trap := tmp_path / "trap.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'w')\nf = dict\n")
    call = {"x": {"call": f"{trap}:f"}}
    content = read_json(path := root / "histories/tiny/manifest.json")
    for tasks in ({"random": call, "count": 2}, [call]):
        content["config"] |= {"env": {"name": "gymnasium", "variant": "x", "tasks": tasks}, "module": [str(trap)]}
        write_json(path, content)
        with pytest.raises(PipelineError):
            upgrade.main(root)
        assert not (tmp_path / "mark").exists()


def test_options_that_changed_nothing_in_a_run_are_left_out_and_groups_of_programs_that_start_runs_stay():
    others = {"study": {"seeds": [0]}, "shard": {"count": 1, "index": -1}, "launch": {"name": "local"}}
    present = json.loads(json.dumps(load_config().model_dump() | others))
    before = json.loads(json.dumps(present | {"format": "txt", "path": "none", "columns": {}}))
    before["trainer"]["seeds"], before["source"]["export"] = [], ["txt"]
    assert present_config(before)[1] == present


@pytest.mark.skipif("scaling" not in extensions.NAMES, reason="it reads unions")
def test_a_union_of_shards_stays_as_it_is(finished, tmp_path):
    root = shutil.copytree(finished, tmp_path / "root")
    union_of(open_histories(root / "histories/tiny"), root / "histories/united", [3, 2])
    assert upgrade.main(root, "united") == ["united: nothing to convert"]
