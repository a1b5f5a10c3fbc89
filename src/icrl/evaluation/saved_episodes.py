"""What policies came to, episode by episode, kept in a file: several runs can be put together later."""

import io
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icrl.contracts import PipelineError
from icrl.evaluation.in_context import Adaptation
from icrl.runs.files import sha256, write_atomically
from icrl.runs.identity import Identity, check_owner

FILE = "episodes.npz"
_OWNER, _COVERAGE = "owner", "coverage/"  # names of arrays: program and run; what those of coverage begin with
_TYPES = tuple(map(np.dtype, ("u1", "i1", "u2", "i2", "f2", "f4", "f8")))  # the smallest that is exact is taken


def save_episodes(
    folder: Path,
    episodes: Mapping[str, Adaptation],
    owner: Identity,
    coverage: Mapping[str, NDArray[np.float64]] | None = None,
) -> str:
    """Write `episodes.npz` into `folder`: arrays `<name>/<field>` for each of `episodes`, by name, and each field of an
    adaptation, `coverage/<name>` for each of `coverage`, and `owner`, program and run. Returns its checksum."""
    arrays: dict[str, Any] = {
        f"{name}/{field}": _smallest(values)
        for name, adaptation in episodes.items()
        for field, values in adaptation._asdict().items()
    }
    arrays |= {_COVERAGE + name: values for name, values in (coverage or {}).items()}
    arrays[_OWNER] = np.array(owner)
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    write_atomically(folder / FILE, content.getvalue())
    return sha256(folder / FILE)


def load_episodes(folder: Path, owner: Identity) -> dict[str, Adaptation]:
    """What `save_episodes` wrote for the run `owner`, in float64.

    Raises `PipelineError` where it is missing, cut off, of another run, or holds anything but adaptations `[G, S, E]`.
    """
    path = folder / FILE
    arrays = {name: values for name, values in _arrays(path).items() if not name.startswith(_COVERAGE)}
    whose = arrays.pop(_OWNER, np.array(["nobody", ""]))
    if whose.shape != (2,) or whose.dtype.kind != "U":
        raise PipelineError(f"{path} does not say whose it is")
    check_owner(path, Identity(*whose.tolist()), owner)
    names = dict.fromkeys(name.rpartition("/")[0] for name in arrays)
    expected = {f"{name}/{field}" for name in names for field in Adaptation._fields}
    if not arrays or expected != arrays.keys():
        raise PipelineError(f"{path} does not hold {', '.join(Adaptation._fields)} of each policy")
    episodes = {name: Adaptation(*(arrays[f"{name}/{field}"] for field in Adaptation._fields)) for name in names}
    for name, adaptation in episodes.items():
        shapes = {values.shape for values in adaptation}
        if len(shapes) > 1 or any(values.ndim != 3 or values.dtype not in _TYPES for values in adaptation):
            raise PipelineError(f"{path}: {name} must be numbers by task, stream and episode, not {sorted(shapes)}")
    return {name: Adaptation(*(values.astype(np.float64) for values in found)) for name, found in episodes.items()}


def load_coverage(folder: Path) -> dict[str, NDArray[np.float64]]:
    """The coverage that `save_episodes` wrote, by name; nothing where it wrote none.

    Raises `PipelineError` where the file is missing or cut off, or holds anything but shares `[1, S, E]`."""
    path = folder / FILE
    found = {name: values for name, values in _arrays(path).items() if name.startswith(_COVERAGE)}
    for name, values in found.items():
        if values.ndim != 3 or values.dtype != np.float64 or values.shape != next(iter(found.values())).shape:
            raise PipelineError(f"{path}: {name} must be numbers by stream and episode, not {values.shape}")
    return {name.removeprefix(_COVERAGE): values for name, values in found.items()}


def _arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as found:
            return {name: found[name] for name in found.files}
    except (OSError, ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise PipelineError(f"{path} is not readable: {error}") from error


def _smallest(values: np.ndarray) -> np.ndarray:
    """`values` in the smallest type that holds them exactly."""
    with np.errstate(invalid="ignore", over="ignore"):  # of numbers that do not fit, which the comparison finds
        return next(cast for kind in _TYPES if np.array_equal(cast := values.astype(kind), values))
