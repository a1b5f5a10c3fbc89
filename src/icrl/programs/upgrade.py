"""Convert the histories, checkpoints and results of versions 0.7 and 0.8 to the present format.

python -m src.upgrade root=FOLDER [name=RUN]      FOLDER/histories/ and FOLDER/logs/: of RUN, or of all runs

All files are checked and converted into FOLDER/.upgrade/ before the first one is replaced, so a refusal changes nothing.
If the program is stopped while it replaces files, the same command completes the work. Files of the present format stay
as they are. Evaluations and searches are kept as `old-<folder>`: their programs compute them again.
"""

import hashlib
import io
import json
import re
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch

from icrl.collection import source_run
from icrl.config.compose import load_config, load_players_config
from icrl.config.paths import PROJECT
from icrl.contracts import ConfigError, Json, PipelineError
from icrl.data import manifests
from icrl.point_game.fit import owner_of
from icrl.runs.device import recorded
from icrl.runs.files import only_writer, read_json, sha256, write_atomically, write_json
from icrl.runs.identity import Identity, identity_of
from icrl.training.program import compared

OPTIONS = {  # renamed options
    "data.num_validation_tasks": "data.num_development_tasks",
    "evals.epsilon_greedy": "evals.sample_probability",
    "evaluation.epsilon_greedy": "evaluation.sample_probability",
    "encoder.dimension": "encoder.embed_dim",
    "encoder.dim_feedforward": "encoder.ff_dim",
    "encoder.position_encoder": "encoder.position",
    "encoder.activation_function": "encoder.activation",
    "decoder.dim_feedforward": "decoder.ff_dim",
    "decoder.activation_function": "decoder.activation",
}
VALUES = {("source.name", "noisy_expert"): "noise_distillation"}  # renamed values of options
HOSTS_07 = {"spivakovsky": "weak_spivakovsky", "spivakovsky_first": "weak_spivakovsky_first"}  # 0.8 reused the names
ADDED = {"tasks.split": "random", "tasks.held_out": [], "source.num_workers": 0, "evaluation.tasks": "test"}
PRESETS = {"env": "variant", "source": "name", "objective": "name", "optimizer": "name"}  # group: option with its preset
UNIONS = {"env", "source", "objective", "optimizer", "critic"}  # groups without the options that have no effect
KEYS = [  # renamed keys in `<file>:<dotted path>`: pattern, replacement; `_07` marks files that name no run
    (r"^(train_agents:state)\.place$", r"\1.state_index"),
    (r"^(description:tasks)\.validation$", r"\1.development"),
    (r"^(evaluations\w*:.*\.metrics)\.validation_", r"\1.development_"),
    (r"^(\w+_07:.*\b)(spivakovsky(_first)?_vs_)", r"\1weak_\2"),  # 0.8 gave the name to another player
]
GROUPS = {"train_gpt": ["objective"], "train_ilql": ["encoder", "decoder", "critic"], "extract_policy": ["awr"]}
OWNED = ("finished", "evaluations", "run", "matches", "results", "milliseconds")  # files that name their run since 0.8
STAGING, MOVED = ".upgrade", "upgraded.json"  # in the root: converted files; checksums of states before and after


def main(root: Path, name: str = "") -> list[str]:
    """Convert the runs under `root`, or the run `name` alone; returns a line for each. Raises `PipelineError`, and
    changes nothing, if a file is damaged or cannot be converted."""
    finish(root)
    shutil.rmtree(root / STAGING, ignore_errors=True)
    names = sorted({path.name for kind in ("histories", "logs") for path in (root / kind).glob("*") if path.is_dir()})
    if name not in ("", *names):
        raise ConfigError(f"name={name}: no such run in {root}; there are {', '.join(names) or 'none'}")
    conversion = Conversion(root, [one for one in names if name in ("", one)])
    with ExitStack() as locks:
        for lock in [*root.glob("histories/*/.lock"), *root.glob("logs/*/*/.lock")]:
            locks.enter_context(only_writer(lock.parent))
        for sidecar in sorted(root.glob("logs/*/*/*-*.json")):  # all, because a run names the states it was made from
            conversion.convert_state(sidecar)
        lines = [f"{one}: {', '.join(conversion.convert(one)) or 'nothing to convert'}" for one in conversion.names]
        write_json(root / STAGING / MOVED, conversion.moved)
        write_json(root / STAGING / "complete.json", {"aside": conversion.aside})
        finish(root)
    return lines


def finish(root: Path) -> None:
    """Replace files by those in the staging folder if all were converted. It may be called again at any time."""
    staging, marker = root / STAGING, root / STAGING / "complete.json"
    if marker.exists():
        for folder in map(Path, read_json(marker)["aside"]):
            if folder.exists():
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
        self._configs: dict[str, tuple[Any, Json]] = {}

    def convert_state(self, sidecar: Path) -> None:
        """Check a checkpoint, and rename the keys of its state."""
        about, path, renamed = read_json(sidecar), sidecar.with_suffix(".pt"), list[str]()
        if not path.exists() or sha256(path) != about["state_sha256"] or step_of(sidecar) != about["step"]:
            raise PipelineError(f"{path} is missing, damaged or renamed: put it back, or delete it and its .json")
        state = torch.load(path, map_location="cpu", weights_only=True)
        state, buffer = rename_keys(state, f"{program_of(about['description'])}:", renamed), io.BytesIO()
        if renamed:
            torch.save(state, buffer)
            self.moved[about["state_sha256"]] = hashlib.sha256(buffer.getvalue()).hexdigest()
            if path.parent.parent.name in self.names:
                write_atomically(self._staged(path), buffer.getvalue())

    def convert(self, name: str) -> list[str]:
        """Convert all of the run `name` but its states; returns what was converted."""
        done, source = list[str](), None
        for folder in sorted((self.root / "logs" / name).glob("*/")):
            changed, sidecars = 0, sorted(folder.glob("*-*.json"), key=step_of)
            for path in sidecars:
                about = read_json(path)
                owner, record, about["description"] = self._described(about["description"])
                about["kind"] = path.stem.rpartition("-")[0]
                changed += self._stage(path, self._with_moved(about))
            if sidecars:
                others = [path for path in sorted(folder.glob("*.json")) if path.stem in OWNED]
                changed += sum(self._convert_owned(path, owner, record, step_of(sidecars[-1])) for path in others)
                source = owner if folder.name == "source" else source
                done += [f"{folder.name}: {changed} files converted"] if changed else []
            elif (path := folder / "results.json").exists() and not folder.name.startswith("old-"):
                about = read_json(path)
                config = read_json(folder / "config.json") if (folder / "config.json").exists() else about["config"]
                config.pop("owner", None)
                if self._config(config)[1] != config or self._with_moved(about) != about:
                    self.aside.append(str(folder))
                    done.append(f"{folder.name}: kept as old-{folder.name}")
        manifest = self.root / "histories" / name / manifests.MANIFEST
        changed = manifest.exists() and self._convert_manifest(manifest, source)
        return ["histories converted", *done] if changed else done

    def _convert_owned(self, path: Path, owner: Identity, record: Json, step: int) -> bool:
        content = read_json(path)
        before = content.pop("owner", None)
        if path.stem == "evaluations":
            step = max((entry["step"] for entry in content["evaluations"]), default=-1)
        if owner.program == "train_players" and path.stem in ("matches", "results", "milliseconds") and not before:
            content = {path.stem.replace("results", "matches"): content}
        content = rename_keys(content, f"{path.stem}{'' if before else '_07'}:", [])
        content |= {"config": record} if "config" in content else {}
        step = before["step"] if before else 0 if path.stem == "run" else step
        return self._stage(path, content | {"owner": owner._asdict() | {"step": step}})

    def _convert_manifest(self, path: Path, owner: Identity | None) -> bool:
        manifest, complete = read_json(path), read_json(path)["complete"]
        columns = {name: path.with_name(f"{name}.npy") for name in manifest["columns"]}
        manifest["complete"] = True  # 0.7 wrote no checksums of blocks: histories that it began get them here
        manifests.upgrade(manifest, path)
        manifest["complete"] = complete
        if not complete and not manifest["blocks"] and (end := manifest["committed"]):
            parts = {name: np.ascontiguousarray(np.load(file, mmap_mode="r")[:, :end]) for name, file in columns.items()}
            checksums = {name: hashlib.sha256(part.data).hexdigest() for name, part in parts.items()}
            manifest["blocks"] = [{"start": 0, "end": end, "sha256": checksums}]
        for name, file in columns.items() if complete else ():
            if not file.exists() or sha256(file) != manifest["columns"][name]["sha256"]:
                raise PipelineError(f"{file} is missing or damaged: its checksum is not the one in {path}")
        manifest["config"] = self._config(manifest["config"])[1]
        manifest["owner"] = owner._asdict() if owner else manifest["owner"]
        manifests.check_form(manifest, path)
        return self._stage(path, manifest)

    def _described(self, before: Json) -> tuple[Identity, Json, Json]:
        """Run, recorded configuration and description of a checkpoint that was described as `before`."""
        program, rest = program_of(before), rename_keys(before, "description:", [])
        if "config" not in rest:  # stage one of 0.7
            rest = {"config": rest} | ({"error": rest.pop("error")} if "error" in rest else {})
        config, record = self._config(rest["config"], "run" not in before)
        if program == "train_players":
            return (owner := owner_of(config)), record, rest | owner._asdict() | {"config": record}
        rest["inputs"] = self._with_moved(rest["inputs"] if "inputs" in rest else self._inputs(config, rest))
        rest.pop("critic", None)  # 0.7; one of the inputs now
        if program == "train_agents":
            groups = source_run.compared(config)
        else:
            values = ["awr"] if program == "train_ilql" and config.trainer.evaluate else []
            groups = compared(config, *GROUPS[program], *values)
        owner = identity_of(program, config, groups, rest["inputs"])
        return owner, record, rest | owner._asdict() | {"config": record}

    def _inputs(self, config: Any, rest: Json) -> Json:
        """Checksums of what a run of 0.7 was made of."""
        source, found = config.source, dict[str, Any]()
        if "histories" in rest:
            found["histories"] = [store["sha256"] for store in rest["histories"]]
            found |= {"warm_start": {}} if rest["program"] != "train_gpt" else {}  # 0.7 did not record it
            found |= {"critic": rest["critic"]} if "critic" in rest else {}
            return found | ({"reward_plugin": rest["reward_plugin"]["sha256"]} if "reward_plugin" in rest else {})
        if (teacher := getattr(source, "teacher", "none")) != "none":
            sidecars = sorted((self.root / "logs" / teacher / "source").glob("last-*.json"))
            found["source.teacher"] = read_json(sidecars[-1])["state_sha256"] if sidecars else ""
        if (others := getattr(source, "offline_buffer_dir", "none")) != "none":
            path = self.root / "histories" / others / manifests.MANIFEST
            found["source.offline_buffer_dir"] = manifests.checksum_of(read_json(path)) if path.exists() else ""
        return found

    def _config(self, before: Json, is_07: bool = False) -> tuple[Any, Json]:
        """The present configuration with the options that were recorded `before`, and how it is recorded now."""
        if (known := json.dumps(before, sort_keys=True)) in self._configs:
            return self._configs[known]
        old, is_players = flat(before), "game" in before
        new = {OPTIONS.get(key, key): VALUES.get((key, str(value)), value) for key, value in old.items()}
        if is_07 or "data.num_validation_tasks" in old:
            hosts = {key: value for key, value in new.items() if key.endswith(".opponents")}
            new |= {key: [HOSTS_07.get(one, one) for one in value] for key, value in hosts.items()}
        if old.get("data.num_validation_tasks") == 0:
            new["trainer.evaluate"] = False  # 0.7 evaluated on held-out tasks alone
        load = load_players_config if is_players else load_config
        chosen = [] if is_players else [f"{group}={new[f'{group}.{option}']}" for group, option in PRESETS.items()]
        present = flat(json.loads(json.dumps(recorded(load(chosen)))))
        new = {key: value for key, value in ADDED.items() if key in present} | new
        if unknown := [key for key in new if key not in present and key.partition(".")[0] not in UNIONS]:
            raise PipelineError(f"{', '.join(unknown)}: this version has no such options, and cannot convert a run with them")
        options = {key: value for key, value in new.items() if key in present and not key.startswith("study.")}
        config = load([*chosen, *(f"{key}={text(value)}" for key, value in options.items())])
        record = json.loads(json.dumps(recorded(config)))
        record |= {"study": before["study"]} if "study" in before else {}
        self._configs[known] = config, record
        return config, record

    def _with_moved(self, content: Json) -> Json:
        """`content` with the new checksums of states in the place of the old ones."""
        return json.loads(re.sub(r"[0-9a-f]{64}", lambda old: self.moved.get(old[0], old[0]), json.dumps(content)))

    def _staged(self, path: Path) -> Path:
        return self.root / STAGING / path.relative_to(self.root)

    def _stage(self, path: Path, content: Json) -> bool:
        if changed := read_json(path) != (content := json.loads(json.dumps(content))):
            write_json(self._staged(path), content)
        return changed


def program_of(description: Json) -> str:
    """The program that wrote a checkpoint; stage one and the players of 0.7 did not say."""
    config = description.get("config", description)
    return description.get("program") or ("train_players" if "game" in config else "train_agents")


def step_of(sidecar: Path) -> int:
    return int(sidecar.stem.rpartition("-")[2])


def rename_keys(tree: Any, path: str, renamed: list[str]) -> Any:
    """`tree` with its keys renamed by `KEYS`; `path` leads to it. The new paths are added to `renamed`."""
    if isinstance(tree, (list, tuple)):
        return type(tree)(rename_keys(item, f"{path}{index}.", renamed) for index, item in enumerate(tree))
    if not isinstance(tree, dict):
        return tree
    found = {}
    for key, value in tree.items():
        new = f"{path}{key}"
        for pattern, replacement in KEYS:
            new = re.sub(pattern, replacement, new)
        renamed += [new] if new != f"{path}{key}" else []
        found[new.removeprefix(path) if isinstance(key, str) else key] = rename_keys(value, f"{new}.", renamed)
    return found


def flat(config: Json) -> Json:
    """A recorded configuration by dotted option."""
    groups = {key: value if isinstance(value, dict) else {"": value} for key, value in config.items()}
    return {f"{key}.{option}".rstrip("."): value for key, group in groups.items() for option, value in group.items()}


def text(value: Any) -> str:
    """A value as it is written on a command line."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {text(part)}' for key, part in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(text, value))}]"
    return "'" + value.replace("'", "\\'") + "'" if isinstance(value, str) else json.dumps(value)


def command() -> None:
    """Run this program with the options of the command line."""
    options = dict(argument.partition("=")[::2] for argument in sys.argv[1:])
    if {"-h", "--help"} & options.keys():
        print(__doc__)
        return
    try:
        if not {"root"} <= options.keys() <= {"root", "name"}:
            raise ConfigError("usage: python -m src.upgrade root=FOLDER [name=RUN]")
        print("\n".join(main(PROJECT / options["root"], options.get("name", ""))) or "no runs")
    except (PipelineError, OSError) as error:
        print(f"error: {' '.join(str(error).splitlines())}", file=sys.stderr)
        sys.exit(2)
