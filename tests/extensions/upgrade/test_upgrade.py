"""Conversion of files that the programs of version 0.7.0 (commit 781128d) wrote, which are in `data_07.tar.xz`."""

import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from harness import done, files_of, flip, refusal
from shards import union_of

from icrl.__main__ import run
from icrl.contracts import ConfigError, PipelineError
from icrl.data.history_store import open_histories, read_manifest
from icrl.extensions.upgrade._versions import present_config
from icrl.extensions.upgrade.programs import upgrade
from icrl.runs.files import read_json, write_json

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
    *("evaluation.num_train_streams=1", "evaluation.num_bootstrap=100", "evaluation.videos=false"),
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
    *("num_threads=1", "players=tiny", "name=players", "training.num_updates=6", "evaluation.num_games=2"),
    *("evaluation.num_final_games=2", "evaluation.num_bootstrap=100", "evaluation.pictures=false"),
)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of 0.7; only to be read."""
    root = tmp_path_factory.mktemp("old")
    with tarfile.open(Path(__file__).with_name("data_07.tar.xz")) as archive:
        archive.extractall(root, filter="data")
    return root


@pytest.fixture(scope="module")
def converted(old: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = shutil.copytree(old, tmp_path_factory.mktemp("converted") / "root")
    assert upgrade.main(root) == [
        "a2c: histories converted, awr: 5 files converted, evaluation: kept as old-evaluation, gpt: 5 files converted, "
        "ilql: 5 files converted, source: 3 files converted",
        "expert: histories converted, source: 3 files converted",
        "killed: histories converted, gpt: 3 files converted, source: 2 files converted",
        "players: players: 6 files converted",
    ]
    return root


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


@pytest.mark.parametrize("policy", ["policy.model=gpt", "policy.model=awr", "policy.advantage_scale=1"])
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


def test_players(converted, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["icrl", *PLAYERS, f"root={converted}"])
    run("train_players")
    out = capsys.readouterr().out
    assert "all 6 updates of players are done" in out
    assert "weak_spivakovsky_first" in out and "\nspivakovsky" not in out  # today the name is another player's


def test_one_run_alone_is_converted(copy):
    before = files_of(copy)
    assert upgrade.main(copy, "expert") == ["expert: histories converted, source: 3 files converted"]
    after = files_of(copy)
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed and all("expert" in name or name == "upgraded.json" for name in changed)
    upgrade.main(copy)
    done("train_agents", copy, preset=EXPERT)
    with pytest.raises(ConfigError, match="name=nobody: no such run .* a2c, expert, killed, players"):
        upgrade.main(copy, "nobody")


def spoil(path: Path) -> None:
    flip(path, -1)


def set_option(path: Path, key: str, value: object) -> None:
    about = read_json(path)
    group, _, option = key.partition(".")
    about["description"]["config"][group][option] = value
    write_json(path, about)


GPT_SIDECAR = "logs/a2c/gpt/last-000000006.json"


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        ("logs/a2c/gpt/last-000000006.pt", spoil, "missing, damaged or renamed"),
        ("logs/a2c/gpt/last-000000006.pt", Path.unlink, "missing, damaged or renamed"),
        ("logs/a2c/source/finished.json", lambda path: path.write_text("{}"), "finished.json is damaged"),
        (GPT_SIDECAR, lambda path: set_option(path, "model.unheard_of", 1), "model.unheard_of: this version has no"),
        (GPT_SIDECAR, lambda path: set_option(path, "model.num_layers", "two"), "model.num_layers=.* valid integer"),
        ("histories/a2c/reward.npy", spoil, "reward.npy is missing or damaged"),
        ("histories/a2c/manifest.json", spoil, "manifest.json"),
        ("logs/a2c/old-evaluation", Path.mkdir, "old-evaluation exists already"),
    ],
)
def test_a_refusal_changes_nothing(copy, name, damage, said):
    damage(copy / name)
    before = files_of(copy)
    with pytest.raises(PipelineError, match=said):
        upgrade.main(copy)
    assert {name: file for name, file in files_of(copy).items() if not name.startswith(upgrade.STAGING)} == before


def test_an_interrupted_conversion_is_completed_and_what_is_converted_stays_as_it_is(
    old, copy, tmp_path, finished, monkeypatch
):
    replace, calls = Path.replace, iter(range(10**6))

    def fail(path: Path, target: Path) -> Path:
        if upgrade.STAGING in str(path) and upgrade.STAGING not in str(target) and next(calls) == 7:
            raise OSError("power cut")
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="power cut"):
        upgrade.main(copy)
    monkeypatch.undo()
    upgrade.main(undisturbed := shutil.copytree(old, tmp_path / "undisturbed"))
    before = files_of(undisturbed)
    for folder in (copy, undisturbed, shutil.copytree(finished, tmp_path / "present")):
        assert all(line.endswith(": nothing to convert") for line in upgrade.main(folder))
    assert files_of(undisturbed) == before
    assert {name: of[0] for name, of in files_of(copy).items()} == {name: of[0] for name, of in before.items()}


def test_a_run_of_07_without_tasks_for_development_evaluated_on_held_out_tasks_only(old):
    config = read_json(old / GPT_SIDECAR)["description"]["config"]
    config["data"]["num_validation_tasks"] = 0
    present, _ = present_config(config, is_07=True)
    assert (present.trainer.evaluate, present.data.num_development_tasks) == (False, 0)


def test_a_run_of_07_with_env_time_and_no_position_code_has_the_code_env_time(old):
    """Which is what its model has: since then position=none means none."""
    config = read_json(old / GPT_SIDECAR)["description"]["config"]
    config["model"] |= {"position": "none", "add_env_time": True}
    config["encoder"] |= {"position_encoder": "none"}
    present, record = present_config(config, is_07=True)
    assert (present.model.position, present.encoder.position) == ("env_time", "env_time")
    record["model"]["position"] = "none"
    assert present_config(record)[0].model.position == "none"


def test_command_line(copy, monkeypatch, capsys):
    root, usage = f"root={copy}", "error: usage: icrl upgrade root=FOLDER [name=RUN]"
    for arguments, said in ((["--help"], "root=FOLDER"), ([root, "name=a2c"], "a2c: histories converted")):
        monkeypatch.setattr("sys.argv", ["icrl", *arguments])
        run("upgrade")
        assert said in capsys.readouterr().out
    for arguments in ([root, "seed=1"], []):
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


@pytest.mark.parametrize("tasks", [{"random": {"x": {"call": "{trap}:f"}}, "count": 2}, [{"x": {"call": "{trap}:f"}}]])
def test_a_recorded_call_is_not_made(finished, tmp_path, tasks):
    trap, root = tmp_path / "trap.py", shutil.copytree(finished, tmp_path / "root")
    trap.write_text(f"open({str(tmp_path / 'mark')!r}, 'w')\nf = dict\n")
    env = json.loads(json.dumps({"name": "gymnasium", "variant": "x", "tasks": tasks}).replace("{trap}", str(trap)))
    content = read_json(path := root / "histories/tiny/manifest.json")
    content["config"] |= {"env": env, "module": [str(trap)]}
    write_json(path, content)
    with pytest.raises(PipelineError):
        upgrade.main(root)
    assert not (tmp_path / "mark").exists()


def test_a_union_of_shards_stays_as_it_is(finished, tmp_path):
    root = shutil.copytree(finished, tmp_path / "root")
    union_of(open_histories(root / "histories/tiny"), root / "histories/united", [3, 2])
    assert upgrade.main(root, "united") == ["united: nothing to convert"]
