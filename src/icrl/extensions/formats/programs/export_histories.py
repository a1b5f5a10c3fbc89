"""Export learning histories to another file format, beside the originals.

python -m src.export_histories format=txt [KEY=VALUE ...]      histories/<histories>/ -> histories/<histories>/export/

`txt`: one file per row with a line per step, after a line of column names. `npz`, `hdf5`, `parquet`: one compressed
file of all columns; `minari`: a data set in the folder minari. Large histories give several files, each of some rows,
because a file is made in memory. `src.import_histories` reads all of them but `txt`.
Rewards are values, in `txt` the shortest decimals that read back exactly; all other columns are as recorded, but for
-1 as an optimal action that is unknown.
`export.json` has the checksums of the histories and of each exported file.
"""

import io
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from icrl.contracts import PipelineError, Rollout
from icrl.data.columns import bytes_of, row_chunks
from icrl.data.history_store import Histories
from icrl.data.windows import open_stores
from icrl.envs.rollout import exact_rewards
from icrl.extensions.formats.files import PACKAGES, WRITERS, package
from icrl.extensions.formats.options import ExportConfig
from icrl.runs.device import prepare
from icrl.runs.files import only_writer, read_json, sha256, write_atomically, write_json
from icrl.runs.processes import progress_bar

OPTIONS = ExportConfig
LARGE = "the number of histories"

_EXPORTS = ("task_*.txt", "histories*.*", "minari/data/*", "minari/*/data/*")
_LARGEST = 2**29  # bytes of recorded columns in a file


def main(config: ExportConfig) -> list[Path]:
    """Export complete histories; returns the folder of each export."""
    prepare(config)
    if name := PACKAGES.get(config.format):
        package(name, config.format)  # which raises before a folder is made
    folders = [export(store, config.format) for store in open_stores(config)]
    for folder in folders:
        print(f"exported to {folder}")
    return folders


def export(store: Histories, form: str) -> Path:
    """Export complete histories as `form`; returns the folder. An existing file is
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
        for name, content in progress_bar(files.items(), desc="export", unit="file"):
            if not ((folder / name).exists() and sha256(folder / name) == known.get(name)):
                write_atomically(folder / name, content())
            written[name] = sha256(folder / name)
        if not written.items() <= known.items():
            write_json(about, {"histories": store.checksum, "files": known | written})
    return folder


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
        numbers = column.reshape(len(column), -1).T
        parts |= {f"{name}_{k}": part for k, part in enumerate(numbers)} if column.ndim > 1 else {name: column}
    text = io.StringIO()
    formats = ["%s" if column.dtype.kind == "f" else "%d" for column in parts.values()]
    np.savetxt(text, np.rec.fromarrays(list(parts.values())), fmt=formats, header=" ".join(parts), comments="")
    return text.getvalue().encode()


def whole_files(histories: Histories, form: str) -> dict[str, Callable[[], bytes]]:
    """Content of each file of `form` by its name, with all columns `[rows, time]` and the task of each row; of large
    histories several such files, each of some rows."""
    names, write = WRITERS[form]
    rows, size = len(histories.row_tasks), bytes_of(histories.columns.values(), histories.columns["obs"].shape[1])
    chunks, files = [*row_chunks(rows, size, most=_LARGEST)], dict[str, Callable[[], bytes]]()

    @lru_cache(1)  # files of the same rows follow each other
    def contents(first: int, end: int) -> list[bytes]:
        columns = exported_columns(histories, slice(first, end))
        return write({"task": histories.row_tasks[first:end]} | columns, histories.spec)

    def content(first: int, end: int, place: int) -> bytes:
        return contents(first, end)[place]

    for number, chunk in enumerate(chunks):
        part = f"{number:04d}-of-{len(chunks):04d}"
        for place, name in enumerate(names):
            several = name.replace("minari/", f"minari/{part}/").replace("histories.", f"histories-{part}.")
            files[several if len(chunks) > 1 else name] = partial(content, chunk.start, chunk.stop, place)
    return files


def exported_columns(histories: Histories, rows: slice) -> dict[str, Any]:
    """Columns of these rows, `[rows, time]` or `[rows, time, K]`, with rewards as float64 values, and -1 for unknown
    optimal actions that are integers."""
    columns, spec = {name: histories.columns[name][rows] for name in Rollout._fields}, histories.spec
    best = columns["optimal_action"]
    marked = best if best.dtype.kind == "f" else np.where(spec.is_unknown(best), -1, best.astype(np.int64))
    return columns | {"reward": exact_rewards(spec, histories.rewards(rows)), "optimal_action": marked}
