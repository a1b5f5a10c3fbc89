"""World that is known from histories alone: its spaces and tasks, but no rules to play by."""

from typing import ClassVar, Literal

import torch
from torch import Tensor

from icrl.config.options import PathName, option
from icrl.data.history_store import read_manifest
from icrl.envs.core import NAME, EnvConfig, TensorEnv, world
from icrl.runs.files import PROJECT
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
