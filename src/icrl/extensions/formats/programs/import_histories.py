"""Import histories of another program into a store, from which stage two learns.

python -m src.import_histories format=npz path=FILE name=NAME env=... [KEY=VALUE ...]      FILE -> histories/<name>/

Formats: npz, hdf5, parquet, minari; docs/your_own.md says what a file must have. `env=` and its options are the world
that the histories are from, so that later stages can play there; `env=recorded` if there is none here. The tasks in the
file are training tasks, all others of the world are held out; with `tasks.split=list` and the regions of a room their
tasks are held out, and rows of these are left out.
"""

from contextlib import closing
from hashlib import sha256
from pathlib import Path

import torch

from icrl.app.root import Config
from icrl.config.options import refuse, replace
from icrl.contracts import Json, Rollout
from icrl.data.history_store import MANIFEST, HistoryWriter, read_manifest
from icrl.envs import make_env
from icrl.envs.tasks import held_out_region, permuted
from icrl.extensions.formats.files import Life, read_lives
from icrl.extensions.formats.imported import ImportedConfig, RecordedConfig
from icrl.extensions.formats.imports import check_integers, checked, complete, evened, spec_of
from icrl.extensions.formats.options import ImportConfig
from icrl.runs.device import prepare
from icrl.runs.files import Identity, check_owner, digest, identity_of, only_writer
from icrl.spaces import EnvSpec

OPTIONS = ImportConfig
LARGE = "the number of histories"


def main(config: ImportConfig) -> Path:
    """Import, unless this is done; returns the folder with the histories."""
    prepare(config)
    form, folder = config.format, config.folder("histories")
    refuse(config.path == "none", "path=none: must be the file or folder to import")
    lives = read_lives(form, Path(config.path), config.columns)
    without = [life.place for life in lives if life.task is None]
    refuse(
        without and len(lives) > 1, f"{(without or [''])[0]}: lacks the column task, the number of the task of each row"
    )
    lives = [life._replace(task=life.task or 0) for life in lives]
    lives = [life._replace(columns=complete(life)) for life in lives]
    spec, tasks = world_of(config, lives)
    kept, steps = evened(lives, tasks["train"], print)
    parts = [checked(life, spec, steps) for life in kept]
    rollout = Rollout(*(torch.stack([part[name] for part in parts], dim=1) for name in Rollout._fields))
    rows = {"num_learners": len(kept) // len(tasks["train"]), "num_envs": 1}
    with only_writer(folder):
        write(config, spec, rollout, tasks, rows)
    print(f"imported {len(kept)} rows of {steps} steps on {len(tasks['train'])} tasks to {folder}")
    return folder


def world_of(config: Config, lives: list[Life]) -> tuple[EnvSpec, Json]:
    """Spec of the world of the lives, and the split of its tasks. Raises `ConfigError` if a life is on a task that the
    world does not have, or if none is held out."""
    present = list(dict.fromkeys(life.task or 0 for life in lives))
    if isinstance(config.env, RecordedConfig):
        tasks = {"all": [[task] for task in range(max(present) + 1)], "seed": config.tasks.seed}
        for life in lives:
            check_integers(life)
        return spec_of([life.columns for life in lives]), tasks | {"train": present, "held_out": list[int]()}
    with closing(make_env(config.env)) as env:
        everything, spec = env.all_tasks().tolist(), env.spec
        for life in lives:
            there = 0 <= (life.task or 0) < len(everything)
            refuse(not there, f"{life.place}: task {life.task} must be below {len(everything)}, the number of tasks")
        order = permuted(len(everything), config.tasks.seed)
        chosen = config.tasks.split != "random"
        held_out = held_out_region(env, config, order) if chosen else set(order) - set(present)
    train = [task for task in present if task not in held_out]
    refuse(not train, f"tasks.split={config.tasks.split}: holds out all tasks of the file")
    which = f"give tasks.split=list tasks.held_out=[{max(present)}]"
    refuse(not held_out, f"tasks.split=random: all tasks of this world are in the file, so none is held out; {which}")
    if len(train) < len(present):
        print(f"rows of {len(present) - len(train)} held-out tasks are left out")
    split = {"train": train, "held_out": [task for task in order if task in held_out][-config.tasks.num_held_out :]}
    return spec, {"all": everything, "seed": config.tasks.seed} | split


def write(config: Config, spec: EnvSpec, rollout: Rollout, tasks: Json, rows: Json) -> None:
    """Write the store, unless it holds the same already. Raises `PipelineError` if it is another run's."""
    folder, steps = config.folder("histories"), len(rollout.reward)
    content = digest([[sha256(column.numpy().tobytes()).hexdigest() for column in rollout], tasks, rows])
    owner = identity_of("import_histories", config, ("env", "tasks"), {"content": content})
    if (folder / MANIFEST).exists():
        manifest = read_manifest(folder)
        check_owner(folder / MANIFEST, Identity(**(manifest["owner"] or {"program": "a version", "run": ""})), owner)
        if manifest["complete"]:
            return
    pace = {"num_learners": rows["num_learners"], "num_envs": 1, "num_env_steps": steps, "history_steps": steps}
    described = replace(config, source=ImportedConfig(**pace, unroll_length=1.0))
    writer = HistoryWriter(folder, spec, steps, tasks, rows, described.model_dump(), owner)
    writer.add(rollout)
    writer.commit()
    writer.finish()
