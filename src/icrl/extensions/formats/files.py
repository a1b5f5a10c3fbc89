"""Histories in file formats that other programs read and write: npz, HDF5, Parquet, Minari.

A life is what one agent saw and did on one task, `[T, ...]` for each column of `Rollout`. Nothing is unpickled. h5py,
pyarrow and minari are optional: `pip install "in-context-rl[hdf5]"`, `[parquet]`, `[minari]`.
"""

import io
import json
import math
import os
import re
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from icrl.config.modules import extra_module
from icrl.config.options import refuse
from icrl.contracts import PipelineError, Rollout
from icrl.extensions.formats.rules import RULES, check_column
from icrl.runs.processes import say
from icrl.spaces import EnvSpec

ALIASES = {  # names of columns elsewhere, for those that a file does not have under the name here; earlier ones first
    **{"states": "obs", "observations": "obs", "proprio_observation": "obs", "next_observations": "next_obs"},
    **{"actions": "action", "rewards": "reward", "terminations": "terminated", "truncations": "truncated"},
    **{"terminals": "terminated", "timeouts": "truncated", "dones": "terminated", "done": "terminated"},
    **{"expert_actions": "optimal_action", "step_num": "timestep", "tasks": "task"},
}
_NEEDED = ("obs", "action", "reward", "terminated")
Arrays = dict[str, np.ndarray]
PACKAGES = {"hdf5": "h5py", "parquet": "pyarrow", "minari": "minari"}
_SUFFIXES = {"npz": ".npz", "hdf5": (".hdf5", ".h5"), "parquet": ".parquet"}
_CHUNK = 4096  # env steps of a compressed piece of HDF5
_ID, _MINARI = "icrl/histories-v0", ("main_data.hdf5", "metadata.json")  # an exported Minari data set, and its files
_FURTHER = ("next_obs", "timestep", "optimal_action")  # columns that Minari does not have
_ROOT = "MINARI_DATASETS_PATH"  # environment variable with the folder of all data sets


class Life(NamedTuple):
    """One row of histories in a file."""

    place: str  # in the file, for messages
    task: Any  # number of its task, an int after all checks; None: the file does not say
    columns: Arrays  # `[T, ...]` each, by the names of `Rollout`
    group: int = 0  # of the file


def package(name: str, form: str) -> Any:
    """The optional package `name`. Raises `ConfigError` if it is not installed."""
    return extra_module(name, f"format={form}", form)


# ---- writing: columns `[N, T, ...]` and the task `[N]` of each row as the contents of files


def npz_files(arrays: Arrays, spec: EnvSpec) -> list[bytes]:
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)  # pyrefly: ignore
    return [content.getvalue()]


def hdf5_files(arrays: Arrays, spec: EnvSpec) -> list[bytes]:
    """One data set for each column, compressed in pieces along time."""
    content = io.BytesIO()
    with package("h5py", "hdf5").File(content, "w") as file:
        for name, array in arrays.items():
            pieces = (1, min(_CHUNK, array.shape[1]), *array.shape[2:]) if array.ndim > 1 else None
            file.create_dataset(name, data=array, chunks=pieces, compression="gzip" if pieces else None)
    return [content.getvalue()]


def parquet_files(arrays: Arrays, spec: EnvSpec) -> list[bytes]:
    """A line for each env step, with its `row` and `task`. A column of K numbers is a list of K; the metadata `shapes`
    have their shape."""
    pa, parquet = (package(name, "parquet") for name in ("pyarrow", "pyarrow.parquet"))
    num_rows, num_steps = arrays["reward"].shape
    of_row = {"row": np.arange(num_rows), "task": arrays["task"]}
    columns = {name: pa.array(np.repeat(each, num_steps)) for name, each in of_row.items()}
    shapes = {name: arrays[name].shape[2:] for name in Rollout._fields}
    for name, shape in shapes.items():
        flat = pa.array(arrays[name].ravel())
        columns[name] = pa.FixedSizeListArray.from_arrays(flat, math.prod(shape)) if shape else flat
    table = pa.table(columns).replace_schema_metadata({"shapes": json.dumps(shapes)})
    content = io.BytesIO()
    parquet.write_table(table, content, compression="zstd")
    return [content.getvalue()]


def minari_files(arrays: Arrays, spec: EnvSpec) -> list[bytes]:
    """Data set with one Minari episode for each row, a whole life: episodes of the world end inside it. Columns that
    Minari does not have are in `infos`, whose last entry, after the last step, is a copy."""
    minari, collector = package("minari", "minari"), package("minari.data_collector", "minari")
    buffers = []
    for row, task in enumerate(arrays["task"]):
        life = {name: arrays[name][row] for name in Rollout._fields}
        infos = {name: np.concatenate([life[name], life[name][-1:]]) for name in _FURTHER}
        buffers.append(
            collector.EpisodeBuffer(
                id=row,
                observations=np.concatenate([life["obs"], life["next_obs"][-1:]]),
                actions=life["action"],
                rewards=life["reward"],
                terminations=life["terminated"].astype(bool),
                truncations=life["truncated"].astype(bool),
                infos=infos | {"task": np.full(len(life["reward"]) + 1, task)},
            )
        )
    spaces = {"observation_space": spec.observation_space, "action_space": spec.action_space}
    about = "One episode is the whole life of an agent: episodes of the world end inside it."
    with tempfile.TemporaryDirectory() as folder:
        before = os.environ.get(_ROOT)
        os.environ[_ROOT] = folder
        try:
            made = {"data_format": "hdf5", "jpeg_encoding": False, "description": about}
            with warnings.catch_warnings(action="ignore", category=UserWarning):  # about authors and scores
                minari.create_dataset_from_buffers(_ID, buffers, **spaces, **made)
        finally:
            os.environ.pop(_ROOT) if before is None else os.environ.update({_ROOT: before})
        return [(Path(folder) / _ID / "data" / name).read_bytes() for name in _MINARI]


WRITERS: dict[str, tuple[tuple[str, ...], Callable[[Arrays, EnvSpec], list[bytes]]]] = {  # names of files, and contents
    "npz": (("histories.npz",), npz_files),
    "hdf5": (("histories.hdf5",), hdf5_files),
    "parquet": (("histories.parquet",), parquet_files),
    "minari": (tuple(f"minari/data/{name}" for name in _MINARI), minari_files),
}


# ---- reading


def read_lives(form: str, path: Path, names: Mapping[str, str]) -> list[Life]:
    """Lives in the file `path`; in a folder every file is a task of its own, unless they say which. `names` are those
    of columns in the file, by the names of `Rollout` or `task`; for others see `ALIASES`. Raises `ConfigError` for a
    file that is missing, has no rows, or has a column that breaks its rule, and `PipelineError` for one that cannot be
    read."""
    unknown = sorted(set(names) - set(RULES))
    refuse(unknown, f"columns: {', '.join(unknown)}: must be among {', '.join(RULES)}")
    refuse(not path.exists(), f"path={path}: there is no such file or folder, relative to the working directory")
    refuse(names and form == "minari", "columns: those of format=minari have fixed names; leave columns= out")
    suffixes = _SUFFIXES.get(form, "")
    if form == "minari":
        files = [path] if (path / "data").is_dir() else _in_order(one.parent for one in path.rglob("data"))
    else:
        files = [path] if path.is_file() else _in_order(one for one in path.iterdir() if one.name.endswith(suffixes))
    lives: list[tuple[tuple[int, int], Life]] = []  # by the numbers of file and group
    for number, file in enumerate(files):
        try:
            found = [*READERS[form](file, dict(names))]
        except PipelineError:
            raise
        except Exception as error:  # readers raise errors of many types
            raise PipelineError(f"{file} cannot be read as {form}: {type(error).__name__}: {error}") from error
        refuse(not found, f"{file}: has no histories in format={form}")
        lives += [((number, one.group), one) for one in found]
    refuse(not lives, f"path={path}: has no histories in format={form}")
    silent = [one.place for _, one in lives if one.task is None]
    some = f"path={path}: some rows have a task, but not {silent[:1]}: give all of them one, or none"
    refuse(0 < len(silent) < len(lives), some)
    parts = sorted({part for part, _ in lives})
    own = [parts.index(part) if silent and len(parts) > 1 else one.task for part, one in lives]
    return [_checked(one._replace(task=task)) for task, (_, one) in zip(own, lives, strict=True)]


def _checked(life: Life) -> Life:
    """The life with arrays as columns and its task as an int. Raises `ConfigError` if one of them breaks its rule."""
    columns = {name: np.asarray(column) for name, column in life.columns.items()}
    task = None if life.task is None else np.asarray([life.task])
    for name, column in columns.items():
        check_column(life.place, name, column)
    if task is not None:
        check_column(life.place, "task", task)
    return life._replace(columns=columns, task=None if task is None else int(task[0]))


def _in_order(paths: Iterable[Any]) -> list[Any]:
    """Sorted by name, with numbers in names as numbers."""
    return sorted(
        paths, key=lambda one: [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", str(one))]
    )


def _renamed(arrays: Mapping[str, Any], names: dict[str, str], place: str) -> Arrays:
    """Columns of histories among `arrays`, by their names here: those of `names`, else a column of the very name, else
    of an alias. Raises `ConfigError` if one that `names` has, or one that is needed, is missing."""
    for here, there in names.items():
        refuse(there not in arrays, f"columns={{{here}: {there}}}: {place} has {', '.join(arrays)}")
    known = dict(names)
    for there, here in {**{name: name for name in RULES}, **ALIASES}.items():
        if there in arrays and there not in known.values():
            known.setdefault(here, there)
    lacking = [name for name in _NEEDED if name not in known]
    refuse(lacking, f"{place}: lacks {', '.join(lacking)}; it has {', '.join(arrays) or 'none'} (see columns=)")
    for name in arrays.keys() - known.values():
        close = get_close_matches(name, RULES.keys() - known.keys(), 1, 0.8)
        if close:
            say(f"{place}: column {name} is not used; is it {close[0]}? Then give columns={{{close[0]}: {name}}}")
    columns = {here: np.asarray(arrays[there]) for here, there in known.items()}
    if known["terminated"] in ("done", "dones") and "truncated" in columns:  # which may mean ends of both kinds
        columns["terminated"] = columns["terminated"] * (1 - columns["truncated"])
    return columns


def _rows(columns: Arrays, place: str, group: int = 0) -> Iterator[Life]:
    """Lives of columns `[N, T, ...]`, or of one life `[T, ...]`."""
    if columns["reward"].ndim < 2:  # one life
        check_column(place, "reward", columns["reward"])
        columns = {name: column[None] for name, column in columns.items()}
    tasks, number = columns.pop("task", None), len(columns["reward"])
    for name, column in columns.items():
        rows = len(column) if column.ndim else "no"
        refuse(rows != number, f"{place}: column {name} has {rows} rows, and reward has {number}")
    refuse(tasks is not None and tasks.size != number, f"{place}: column task must have one number for each row")
    for row in range(number):
        task = None if tasks is None else tasks.ravel()[row]
        yield Life(f"{place}, row {row}", task, {name: column[row] for name, column in columns.items()}, group)


def read_npz(path: Path, names: dict[str, str]) -> Iterator[Life]:
    zipfile.ZipFile(path).close()  # refuses other files, which NumPy takes for pickled ones
    with np.load(path, allow_pickle=False) as arrays:  # which are read when they are used
        yield from _rows(_renamed(arrays, names, path.name), path.name)


def read_hdf5(path: Path, names: dict[str, str]) -> Iterator[Life]:
    """Data sets of columns; or groups of such. Groups whose columns have rows are tasks in the order of their names;
    groups `[T, ...]` are lives if they have a task, and else the parts of one life in this order."""
    h5py = package("h5py", "hdf5")
    with h5py.File(path, "r") as file:
        groups: dict[str, dict[str, Any]] = {}

        def keep(name: str, item: Any) -> None:
            group, _, leaf = name.rpartition("/")
            if isinstance(item, h5py.Dataset):
                groups.setdefault(group, {})[leaf] = item

        file.visititems(keep)
        columns = {*RULES, *ALIASES, *names.values()}
        order = _in_order(group for group, arrays in groups.items() if columns & arrays.keys())  # others tell of these
        places = [f"{path.name}, group {group}" if group else path.name for group in order]
        parts = [_renamed(groups[group], names, place) for group, place in zip(order, places, strict=True)]
        if len(order) > 1 and all(part["reward"].ndim == 1 and "task" not in part for part in parts):
            yield from _rows(_joined(parts), path.name)
            return
        for number, (part, place) in enumerate(zip(parts, places, strict=True)):
            yield from _rows(part, place, number)


def _joined(parts: list[Arrays]) -> Arrays:
    refuse(len({frozenset(part) for part in parts}) > 1, "the parts of a life have different columns: must be the same")
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def read_parquet(path: Path, names: dict[str, str]) -> Iterator[Life]:
    """A line for each env step, in the order of time. Lines with the same `row` are a life; without such a column,
    lines with the same task are."""
    table = package("pyarrow.parquet", "parquet").read_table(path)
    arrays, shapes = dict[str, np.ndarray](), json.loads((table.schema.metadata or {}).get(b"shapes", b"{}"))
    for name in table.column_names:
        column = table[name].combine_chunks()
        if hasattr(column.type, "value_type"):
            flat = column.flatten().to_numpy(zero_copy_only=False)
            lengths = set(package("pyarrow.compute", "parquet").list_value_length(column).to_pylist())
            uneven = len(lengths - {None}) > 1 or None in lengths
            refuse(uneven, f"{path.name}: column {name} has lists of lengths {lengths}; must be the same")
            arrays[name] = flat.reshape(len(column), *shapes.get(name, lengths))
        else:
            arrays[name] = column.to_numpy(zero_copy_only=False)
    columns = _renamed(arrays, names, path.name)
    if not table.num_rows:
        return
    if "task" in columns:
        check_column(path.name, "task", columns["task"])
    of = arrays.get("row", columns.get("task", np.zeros(table.num_rows, int)))
    nameless = of.dtype.kind == "f" and np.isnan(of).any()
    refuse(nameless, f"{path.name}: column row has lines without a number; must have one in each")
    order = np.argsort(of, kind="stable")
    for lines in np.split(order, np.flatnonzero(of[order][1:] != of[order][:-1]) + 1):
        life = {name: column[lines] for name, column in columns.items()}
        tasks = life.pop("task", None)
        several = tasks is not None and (tasks != tasks[0]).any()
        refuse(several, f"{path.name}, row {of[lines[0]]}: is on several tasks")
        yield Life(f"{path.name}, row {of[lines[0]]}", None if tasks is None else tasks[0], life)


def read_minari(path: Path, names: dict[str, str]) -> Iterator[Life]:
    """Data set in a folder: if its infos say the task, every Minari episode is a life; otherwise all of them together
    are one, in their order."""
    data, parts = package("minari", "minari").MinariDataset(path / "data"), list[Arrays]()
    for episode in data.iterate_episodes():
        kind = type(episode.observations)
        refuse(kind is not np.ndarray, f"{path.name}: column obs is of type {kind.__name__}; must be an array")
        steps, infos = len(episode.rewards), episode.infos or {}
        columns = {"obs": episode.observations[:-1], "next_obs": episode.observations[1:], "action": episode.actions}
        columns |= {"reward": episode.rewards, "terminated": episode.terminations, "truncated": episode.truncations}
        if "task" not in infos:
            parts.append(columns)
            continue
        if data.spec.dataset_id == _ID:  # other infos of a step are those before it
            columns |= {name: infos[name][:steps] for name in _FURTHER}
        yield Life(f"{path.name}, episode {episode.id}", infos["task"][0], columns)
    if parts:
        yield Life(path.name, None, _joined(parts))


READERS: dict[str, Callable[[Path, dict[str, str]], Iterator[Life]]] = {
    "npz": read_npz,
    "hdf5": read_hdf5,
    "parquet": read_parquet,
    "minari": read_minari,
}
