"""Options of engines and shards, and of the program that collects stage one in shards."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import model_validator

from icrl.app.root import CHOICES, Config
from icrl.config.options import NO_EFFECT, Choice, Options, Text, group, option, refuse
from icrl.recording.record import Part

_ENGINE = "engine: processes on this machine, Dask workers or Slurm jobs; the preset `launch=` sets it"


class LaunchConfig(Options):
    """Options of every engine."""

    name: str = option("", _ENGINE)
    num_workers: int = option(2, "units at a time, each on one thread", ge=1, le=10**5, may_change=True)
    num_processes: int = option(
        1,
        "processes of torchrun, of one thread each, that train each model of a unit together",
        ge=1,
        le=1024,
        may_change=True,
    )


class LocalLaunch(LaunchConfig):
    name: Literal["local"] = option("local", _ENGINE)


class DaskLaunch(LaunchConfig):
    name: Literal["dask"] = option("dask", _ENGINE)
    scheduler: Text = option(
        "local",
        "address of a Dask scheduler, such as tcp://host:8786, whose workers share the folders of the run (local: "
        "launch.num_workers worker processes on this machine)",
        may_change=True,
    )


class SubmititLaunch(LaunchConfig):
    name: Literal["submitit"] = option("submitit", _ENGINE)
    parameters: dict[str, Any] = option(
        {}, "parameters of submitit's executor: {timeout_min: 240, slurm_partition: gpu}", may_change=True
    )

    former = {"executor": NO_EFFECT}


LAUNCHES = {"local": LocalLaunch, "dask": DaskLaunch, "submitit": SubmititLaunch}
CHOICES["launch"] = lambda: LAUNCHES
AnyLaunch = Annotated[LaunchConfig, Choice("launch", CHOICES["launch"])]


class ShardConfig(Options):
    count: int = option(2, "shards of the training tasks, collected separately and then joined", ge=2, le=10**5)
    index: int = option(-1, "shard that this run collects, from 0 (-1: all of them, with the engine of launch=)", ge=-1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(self.index >= self.count, f"shard.index={self.index}: must be below shard.count={self.count}")
        return self

    @property
    def part(self) -> Part:
        """Training tasks of this shard."""
        return Part(self.index, self.count)


class ShardedConfig(Config):
    """Options of all programs, and those of shards and engines."""

    page: ClassVar[str] = "train_shards"

    shard: ShardConfig = group(ShardConfig, "parts of stage one, each a store", "1")
    launch: AnyLaunch = group(LocalLaunch, "engine that runs the shards", "1")
