"""Convert the histories, checkpoints and results of versions 0.8 and 0.9 to the present format.

python -m src.upgrade root=FOLDER [name=RUN]      FOLDER/histories/ and FOLDER/logs/: of RUN, or of all runs

All files are checked and converted into FOLDER/.upgrade/ before the first one is replaced, so a refusal changes
nothing. If the program is stopped while it replaces files, the same command finishes the conversion. Files of the
present format do not change. Evaluations and searches are renamed to `old-<folder>`: their programs compute them again.
"""

import hashlib
import io
import json
import re
import shutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import torch

from icrl.app.command_line import explained
from icrl.config.modules import command_of
from icrl.contracts import ConfigError, Json, PipelineError
from icrl.data import history_store
from icrl.extensions.upgrade._versions import present_config, program_of, rebuild_state
from icrl.recording import record as stage_one
from icrl.runs.checkpoint import saved_step
from icrl.runs.files import (
    PROJECT,
    Identity,
    content_of,
    identity_of,
    only_writer,
    read_json,
    sha256,
    write_atomically,
    write_json,
)
from icrl.spaces import EnvSpec
from icrl.training.program import compared

GROUPS = {  # options that a program compares beside those of all that train a model
    "train_gpt": ["objective"],
    "train_ilql": ["encoder", "decoder", "critic"],
    "extract_policy": ["awr"],
    "train_td3_bc": ["objective"],
    "finetune": ["objective", "finetune"],
}
OWNED = ("finished", "evaluations", "run", "matches", "results", "milliseconds")  # JSON files that name their run
FORM: Json = {"step": int, "state_sha256": str, "description": {"program": str, "config": dict}}
SIDECARS = "*-[0-9]*.json"
STAGING, MOVED = ".upgrade", "upgraded.json"  # in the root: converted files; checksums of states before and after


def main(root: Path, name: str = "") -> list[str]:
    """Convert the runs under `root`, or the run `name` alone; returns a line for each. Raises `PipelineError`, and
    changes nothing, if a file is damaged or cannot be converted."""
    kinds = [root / kind for kind in ("histories", "logs") if (root / kind).is_dir()]
    names = sorted({path.name for kind in kinds for path in kind.glob("*") if path.is_dir()})
    if name not in ("", *names):
        raise ConfigError(f"name={name}: no such run in {root}; its runs are {', '.join(names) or 'none'}")
    with ExitStack() as locks:
        locked = [lock.parent for lock in [*root.glob("histories/*/.lock"), *root.glob("logs/*/*/.lock")]]
        for folder in [*kinds, *locked]:  # against another conversion, and against programs that write to these runs
            locks.enter_context(only_writer(folder))
        finish(root)
        shutil.rmtree(root / STAGING, ignore_errors=True)
        conversion = Conversion(root, [one for one in names if name in ("", one)])
        for sidecar in sorted(root.glob(f"logs/*/*/{SIDECARS}")):  # of all runs, because a run names its input states
            conversion.convert_state(sidecar)
        done = {one: conversion.convert(one) for one in conversion.names}
        if any(done.values()):
            write_json(root / STAGING / MOVED, conversion.moved)
            write_json(root / STAGING / "complete.json", {"aside": conversion.aside})
        finish(root)
    return [f"{one}: {', '.join(what) or 'nothing to convert'}" for one, what in done.items()]


def finish(root: Path) -> None:
    """Replace files by those in the staging folder if all were converted. Calling it again is safe."""
    staging, marker = root / STAGING, root / STAGING / "complete.json"
    if marker.exists():
        aside = {*read_json(marker, {"aside": [str]})["aside"]}  # none but folders of this root, whatever a file says
        for folder in [folder for folder in root.glob("logs/*/*/") if str(folder.relative_to(root)) in aside]:
            folder.rename(folder.with_name(f"old-{folder.name}"))
        for path in [path for path in staging.rglob("*") if path.is_file() and path != marker]:
            path.replace(root / path.relative_to(staging))
        marker.unlink()
        shutil.rmtree(staging)


class Conversion:
    """Conversion of the runs `names` under one root into its staging folder. `moved` holds the new checksum of each
    changed state, `aside` the folders to rename."""

    def __init__(self, root: Path, names: list[str]) -> None:
        self.root, self.names, self.aside = root, names, list[str]()
        self.moved: Json = read_json(root / MOVED) if (root / MOVED).exists() else {}

    def convert_state(self, sidecar: Path) -> None:
        """Check a checkpoint, and bring its state into the present layout."""
        path, buffer = sidecar.with_suffix(".pt"), io.BytesIO()
        with content_of(path, PipelineError):
            about = read_json(sidecar, FORM)
            if not path.exists() or sha256(path) != about["state_sha256"] or saved_step(sidecar) != about["step"]:
                raise PipelineError(f"{path} is missing, damaged or renamed: put it back, or delete it and its .json")
            state = torch.load(path, map_location="cpu", weights_only=True)
            rebuilt = rebuild_state(about["description"]["program"], state, about["step"])
        if rebuilt is not state:
            torch.save(rebuilt, buffer)
            self.moved[about["state_sha256"]] = hashlib.sha256(buffer.getvalue()).hexdigest()
            if path.parent.parent.name in self.names:
                write_atomically(self._staged(path), buffer.getvalue())

    def convert(self, name: str) -> list[str]:
        """Convert the run `name` except its states; returns a line for each converted folder."""
        done, source = list[str](), None
        for folder in sorted((self.root / "logs" / name).glob("*/")):
            if sidecars := sorted(folder.glob(SIDECARS), key=saved_step):
                owner, changed = self._convert_part(folder, sidecars)
                source = owner if folder.name == "source" else source
                done += [f"{folder.name}: {changed} files converted"] if changed else []
            elif (path := folder / "results.json").exists() and not folder.name.startswith("old-"):
                with content_of(path, PipelineError):
                    about = read_json(path)
                    config = read_json(folder / "config.json") if (folder / "config.json").exists() else about["config"]
                    config.pop("owner", None)
                    older = present_config(config)[1] != config or self._with_moved(about) != about
                if older:
                    if (kept := folder.with_name(f"old-{folder.name}")).exists():
                        raise PipelineError(f"{kept} exists already: remove or rename it")
                    self.aside.append(str(folder.relative_to(self.root)))
                    done.append(f"{folder.name}: kept as old-{folder.name}")
        manifest = self.root / "histories" / name / history_store.MANIFEST
        changed = manifest.exists() and self._convert_manifest(manifest, source)
        return ["histories converted", *done] if changed else done

    def _convert_part(self, folder: Path, sidecars: list[Path]) -> tuple[Identity, int]:
        """Convert the sidecars and the files beside them; returns the run, and the number of changed files."""
        found, changed = list[tuple[Identity, Json, Json]](), 0
        for path in sidecars:
            with content_of(path, PipelineError):
                found.append(self._described(read_json(path)["description"]))
        owner, record, _ = found[-1]
        for path, (*_, description) in zip(sidecars, found, strict=True):
            changed += self._stage(path, self._with_moved(read_json(path) | {"description": description}))
        for path in [path for path in sorted(folder.glob("*.json")) if path.stem in OWNED]:
            content = read_json(path, {"owner": {"step": int}})
            named = {"owner": content["owner"] | owner._asdict()}
            changed += self._stage(path, content | named | ({"config": record} if "config" in content else {}))
        return owner, changed

    def _convert_manifest(self, path: Path, owner: Identity | None) -> bool:
        manifest = read_json(path)
        if history_store.store_kind(manifest):  # made of other stores: versions that need a conversion made none
            return False
        history_store.check_form(manifest, path)
        for name, column in manifest["columns"].items() if manifest["complete"] else ():
            if not (file := path.with_name(f"{name}.npy")).exists() or sha256(file) != column["sha256"]:
                raise PipelineError(f"{file} is missing or damaged: its checksum is not the one in {path}")
        with content_of(path, PipelineError):
            manifest["env"] = EnvSpec.of(manifest["env"]).to_json()
            manifest["config"] = present_config(manifest["config"])[1]
        manifest["owner"] = owner._asdict() if owner else manifest["owner"]
        return self._stage(path, manifest)

    def _described(self, before: Json) -> tuple[Identity, Json, Json]:
        """Run, recorded configuration and new description of a checkpoint with the description `before`."""
        program, rest = before["program"], dict(before)
        config, record = present_config(rest["config"])
        if program == "train_players":
            owner: Identity = program_of(program, "point_game").owner_of(config)
        else:
            rest["inputs"] = self._with_moved(rest.get("inputs", {}))
            if program in ("train_ilql", "extract_policy"):
                program_of(program, "offline_rl")
            values = ["awr"] if program == "train_ilql" and config.trainer.evaluate else []
            groups = compared(config, *GROUPS[program], *values) if program in GROUPS else stage_one.compared(config)
            owner = identity_of(program, config, groups, rest["inputs"])
        return owner, record, rest | owner._asdict() | {"config": record}

    def _with_moved(self, content: Json) -> Json:
        """Copy of `content` with the new checksums of states."""
        return json.loads(re.sub(r"[0-9a-f]{64}", lambda old: self.moved.get(old[0], old[0]), json.dumps(content)))

    def _staged(self, path: Path) -> Path:
        return self.root / STAGING / path.relative_to(self.root)

    def _stage(self, path: Path, content: Json) -> bool:
        if changed := read_json(path) != (content := json.loads(json.dumps(content))):
            write_json(self._staged(path), content)
        return changed


def command(arguments: Sequence[str]) -> None:
    """Run this program with the options of the command line."""
    options = {key: value for key, _, value in (argument.partition("=") for argument in arguments)}
    if {"-h", "--help"} & options.keys():
        print(explained(__doc__ or ""))
        return
    try:
        if not {"root"} <= options.keys() <= {"root", "name"} or not options["root"]:
            raise ConfigError(f"usage: {command_of('upgrade')} root=FOLDER [name=RUN]")
        print("\n".join(main(PROJECT / options["root"], options.get("name", ""))) or "no runs")
    except (PipelineError, OSError) as error:
        print(f"error: {' '.join(str(error).splitlines())}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted: the same command continues", file=sys.stderr)
        sys.exit(130)
