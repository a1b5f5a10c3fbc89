"""Export learning histories to another file format, beside the originals.

python -m src.export_histories format=txt [KEY=VALUE ...]      histories/<histories>/ -> histories/<histories>/export/

`txt`: one file per row with a line per step, after a line of column names. `npz`, `hdf5`, `parquet`: one compressed
file of all columns. `minari`: a data set in the folder minari. `src.import_histories` reads all of them but `txt`.
`test_tasks.txt` lists the held-out tasks. Stage one exports its histories itself with `source.export=[txt,npz]`.
Rewards are values, in `txt` the shortest decimals that read back exactly; all other columns are integers as recorded.
`export.json` has the checksums of the histories and of each exported file.
"""

import io
from collections.abc import Callable
from contextlib import closing, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from icrl.config.root import Config
from icrl.contracts import PipelineError, Rollout
from icrl.data.formats import WRITERS
from icrl.data.history_store import Histories, open_histories
from icrl.data.windows import open_stores
from icrl.envs import make_env
from icrl.envs.core import TensorEnv
from icrl.envs.rollout import reward_values
from icrl.runs.device import prepare
from icrl.runs.files import only_writer, read_json, sha256, write_atomically, write_json

_TEST_TASKS = "test_tasks.txt"
_EXPORTS = ("task_*.txt", _TEST_TASKS, "histories.*", "minari/data/*")


def main(config: Config) -> list[Path]:
    """Export complete histories; returns the folder of each export."""
    prepare(config)
    with closing(make_env(config.env)) as env:
        folders = [export(store, config.format, env) for store in open_stores(config)]
    for folder in folders:
        print(f"exported to {folder}")
    return folders


def export_all(config: Config) -> None:
    """Export the histories that a run of stage one has recorded, in the forms of `source.export`."""
    if not config.source.export:
        return
    store = open_histories(config.folder("histories"))
    with closing(make_env(config.env)) as env:
        for form in config.source.export:
            export(store, form, env)


def export(store: Histories, form: str, env: TensorEnv) -> Path:
    """Export complete histories of the world `env` as `form`; returns the folder. An existing file is
    written again only if it is damaged or from other histories. Files that may be from other histories are removed
    first, with a message."""
    folder = store.folder / "export"
    about, known = folder / "export.json", dict[str, str]()  # checksums of files from these histories, by name

    def name_of(path: Path) -> str:
        return path.relative_to(folder).as_posix()

    with only_writer(folder):
        with suppress(PipelineError):  # missing or damaged
            before = read_json(about, {"histories": str, "files": {str: str}})
            known = before["files"] if before["histories"] == store.checksum else {}
        present = [path for name in _EXPORTS for path in folder.glob(name)]
        if stale := [path for path in present if name_of(path) not in known]:
            tqdm.write(f"{folder}: removed {len(stale)} files that are not from the present {store.folder}")
        for path in stale:
            path.unlink()
        written: dict[str, str] = {}
        files = text_files(store) if form == "txt" else whole_files(store, form)
        files[_TEST_TASKS] = partial(held_out_table, store, env)
        for name, content in tqdm(files.items(), desc="export", unit="file"):
            if not ((folder / name).exists() and sha256(folder / name) == known.get(name)):
                write_atomically(folder / name, content())
            written[name] = sha256(folder / name)
        if not written.items() <= known.items():
            write_json(about, {"histories": store.checksum, "files": known | written})
    return folder


def held_out_table(histories: Histories, env: TensorEnv) -> bytes:
    """Table with a line per held-out task: its index among all tasks, its label and its numbers."""
    tasks = histories.manifest["tasks"]
    rows = {task: tasks["all"][task] for task in sorted(tasks["held_out"])}
    lines = [" ".join(["task label", *(f"number_{place}" for place in range(len(tasks["all"][0])))])]
    lines += [" ".join(map(str, [task, env.label(torch.tensor(row)), *row])) for task, row in rows.items()]
    return "".join(f"{line}\n" for line in lines).encode()


def text_files(histories: Histories) -> dict[str, Callable[[], bytes]]:
    """Content of each text file by its name: task, learner and environment of a row."""
    num_learners, num_envs = (histories.manifest["rows"][name] for name in ("num_learners", "num_envs"))
    files: dict[str, Callable[[], bytes]] = {}
    for row, task in enumerate(histories.row_tasks):
        name = f"task_{task:03d}_learner_{row // num_envs % num_learners:03d}_env_{row % num_envs:03d}.txt"
        files[name] = partial(text_content, histories, row)
    return files


def text_content(histories: Histories, row: int) -> bytes:
    """Table with a line per step of the row; a column of K numbers becomes K columns."""
    parts: dict[str, np.ndarray] = {}
    for name, (column,) in exported_columns(histories, slice(row, row + 1)).items():
        parts |= {f"{name}_{k}": part for k, part in enumerate(column.T)} if column.ndim > 1 else {name: column}
    text = io.StringIO()
    formats = ["%s" if column.dtype.kind == "f" else "%d" for column in parts.values()]
    np.savetxt(text, np.rec.fromarrays(list(parts.values())), fmt=formats, header=" ".join(parts), comments="")
    return text.getvalue().encode()


def whole_files(histories: Histories, form: str) -> dict[str, Callable[[], bytes]]:
    """Content of each file of `form` by its name, with all columns `[rows, time]` and the task of each row."""
    names, write = WRITERS[form]

    @cache
    def contents() -> list[bytes]:
        return write({"task": histories.row_tasks} | exported_columns(histories, slice(None)), histories.spec)

    def content(place: int) -> bytes:
        return contents()[place]

    return {name: partial(content, place) for place, name in enumerate(names)}


def exported_columns(histories: Histories, rows: slice) -> dict[str, Any]:
    """Columns of these rows, `[rows, time]` or `[rows, time, K]`, with rewards as float64 values."""
    columns = {name: histories.columns[name][rows] for name in Rollout._fields}
    return columns | {"reward": reward_values(histories.spec, histories.rewards()[rows])}
