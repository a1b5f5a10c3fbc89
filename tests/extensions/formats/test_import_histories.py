"""Exported histories are imported as they were; stages two and three go on from what is imported."""

import math
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from harness import TINY, done, files_of, flip, refusal
from installed import FILMED, needs
from refusals import check_refusal

from icrl.app.compose import compose_config
from icrl.contracts import PipelineError, Rollout
from icrl.data.history_store import open_histories
from icrl.extensions.formats.files import READERS
from icrl.extensions.formats.options import ExportConfig, ImportConfig
from icrl.extensions.formats.programs import export_histories, import_histories
from icrl.runs.files import PROJECT, read_json

EXTRAS = {"hdf5": "h5py", "parquet": "pyarrow", "minari": "minari"}
WORLD = ("name=again", "histories=again", "run=again")


def exported(root: Path, form: str) -> Path:
    (folder,) = export_histories.main(compose_config(ExportConfig, [*TINY, f"root={root}", f"format={form}"]))
    return folder / ("minari" if form == "minari" else f"histories.{form}")


def imported(root: Path, path: Path, *more: str) -> Path:
    form = path.suffix.removeprefix(".") or "minari"
    options = [*TINY, f"root={root}", f"path={path}", f"format={form}", *WORLD, *more]
    return import_histories.main(compose_config(ImportConfig, options))


@pytest.mark.parametrize("form", READERS)
def test_a_store_comes_back_in_every_column(root, form):
    if form in EXTRAS:
        pytest.importorskip(EXTRAS[form])
    before, after = open_histories(root / "histories/tiny"), open_histories(imported(root, exported(root, form)))
    for name in Rollout._fields:
        np.testing.assert_array_equal(after.columns[name], before.columns[name], err_msg=name)
        assert after.columns[name].dtype == before.columns[name].dtype
    assert after.tasks == before.tasks and after.spec == before.spec
    assert np.array_equal(after.row_tasks, before.row_tasks) and np.array_equal(after.rewards(), before.rewards())


def test_all_stages_go_on_from_what_was_imported(root):
    imported(root, exported(root, "npz"))
    shutil.rmtree(root / "histories/tiny")
    done("train_gpt", root, *WORLD)
    done("evaluate", root, *WORLD, "evaluation.videos=true")
    assert len([*root.glob("videos/again/in_context/*.mp4")]) == 3 * FILMED
    curves = read_json(root / "logs/again/evaluation/results.json")["curves"]
    assert {"model, held-out tasks", "imported, training tasks, start of life"} <= set(curves)
    assert all(math.isfinite(value) for curve in curves.values() for value in curve["returns"]["mean"])
    others = [option for option in TINY if not option.startswith("source.")]
    message = refusal("train_agents", root, "source=imported", "name=x", preset=others)
    assert "source.name=imported: made by icrl import-histories" in message


def test_histories_of_an_unknown_world_can_be_learned_from_but_not_played(root):
    left_out = ("env.", "source.", "tasks.", "data.num_dev", "evaluation.checkpoint")
    unknown = [*(option for option in TINY if not option.startswith(left_out)), "env=recorded", "name=again"]
    path = exported(root, "npz")
    import_histories.main(compose_config(ImportConfig, [*unknown, f"root={root}", f"path={path}", "format=npz"]))
    before, after = (open_histories(root / "histories" / name) for name in ("tiny", "again"))
    for name in Rollout._fields:
        np.testing.assert_array_equal(after.columns[name], before.columns[name], err_msg=name)
    assert after.tasks["held_out"] == [] and after.tasks["train"] == before.tasks["train"]
    assert "give trainer.evaluate=false" in refusal("train_gpt", root, "trainer.evaluate=true", preset=unknown)
    done("train_gpt", root, preset=unknown)
    shutil.copytree(root / "histories/again", root / "histories/other")
    done("train_gpt", root, "histories=[again,other]", "name=mixture", preset=unknown)
    for stage in ("evaluate", "train_agents", "finetune"):
        assert "env=recorded: the world of these histories is not known" in refusal(stage, root, preset=unknown)


def test_an_import_is_repeated_and_continued_but_not_replaced(root):
    path = exported(root, "npz")
    store = imported(root, path)
    before = files_of(store)
    imported(root, path)
    assert files_of(store) == before
    with np.load(path) as found:
        np.savez(path, **{**found, "action": (found["action"] + 1) % 5})
    with pytest.raises(PipelineError, match="is from import_histories"):
        imported(root, path)
    with pytest.raises(PipelineError, match="is from train_agents"):
        imported(root, path, "name=tiny")
    flip(path, 100)
    with pytest.raises(PipelineError, match="cannot be read as npz"):
        imported(root, path, "name=new")
    assert not (root / "histories/new").exists()


def test_held_out_tasks_of_the_file_are_left_out(root, capsys):
    path = exported(root, "npz")
    tasks = open_histories(root / "histories/tiny").tasks["train"]
    store = open_histories(imported(root, path, "tasks.split=list", f"tasks.held_out=[{tasks[1]},{tasks[3]}]"))
    assert store.tasks["train"] == [tasks[0], tasks[2], tasks[4]]
    assert set(store.tasks["held_out"]) == {tasks[1], tasks[3]}
    assert "rows of 2 held-out tasks are left out" in capsys.readouterr().out
    assert np.array_equal(store.columns["obs"], np.load(root / "histories/tiny/obs.npy")[[0, 1, 4, 5, 8, 9]])


def test_files_that_do_not_fit_the_world_are_refused(root):
    path = exported(root, "npz")
    with np.load(path) as found:
        columns = dict(found)
    for name, value, *named in (
        ("task", np.array([0] * 9 + [8]), "row 9: task 8", "below 8"),
        ("task", None, "row 0: lacks the column task"),
        ("task", np.minimum(np.arange(10), 7), "all tasks of this world", "tasks.held_out=[7]"),
        ("action", np.full_like(columns["action"], 5), "row 0: column action, step 0: 5", "Discrete(5)"),
        ("reward", np.full_like(columns["reward"], 0.5), "column reward, step 0: 0.5", "[0.0, 1.0]"),
    ):
        np.savez(path, **{key: column for key, column in (columns | {name: value}).items() if column is not None})
        check_refusal(lambda _: imported(root, path), [], named)
        assert not (root / "histories/again").exists()


def test_what_cannot_be_imported_is_said(root):
    for option, named in (("format=txt", "npz, hdf5, parquet, minari"), ("format=npz", "path=none")):
        load = lambda options: import_histories.main(compose_config(ImportConfig, options))  # noqa: E731
        check_refusal(load, [*TINY, f"root={root}", option], (named,))


@needs("from_gymnasium")
def test_histories_of_ones_own_agents_are_learned_from(tmp_path):
    for name in ("my_world", "my_histories"):
        shutil.copy(PROJECT / f"examples/{name}.py", tmp_path)
    shutil.copy(tmp_path / "my_world.py", tmp_path / "imported_street.py")  # a module that no other test imports
    command = [sys.executable, "my_histories.py", "my.npz"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0 and "20 rows of 3000 steps" in ran.stdout, ran.stderr
    options = [option for option in TINY if not option.startswith(("env.", "source.", "data.min"))]
    houses = ", ".join(f"{{house: {house}}}" for house in (0, 1, 2, 3, 5, 6, 7, 8))
    options += ["env=gymnasium", f"env.id={tmp_path}/imported_street.py:Street", "env.max_episode_steps=12"]
    options += ["env.width=0", f"env.tasks=[{houses}]", f"root={tmp_path}", "data.min_final_success=0"]
    folder = import_histories.main(compose_config(ImportConfig, [*options, f"path={tmp_path / 'my.npz'}"]))
    store = open_histories(folder)
    assert store.tasks["train"] == [0, 2, 3, 4, 6] and sorted(store.tasks["held_out"]) == [1, 5, 7]
    assert (store.final_success() > 0.9).all()  # the agents have learned
    for stage in ("train_gpt", "evaluate"):
        done(stage, tmp_path, preset=options)
