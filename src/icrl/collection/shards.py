"""Shards of stage one: blocks of its training tasks, each collected and stored on its own, and their union.

A learner, its streams and their seeds are those that it has in a run of all tasks, so the shards have the rows of the
whole store, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pydantic import model_validator

from icrl.config.options import Options, option, refuse, replace
from icrl.contracts import PipelineError
from icrl.data.history_store import MANIFEST, checksum_of, read_manifest
from icrl.runs.files import Identity, write_json
from icrl.sources.options import NetworkConfig

if TYPE_CHECKING:
    from icrl.config.root import Config


class ShardConfig(Options):
    count: int = option(
        1, "shards of the training tasks, collected on their own and then united (1: none)", ge=1, le=10**5
    )
    index: int = option(-1, "shard that this run collects, from 0 (-1: all of them, with the engine of launch=)", ge=-1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(self.index >= self.count, f"shard.index={self.index}: must be below shard.count={self.count}")
        refuse(self.index >= 0 and self.count == 1, "shard.index=0: give shard.count, the number of shards")
        return self

    @property
    def is_part(self) -> bool:
        """True for a run of one shard."""
        return self.index >= 0

    @property
    def is_whole(self) -> bool:
        """True for a run that collects all shards and unites them."""
        return self.count > 1 and not self.is_part

    def block(self, num_tasks: int) -> slice:
        """Training tasks of this shard among `num_tasks`; all of them unless it is one."""
        if not self.is_part:
            return slice(0, num_tasks)
        return slice(num_tasks * self.index // self.count, num_tasks * (self.index + 1) // self.count)


def shard_of(config: Config, index: int) -> Config:
    """Configuration of the run of a shard: it has folders of its own in those of the run."""
    shard = replace(config.shard, index=index)
    return replace(config, name=f"{config.name}/shard-{index}-of-{shard.count}", shard=shard)


def check_shards(config: Config, num_tasks: int) -> None:
    """Raise `ConfigError` if shards of `num_tasks` training tasks cannot have the rows of a run of all tasks."""
    source, count = config.source, config.shard.count
    if count == 1:
        return
    given, of_all = f"shard.count={count}", "leave shard.count out"
    refuse(source.shared, f"{given}: source.shared=true is one learner of all tasks, which has no parts; {of_all}")
    own = "has no agents that can be trained in parts"
    refuse(not source.has_agents, f"{given}: source.name={source.name} {own}; {of_all}")
    most = num_tasks
    if isinstance(source, NetworkConfig) and source.num_learners == 1:
        most //= 2  # products of a single learner are rounded in another way
    alone = f"gives a shard fewer than {num_tasks // most} of the {num_tasks} training tasks" if most else "is too many"
    refuse(count > most, f"{given} {alone}: give shard.count={max(most, 1)}, or more tasks or learners")


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
    united["config"] = first["config"] | {"name": folder.name, "shard": first["config"]["shard"] | {"index": -1}}
    write_json(folder / MANIFEST, united | {"shards": entries})
