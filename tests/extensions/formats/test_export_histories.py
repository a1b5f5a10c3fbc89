"""Exports hold the values of the columns, and are made of complete histories alone."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from harness import TINY, files_of, flip
from small_histories import write_histories

from icrl import extensions
from icrl.app.compose import compose_config
from icrl.contracts import ConfigError, Rollout
from icrl.data.history_store import DamagedHistoriesError, Histories, open_histories
from icrl.extensions.formats.files import PACKAGES, read_lives
from icrl.extensions.formats.options import ExportConfig
from icrl.extensions.formats.programs import export_histories
from icrl.extensions.formats.programs.export_histories import main, text_content
from icrl.programs import train_agents
from icrl.runs.files import read_json, sha256, write_json
from icrl.spaces import EnvSpec, discrete_spec

COLUMNS = Rollout._fields


def config_of(root: Path, *more: str) -> ExportConfig:
    return compose_config(ExportConfig, [*TINY, f"root={root}", *more])


def store_of(root: Path) -> Path:
    return config_of(root).histories_folders[0]


def check_export(histories: Histories, folder: Path) -> None:
    """Texts hold the columns, with rewards as values that read back exactly."""
    rewards = np.array(histories.spec.reward_values)[histories.columns["reward"]]
    expected = histories.columns | {"reward": rewards}
    names = [f"task_{task:03d}_learner_000_env_{row % 2:03d}.txt" for row, task in enumerate(histories.row_tasks)]
    assert sorted(names) == sorted(path.name for path in folder.glob("*.txt"))
    for row, name in enumerate(names):
        lines = (folder / name).read_text().splitlines()
        assert tuple(lines[0].split()) == COLUMNS
        for column, cells in zip(COLUMNS, zip(*(line.split() for line in lines[1:]), strict=True), strict=True):
            kind = float if column == "reward" else int
            np.testing.assert_array_equal([kind(cell) for cell in cells], expected[column][row], err_msg=column)


def test_exports_equal_the_columns(tmp_path):
    """A change of the form keeps both, and the histories are untouched. `test_import_histories` reads other forms."""
    options = [*TINY, "tasks.num_train=5", "tasks.num_held_out=2", f"root={tmp_path}"]
    if "worlds" in extensions.NAMES:  # whose bandits have rewards that are any numbers
        options = [option for option in options if not option.startswith("env.")]
        options += ["env=bandit_gaussian", "env.num_tasks=8", "finetune.gae_lambda=null", "finetune.num_streams=2"]
    config = compose_config(ExportConfig, options)
    train_agents.main(config)
    before = files_of(config.histories_folders[0])
    (folder,) = main(config)
    texts = files_of(folder)
    assert main(compose_config(ExportConfig, [*options, "format=npz"])) == [folder]
    after, histories = files_of(folder), open_histories(config.histories_folders[0])
    check_export(histories, folder)
    assert all(after[name] == texts[name] for name in texts if name != "export.json")
    assert read_json(folder / "export.json")["histories"] == histories.checksum
    assert before.items() <= files_of(config.histories_folders[0]).items()


def test_an_observation_of_many_numbers_becomes_as_many_columns():
    spec = discrete_spec(9, 2, (0.0, 0.1), 0, 4, points=(1, 1))  # 4 numbers
    columns = {name: np.arange(3)[None] % 2 for name in COLUMNS} | {"obs": np.arange(12).reshape(1, 3, 4)}
    lines = text_content(Histories(Path(), {"env": spec.to_json()}, columns), 0).decode().splitlines()
    assert lines[0].split()[:6] == ["obs_0", "obs_1", "obs_2", "obs_3", "action", "reward"]
    assert [line.split()[:6] for line in lines[2:]] == [[*"4567", "1", "0.1"], ["8", "9", "10", "11", "0", "0.0"]]


def test_the_bytes_of_an_image_become_columns_row_by_row():
    spec = EnvSpec(Box(0, 255, (2, 3, 1), np.uint8), Discrete(2), (0.0, 0.1), 0, 4)
    images = np.arange(18, dtype=np.uint8).reshape(1, 3, 2, 3, 1)
    columns = {name: np.arange(3)[None] % 2 for name in COLUMNS} | dict.fromkeys(("obs", "next_obs"), images)
    lines = text_content(Histories(Path(), {"env": spec.to_json()}, columns), 0).decode().splitlines()
    assert lines[0].split()[:7] == [*(f"obs_{k}" for k in range(6)), "action"]
    assert [line.split()[:7] for line in lines[1:3]] == [[*"012345", "0"], [*"6789", "10", "11", "1"]]


def test_each_store_of_a_mixture_is_exported_beside_its_columns(root, capsys):
    store = store_of(root)
    other = shutil.copytree(store, store.with_name("other"))
    folders = main(config_of(root, f"histories=[other,{store.name}]", "format=npz"))
    assert folders == [other / "export", store / "export"]
    assert len({(folder / "histories.npz").read_bytes() for folder in folders}) == 1
    assert f"exported to {folders[0]}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("form", "damage"),
    [("npz", "older"), *(("txt", one) for one in ("none", "unknown", "flipped", "removed", "about is damaged"))],
)
def test_only_missing_old_or_damaged_files_are_written(root, capsys, form, damage):
    store, config = store_of(root), config_of(root, f"format={form}")
    (folder,) = main(config)
    expected = files_of(folder)
    path = min(path for path in folder.iterdir() if path.suffix in (".txt", ".npz"))
    if damage in ("older", "unknown"):  # the histories were recorded anew since
        np.save(store / "action.npy", (np.load(store / "action.npy") + 1) % 5)
        manifest = read_json(store / "manifest.json")
        manifest["columns"]["action"]["sha256"] = sha256(store / "action.npy")
        write_json(store / "manifest.json", manifest)
        fresh = root / "fresh"
        shutil.copytree(store, fresh / "histories" / store.name, ignore=shutil.ignore_patterns("export"))
        expected = files_of(*main(config_of(fresh, f"format={form}")))
    if damage in ("unknown", "about is damaged"):
        (folder / "export.json").write_text("[]")
    elif damage == "flipped":
        flip(path, -3)
    elif damage == "removed":
        path.unlink()
    capsys.readouterr()
    main(config)
    found = files_of(folder)
    assert {name: content for name, (content, _) in found.items()} == {name: new for name, (new, _) in expected.items()}
    told = f"that are not from the present {store}" in "".join(capsys.readouterr())
    assert told == (damage in ("older", "unknown", "about is damaged"))
    if not told:
        written = [name for name in found if found[name] != expected[name]]
        assert written == ([path.name] if damage in ("flipped", "removed") else [])


def test_unusable_histories_are_refused(root, tmp_path):
    store = store_of(root)
    flip(store / "action.npy", -1)
    with pytest.raises(DamagedHistoriesError, match=r"action\.npy is damaged"):
        main(config_of(root))
    write_json(store / "manifest.json", read_json(store / "manifest.json") | {"complete": False, "committed": 0})
    with pytest.raises(ConfigError, match=r"not complete \(0 of \d+ steps\).*train-agents"):
        main(config_of(root))
    assert not (store / "export").exists()
    with pytest.raises(ConfigError, match="train-agents"):
        main(config_of(tmp_path / "empty"))
    assert not (tmp_path / "empty").exists()


@pytest.mark.parametrize(("form", "name"), PACKAGES.items())
def test_without_its_package_a_format_leaves_no_folder(root, monkeypatch, form, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=f"format={form} needs the package {name}"):
        main(config_of(root, f"format={form}"))
    assert not (store_of(root) / "export").exists()


@pytest.mark.parametrize("form", ["npz", "hdf5"])
def test_large_stores_are_exported_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    if form == "hdf5":
        pytest.importorskip("h5py")
    config = config_of(tmp_path, f"format={form}")
    store = open_histories(write_histories(tmp_path, "tiny", config, [3, 0, 4, 1, 2], 2, torch.rand(8, 10) < 0.3))
    monkeypatch.setattr(export_histories, "_LARGEST", 3 * sum(column[0].nbytes for column in store.columns.values()))
    (folder,) = export_histories.main(config)
    names = [f"histories-{part:04d}-of-0004.{form}" for part in range(4)]
    assert sorted(path.name for path in folder.glob("histories*")) == names
    lives = read_lives(form, folder, {})
    assert [life.task for life in lives] == store.row_tasks.tolist()
    assert all(np.array_equal(life.columns["obs"], obs) for life, obs in zip(lives, store.columns["obs"], strict=True))
