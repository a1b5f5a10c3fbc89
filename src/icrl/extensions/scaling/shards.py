"""Shards of stage one: blocks of its training tasks, each collected and stored on its own, and their union.

A learner, its streams and their seeds are those that it has in a run of all tasks, so the shards have the rows of the
whole store, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from icrl.config.options import refuse
from icrl.contracts import PipelineError
from icrl.data.history_store import MANIFEST, checksum_of, read_manifest
from icrl.extensions.scaling.options import ShardedConfig
from icrl.runs.files import Identity, write_json
from icrl.sources.options import NetworkConfig


def check_shards(config: ShardedConfig, num_tasks: int) -> None:
    """Raise `ConfigError` if shards of `num_tasks` training tasks cannot have the rows of a run of all tasks."""
    source, count = config.source, config.shard.count
    given, of_all = f"shard.count={count}", "collect them with train_agents"
    refuse(source.shared, f"{given}: source.shared=true is one learner of all tasks, which has no parts; {of_all}")
    most = num_tasks
    if isinstance(source, NetworkConfig) and source.num_learners == 1:
        most //= 2  # products of a single learner are rounded in another way
    alone = f"gives a shard fewer than {num_tasks // most} of the {num_tasks} training tasks" if most else "is too many"
    cure = f"give shard.count={most}, or more tasks or learners" if most > 1 else f"give more tasks, or {of_all}"
    refuse(count > most, f"{given} {alone}: {cure}")


def unite(folder: Path, shards: Sequence[Path], train: list[int], owner: Identity) -> None:
    """Write the manifest that makes the complete stores in `shards`, subfolders of `folder` in the order of their rows,
    one store of the run `owner` with the training tasks `train`. Raises `PipelineError` if a shard is incomplete."""
    manifests = [read_manifest(shard) for shard in shards]
    for shard, manifest in zip(shards, manifests, strict=True):
        if not manifest["complete"]:
            raise PipelineError(f"the histories in {shard} are not complete: the same command continues")
    first, entries = manifests[0], list[dict[str, object]]()
    num_rows = [manifest["columns"]["obs"]["shape"][0] for manifest in manifests]
    for shard, manifest, number in zip(shards, manifests, num_rows, strict=True):
        entries.append({"folder": shard.name, "rows": number, "checksum": checksum_of(manifest)})
    columns = {
        name: column | {"shape": [sum(num_rows), *column["shape"][1:]], "sha256": None}
        for name, column in first["columns"].items()
    }
    united = first | {"columns": columns, "tasks": first["tasks"] | {"train": train}, "owner": owner._asdict()}
    united["config"] = first["config"] | {"name": folder.name}
    write_json(folder / MANIFEST, united | {"shards": entries})
