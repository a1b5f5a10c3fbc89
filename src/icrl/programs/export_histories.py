"""Write learning histories in another form, beside the originals.

python -m src.export_histories format=txt [KEY=VALUE ...]      histories/<histories>/ -> histories/<histories>/export/

`txt` is one file per row, a line per step, columns as in its first line. `npz` is one compressed file of all columns.
Rewards are values, in `txt` the shortest decimals that read back exactly; all else is whole numbers as in the columns.
`export.json` names the histories by their checksum, and each file by its own.
"""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from icrl.config.command_line import run_stage
from icrl.config.root import Config
from icrl.contracts import PipelineError, Rollout
from icrl.data.history_store import Histories
from icrl.data.mixture import open_stores
from icrl.runs.device import prepare
from icrl.runs.files import only_writer, read_json, sha256, write_atomically, write_json

_ABOUT = "export.json"
_FORMS = {"txt": "task_*.txt", "npz": "histories.npz"}


def main(config: Config) -> list[Path]:
    """Export complete histories; returns the folder of each export. What is there already is not written again, unless
    it is damaged or was made of other histories."""
    prepare(config)
    stores = open_stores(config)
    folders = [store.folder / "export" for store in stores]
    for store, folder in zip(stores, folders, strict=True):
        with only_writer(folder):
            export(store, folder, config.format)
        print(f"exported to {folder}")
    return folders


def export(histories: Histories, folder: Path, form: str) -> None:
    """Bring the export of `form` in `folder` up to date. Files in any form that are not known to be of these histories
    are removed first, with a line that says so."""
    known = _known(histories, folder)
    stale = [path for form in _FORMS.values() for path in folder.glob(form) if path.name not in known]
    if stale:
        tqdm.write(f"{folder}: {len(stale)} files are not known to be of {histories.folder} as it is now: removed")
    for path in stale:
        path.unlink()
    written = {"txt": write_text, "npz": write_npz}[form](histories, folder, known)
    if written.items() - known.items():
        write_json(folder / _ABOUT, {"histories": histories.checksum, "files": known | written})


def _known(histories: Histories, folder: Path) -> dict[str, str]:
    """Checksums of the files in `folder` that were exported from these histories, by name."""
    try:
        about = read_json(folder / _ABOUT, {"histories": str, "files": {str: str}})
    except PipelineError:
        return {}
    return about["files"] if about["histories"] == histories.checksum else {}


def _write(path: Path, known: dict[str, str], content: Callable[[], bytes]) -> str:
    """Write `path` unless it is what is `known` of it; returns its checksum."""
    if not (path.exists() and sha256(path) == known.get(path.name)):
        write_atomically(path, content())
    return sha256(path)


def write_text(histories: Histories, folder: Path, known: dict[str, str]) -> dict[str, str]:
    """One file per row, named by its goal's task, learner and environment; returns checksums by name."""
    rows = histories.manifest["rows"]
    per_task = rows["num_learners"] * rows["num_envs"]
    written: dict[str, str] = {}
    for row, task in enumerate(tqdm(histories.row_tasks, desc="export", unit="row")):
        learner, env = divmod(row % per_task, rows["num_envs"])
        name = f"task_{task:03d}_learner_{learner:03d}_env_{env:03d}.txt"
        written[name] = _write(folder / name, known, lambda row=row: _lines(histories, row))
    return written


def _lines(histories: Histories, row: int) -> bytes:
    """A line per step of the row, under one with the names of the columns."""
    columns = _columns(histories, slice(row, row + 1))
    parts = [(part, column) for name, whole in columns.items() for part, column in _parts(name, whole[0])]
    table = np.rec.fromarrays([column for _, column in parts])
    text = io.StringIO()
    formats = ["%s" if column.dtype.kind == "f" else "%d" for _, column in parts]
    np.savetxt(text, table, fmt=formats, header=" ".join(name for name, _ in parts), comments="")
    return text.getvalue().encode()


def _columns(histories: Histories, rows: slice) -> dict[str, np.ndarray]:
    """The columns of some rows as they are exported, `[rows, time]` or `[rows, time, K]`: rewards as float64 values."""
    values = np.array(histories.spec.reward_values, np.float64)
    columns = {name: histories.columns[name][rows] for name in Rollout._fields}
    return columns | {"reward": values[columns["reward"]]}


def _parts(name: str, column: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """A column `[time]` under its own name, the K of one `[time, K]` counted."""
    if column.ndim == 1:
        return [(name, column)]
    return [(f"{name}_{k}", column[:, k]) for k in range(column.shape[1])]


def write_npz(histories: Histories, folder: Path, known: dict[str, str]) -> dict[str, str]:
    """All columns `[rows, time]` and the task of each row in one file; returns its checksum by its name."""
    name = _FORMS["npz"]

    def content() -> bytes:
        buffer = io.BytesIO()
        columns: dict[str, Any] = {"task": histories.row_tasks, **_columns(histories, slice(None))}
        np.savez_compressed(buffer, **columns)
        return buffer.getvalue()

    return {name: _write(folder / name, known, content)}


def command() -> None:
    """Run this program with the options of the command line."""
    run_stage(main, "src.export_histories", __doc__ or "")
