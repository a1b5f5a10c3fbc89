"""World and source that are known from imported histories alone: names in their manifest, which cannot play."""

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from icrl.config.modules import command_of
from icrl.config.options import PathName, option
from icrl.contracts import ConfigError
from icrl.data.history_store import read_manifest
from icrl.envs.core import NAME, EnvConfig, TensorEnv, world
from icrl.runs.files import PROJECT
from icrl.sources import source
from icrl.sources.options import SourceConfig, named
from icrl.spaces import EnvSpec


class RecordedConfig(EnvConfig):
    unplayable: ClassVar[str] = (
        "the world of these histories is not known, so nothing can be played in it. Import them once more with env= "
        "and its options"
    )

    name: Literal["recorded"] = option("recorded", NAME)
    path: PathName = option("none", "folder of the histories, relative to the project", may_change=True)


@world("recorded", RecordedConfig)
class RecordedWorld(TensorEnv):
    """World of imported histories. It has the spaces that their columns need; nobody can play in it."""

    task_columns = ("task",)
    has_planner = False

    def __init__(self, config: RecordedConfig) -> None:
        manifest = read_manifest(PROJECT / config.path)
        self.spec = EnvSpec.of(manifest["env"])
        self._tasks = torch.tensor(manifest["tasks"]["all"])

    def all_tasks(self) -> Tensor:
        return self._tasks

    def label(self, task: Tensor) -> str:
        return f"task_{int(task[0])}"


class ImportedConfig(SourceConfig):
    learns: ClassVar[bool] = False

    name: Literal["imported"] = named("imported")

    def alone(self) -> dict[str, Any] | None:
        return None  # no agent can be trained for a film


@source("imported", ImportedConfig)
class Imported:
    """Stand-in for the agents of imported histories, of which nothing but their lives is known."""

    @classmethod
    def check_spaces(cls, *_: Any) -> None:
        made = f"made by {command_of('import_histories')}, and cannot play"
        raise ConfigError(f"source.name=imported: {made}; choose another source")
