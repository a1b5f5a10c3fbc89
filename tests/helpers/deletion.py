"""Checks of a copy of the project without some extensions, each in a fork of one process.

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
def hidden(copy: Path, names: list[str]) -> Iterator[None]:
    """These extensions are not in the copy."""
    elsewhere = copy / "hidden"
    elsewhere.mkdir(exist_ok=True)
    for name in names:
        (copy / "src/icrl/extensions" / name).rename(elsewhere / name)
    try:
        yield
    finally:
        for name in names:
            (elsewhere / name).rename(copy / "src/icrl/extensions" / name)


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
    """Print what is wrong by names. Standard input has the arguments of `without.wrong` as JSON."""
    for one in PACKAGES:
        importlib.import_module(one)
    omegaconf.base.parse = functools.cache(omegaconf.base.parse)
    folders = ",".join(f"file://{folder}" for folder in Path.cwd().glob("src/icrl/extensions/*/conf"))
    with hydra.initialize_config_dir(config_dir=str(Path.cwd() / "src/icrl/conf"), version_base="1.3"):
        hydra.compose("config", overrides=[f"hydra.searchpath=[{folders}]"])  # the first composition takes longest
    gc.freeze()
    found = {}
    for names, *arguments in json.load(sys.stdin):
        with hidden(Path.cwd(), names):
            wrong = in_a_fork(lambda: importlib.import_module("without").wrong(names, *arguments))  # noqa: B023
        found[" ".join(names)] = wrong
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
