"""Exports hold what the columns hold, and are made of complete histories alone."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from icrl.config.compose import load_config
from icrl.config.paths import PROJECT
from icrl.config.root import Config
from icrl.contracts import ConfigError, Rollout
from icrl.data.history_store import DamagedHistoriesError, Histories, open_histories
from icrl.programs import train_agents
from icrl.programs.export_histories import main
from icrl.runs.files import read_json, sha256, write_json

OPTIONS = (
    *("experiment=tiny", "device=cpu", "num_threads=1", "tasks.num_train=3", "data.num_development_tasks=1"),
    *("source.num_learners=2", "source.num_env_steps=500", "source.history_steps=500", "source.videos_per_task=0"),
    "evaluation.num_episodes=2",
)
NUM_LEARNERS, NUM_ENVS, NUM_STEPS = 2, 5, 100
SHORT = (
    *("source=random", "tasks.num_train=4", "tasks.num_held_out=2", "data.num_development_tasks=1", "device=cpu"),
    *("source.num_learners=1", "source.num_envs=1", "source.num_env_steps=30", "source.history_steps=30"),
    *(
        "source.videos_per_task=0",
        "evaluation.num_episodes=2",
        "data.kept_steps=0",
        "num_threads=1",
        "model.context_len=8",
    ),
)
COLUMNS = Rollout._fields


def options(root: Path, *more: str) -> list[str]:
    return [*OPTIONS, f"root={root}", *more]


def config_of(root: Path, *more: str) -> Config:
    return load_config(options(root, *more))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with histories and nothing exported."""
    root = tmp_path_factory.mktemp("trained")
    train_agents.main(config_of(root))
    return root


@pytest.fixture
def root(trained: Path, tmp_path: Path) -> Path:
    """A copy to do anything with."""
    return shutil.copytree(trained, tmp_path / "root")


def histories_of(root: Path) -> Histories:
    return histories_in(config_of(root))


def histories_in(config: Config) -> Histories:
    return open_histories(config.histories_folders[0])


def exported(histories: Histories, name: str) -> np.ndarray:
    """A column as an export has it."""
    column = histories.columns[name]
    return np.array(histories.spec.reward_values)[column] if name == "reward" else column


def contents_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


def state_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}


def test_text_equals_the_columns(root: Path) -> None:
    (folder,) = main(config_of(root))
    histories = histories_of(root)
    names = [
        f"task_{task:03d}_learner_{learner:03d}_env_{env:03d}.txt"
        for task in histories.manifest["tasks"]["train"]
        for learner in range(NUM_LEARNERS)
        for env in range(NUM_ENVS)
    ]
    assert sorted(names) == sorted(path.name for path in folder.glob("*.txt"))
    for row, name in enumerate(names):
        lines = (folder / name).read_text().splitlines()
        assert tuple(lines[0].split()) == COLUMNS
        cells = np.array([line.split() for line in lines[1:]])
        assert cells.shape == (NUM_STEPS, len(COLUMNS))
        for column, values in zip(COLUMNS, cells.T, strict=True):
            whole, kind = exported(histories, column)[row], float if column == "reward" else int
            np.testing.assert_array_equal([kind(cell) for cell in values], whole, err_msg=f"{name} {column}")


def test_a_rewarded_step_of_a_text_file_stands_on_its_task(root: Path) -> None:
    (folder,) = main(config_of(root))
    goals = histories_of(root).manifest["tasks"]["all"]
    num_rewarded = 0
    for path in folder.glob("*.txt"):
        steps = np.loadtxt(path, skiprows=1)
        reached = steps[steps[:, COLUMNS.index("reward")] > 0, COLUMNS.index("next_obs")]
        assert (reached == goals[int(path.name.split("_")[1])][0]).all()
        num_rewarded += len(reached)
    assert num_rewarded > 0


def test_npz_equals_the_columns(root: Path) -> None:
    (folder,) = main(config_of(root, "format=npz"))
    histories = histories_of(root)
    with np.load(folder / "histories.npz", allow_pickle=False) as found:
        assert set(found.files) == {"task", *COLUMNS}
        for name in COLUMNS:
            assert found[name].dtype == exported(histories, name).dtype
            np.testing.assert_array_equal(found[name], exported(histories, name))
        train = histories.manifest["tasks"]["train"]
        np.testing.assert_array_equal(found["task"], np.repeat(train, NUM_LEARNERS * NUM_ENVS))


@pytest.mark.parametrize("form", ["txt", "npz"])
@pytest.mark.parametrize("world", [["env=bandit_gaussian", "env.num_tasks=6"], ["env=tiny_room"]], ids=str)
def test_rewards_are_values(tmp_path: Path, world: list[str], form: str) -> None:
    """Those that the world paid, not their numbers in its table; in text the very same after reading."""
    config = load_config([*world, *SHORT, f"root={tmp_path}", f"format={form}"])
    train_agents.main(config)
    (folder,) = main(config)
    histories = histories_in(config)
    if form == "npz":
        with np.load(folder / "histories.npz", allow_pickle=False) as found:
            rewards = found["reward"]
    else:
        tables = [np.loadtxt(path, skiprows=1, ndmin=2) for path in sorted(folder.glob("*.txt"))]
        rewards = np.array([table[:, COLUMNS.index("reward")] for table in tables])
        rewards = rewards[np.argsort(np.argsort(histories.row_tasks, kind="stable"))]  # files are in order of tasks
    values = histories.spec.reward_values
    assert rewards.tolist() == [[values[index] for index in row] for row in histories.columns["reward"]]
    assert rewards.dtype == np.float64 and (len(values) == 2 or (rewards % 1).any())


def test_each_store_of_a_mixture_is_exported_beside_its_columns(root: Path) -> None:
    shutil.copytree(root / "histories/tiny", root / "histories/other")
    folders = main(config_of(root, "histories=[other,tiny]", "format=npz"))
    assert folders == [root / f"histories/{name}/export" for name in ("other", "tiny")]
    first, second = ((folder / "histories.npz").read_bytes() for folder in folders)
    assert first == second


@pytest.mark.parametrize(
    ("form", "damage"),
    [
        *(("txt", "older"), ("txt", "older, of an older version"), ("txt", "swapped"), ("txt", "about is damaged")),
        *(("npz", "older"), ("npz", "flipped")),
    ],
)
def test_nothing_old_or_damaged_is_kept(root: Path, capsys: pytest.CaptureFixture[str], form: str, damage: str) -> None:
    (folder,) = main(config_of(root, f"format={form}"))
    expected = contents_of(folder)
    store = config_of(root).histories_folders[0]
    if damage.startswith("older"):  # the histories were recorded anew since
        action = np.load(store / "action.npy")
        np.save(store / "action.npy", (action + 1) % 5)
        manifest = read_json(store / "manifest.json")
        manifest["columns"]["action"]["sha256"] = sha256(store / "action.npy")
        write_json(store / "manifest.json", manifest)
        shutil.copytree(store, root / "fresh/histories/tiny", ignore=shutil.ignore_patterns("export"))
        expected = contents_of(*main(config_of(root / "fresh", f"format={form}")))
        if damage != "older":
            (folder / "export.json").unlink()
    else:
        path = min(path for path in folder.iterdir() if path.suffix in (".txt", ".npz"))
        if damage == "swapped":
            shutil.copy(max(folder.glob("*.txt")), path)
        elif damage == "about is damaged":
            (folder / "export.json").write_text("[]")
        else:
            path.write_bytes(path.read_bytes()[:-3] + b"9" + path.read_bytes()[-2:])
    capsys.readouterr()
    main(config_of(root, f"format={form}"))
    assert contents_of(folder) == expected
    said = f"not known to be of {store}" in "".join(capsys.readouterr())
    assert said == (damage not in ("swapped", "flipped"))


def test_a_change_of_form_keeps_both(root: Path) -> None:
    (folder,) = main(config_of(root))
    before = contents_of(folder)
    main(config_of(root, "format=npz"))
    after = contents_of(folder)
    assert after.keys() - before.keys() == {"histories.npz"}
    assert all(after[name] == before[name] for name in before if name != "export.json")
    assert read_json(folder / "export.json")["histories"] == histories_of(root).checksum


@pytest.mark.parametrize("form", ["txt", "npz"])
def test_a_second_export_does_nothing(root: Path, form: str) -> None:
    first = state_of(*main(config_of(root, f"format={form}")))
    second = state_of(*main(config_of(root, f"format={form}")))
    first.pop(".lock"), second.pop(".lock")
    assert first
    assert first == second


def test_an_interrupted_export_is_completed(root: Path) -> None:
    (folder,) = main(config_of(root))
    before = state_of(folder)
    lost = min(folder.glob("*.txt"))
    lost.unlink()
    main(config_of(root))
    after = state_of(folder)
    assert after.keys() == before.keys()
    assert [name for name in after if after[name] != before[name] and name != ".lock"] == [lost.name]
    assert after[lost.name][1] == before[lost.name][1]


def test_the_histories_are_untouched(root: Path) -> None:
    folder = config_of(root).histories_folders[0]
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    main(config_of(root))
    main(config_of(root, "format=npz"))
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_incomplete_histories_are_refused(root: Path) -> None:
    path = config_of(root).histories_folders[0] / "manifest.json"
    write_json(path, read_json(path) | {"complete": False, "committed": 0})
    with pytest.raises(ConfigError, match=r"not complete \(0 of 100 steps\).*train_agents.*continues"):
        main(config_of(root))
    assert not (path.parent / "export").exists()


def test_damaged_histories_are_refused(root: Path) -> None:
    path = config_of(root).histories_folders[0] / "action.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedHistoriesError, match=r"action\.npy is damaged"):
        main(config_of(root))
    assert not (path.parent / "export").exists()


def test_missing_histories_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="train_agents"):
        main(config_of(tmp_path))
    assert not list(tmp_path.iterdir())


def test_histories_of_another_configuration_are_refused(root: Path) -> None:
    with pytest.raises(ConfigError, match=r"source\.learning_rate"):
        main(config_of(root, "source.learning_rate=0.5"))


def test_wrong_format_is_refused_by_the_command_line(root: Path) -> None:
    refused = export(root, "format=xls")
    assert refused.returncode == 2
    assert refused.stderr == "error: format=xls: must be one of txt, npz\n"
    assert not refused.stdout
    assert not (config_of(root).histories_folders[0] / "export").exists()


def test_command_line_says_where_the_export_is(root: Path) -> None:
    done = export(root, "format=npz")
    assert done.returncode == 0, done.stderr
    assert f"exported to {config_of(root).histories_folders[0] / 'export'}" in done.stdout


def export(root: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "src.export_histories", *options(root, *more)],
        cwd=PROJECT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
