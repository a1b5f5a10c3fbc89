"""Checks of a copy of the project without one extension, each in a fork of one process.

Run as a program in the copy. It imports what the library needs, which takes longest, and nothing of the library."""

import contextlib
import functools
import gc
import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import hydra
import omegaconf.base

PACKAGES = (
    *("gymnasium", "imageio_ffmpeg", "IPython.display", "matplotlib.figure", "optuna", "PIL.Image", "pydantic"),
    *("pytest", "safetensors.torch", "torch._dynamo", "torch.utils.tensorboard", "tqdm"),
)


@contextlib.contextmanager
def hidden(copy: Path, name: str) -> Iterator[None]:
    """The extension `name` is not in the copy."""
    folder, elsewhere = copy / "src/icrl/extensions" / name, copy / "hidden"
    folder.rename(elsewhere)
    try:
        yield
    finally:
        elsewhere.rename(folder)


def in_a_fork(work: Callable[[], str]) -> str:
    """What `work` returns, or the traceback of its error."""
    read, write = os.pipe()
    if not os.fork():
        with open(write, "w") as out:
            try:
                out.write(work())
            except BaseException:
                out.write(traceback.format_exc())
        os._exit(0)
    os.close(write)
    with open(read) as found:
        text = found.read()
    _, status = os.wait()
    return text + (f"ended with {status}" if status else "")


def main() -> None:
    """Print what is wrong by name. Standard input has the arguments of `without.wrong` as JSON."""
    for one in PACKAGES:
        importlib.import_module(one)
    omegaconf.base.parse = functools.cache(omegaconf.base.parse)
    folders = ",".join(f"file://{folder}" for folder in Path.cwd().glob("src/icrl/extensions/*/conf"))
    with hydra.initialize_config_dir(config_dir=str(Path.cwd() / "src/icrl/conf"), version_base="1.3"):
        hydra.compose("config", overrides=[f"hydra.searchpath=[{folders}]"])  # the first composition takes longest
    gc.freeze()
    found = {}
    for name, *arguments in json.load(sys.stdin):
        with hidden(Path.cwd(), name):
            found[name] = in_a_fork(lambda: importlib.import_module("without").wrong(name, *arguments))  # noqa: B023
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
