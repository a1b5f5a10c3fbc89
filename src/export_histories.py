"""Write learning histories in another form, beside the originals.

python -m src.export_histories format=txt [KEY=VALUE ...]      histories/<histories>/ -> histories/<histories>/export/

`txt` is one file per row, a line per step, columns as in its first line. `npz` is one compressed file of all columns.
"""

import io
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from src.contracts import Rollout
from src.data.history_store import Histories
from src.data.mixture import open_stores
from src.files import only_writer, write_atomically
from src.runtime import prepare, run_stage
from src.schema import Config


def main(config: Config) -> list[Path]:
    """Export complete histories; returns the folder of each export. What is there already is not written again."""
    prepare(config)
    stores = open_stores(config)
    folders = [store.folder / "export" for store in stores]
    for store, folder in zip(stores, folders, strict=True):
        with only_writer(folder):
            {"txt": write_text, "npz": write_npz}[config.format](store, folder)
        print(f"exported to {folder}")
    return folders


def write_text(histories: Histories, folder: Path) -> None:
    """One file per row, named by its goal's task, learner and environment."""
    rows = histories.manifest["rows"]
    per_task = rows["num_learners"] * rows["num_envs"]
    for row, task in enumerate(tqdm(histories.row_tasks, desc="export", unit="row")):
        learner, env = divmod(row % per_task, rows["num_envs"])
        path = folder / f"task_{task:03d}_learner_{learner:03d}_env_{env:03d}.txt"
        if path.exists():
            continue
        text = io.StringIO()
        columns = {name: histories.columns[name][row] for name in Rollout._fields}
        names = [part for name, column in columns.items() for part in _parts(name, column)]
        np.savetxt(text, np.column_stack([*columns.values()]), fmt="%d", header=" ".join(names), comments="")
        write_atomically(path, text.getvalue().encode())


def _parts(name: str, column: np.ndarray) -> list[str]:
    """A column `[time]` has its own name, the K numbers of one `[time, K]` are counted."""
    return [name] if column.ndim == 1 else [f"{name}_{k}" for k in range(column.shape[1])]


def write_npz(histories: Histories, folder: Path) -> None:
    """All columns `[rows, time]` and the task of each row in one file."""
    path = folder / "histories.npz"
    if not path.exists():
        buffer = io.BytesIO()
        columns: dict[str, Any] = {"task": histories.row_tasks, **histories.columns}
        np.savez_compressed(buffer, **columns)
        write_atomically(path, buffer.getvalue())


if __name__ == "__main__":
    run_stage(main, "src.export_histories", __doc__ or "")
