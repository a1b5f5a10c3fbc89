"""Root of the configuration of all stages: one group of options for each component, declared beside its code."""

from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from icrl.config.options import Name, OneOrMore, Options, PathName, Text, group, option
from icrl.config.paths import PROJECT
from icrl.config.rules import check_rules
from icrl.data.windows import DataConfig
from icrl.envs import env_options
from icrl.envs.core import EnvConfig
from icrl.envs.dark_room import DarkRoomConfig
from icrl.envs.tasks import TasksConfig
from icrl.evaluation.protocol import EvaluationConfig
from icrl.nn.critic import CriticConfig, DecoderConfig, EncoderConfig
from icrl.nn.gpt import GPTConfig
from icrl.nn.gpt_policy import PolicyConfig
from icrl.objectives.imitation import AwrConfig, ObjectiveConfig
from icrl.runs.checkpoint import CheckpointsConfig
from icrl.runs.device import DeviceConfig
from icrl.runs.evaluations import EvalsConfig
from icrl.runs.metrics import SummariesConfig
from icrl.sources import source_options
from icrl.sources.a2c import A2CConfig
from icrl.sources.options import SourceConfig
from icrl.training.optimizers import OPTIMIZERS, AdamWConfig, OptimizerConfig
from icrl.training.updates import TrainerConfig

if TYPE_CHECKING:
    AnyEnv, AnySource, AnyOptimizer = EnvConfig, SourceConfig, OptimizerConfig
else:
    AnyEnv = Annotated[reduce(or_, env_options().values()), Field(discriminator="name")]
    AnySource = Annotated[reduce(or_, source_options().values()), Field(discriminator="name")]
    AnyOptimizer = Annotated[reduce(or_, OPTIMIZERS.values()), Field(discriminator="name")]


class SearchConfig(Options):
    num_trials: int = option(
        20, "trials in all; a repeated call adds only what is missing", ge=1, le=10**4, may_change=True
    )
    goal_row: int = option(0, "row of the goal that is searched on", ge=0, le=63)
    goal_column: int = option(0, "column of the goal that is searched on", ge=0, le=63)
    num_learners: int = option(8, "learners per trial, averaged", ge=1, le=10**5)
    num_env_steps: int = option(20000, "env steps per learner", ge=1, le=10**8)


class StudyConfig(Options):
    question: Text = option("none", "question of the comparison, the title of its picture")
    measure: Literal["success", "returns"] = option("success", "measure that variants are compared by")
    seeds: list[Annotated[int, Field(ge=0, le=10**9)]] = option([0, 1, 2], "seeds of every variant")
    variants: list[dict[str, Any]] = option(
        [],
        "what is compared: each a `label`, what it changes (`set`, a list of KEY=VALUE) and, if need be, its place `x` "
        "(a number or a name) on the axis, `line`, the name of the line through such places, and `test`, the worlds it "
        "is evaluated in: "
        "for each a label and a list of KEY=VALUE ([]: there is nothing to compare)",
    )
    xlabel: Text = option("variant", "label of the axis of variants")
    scale: float = option(1.0, "factor of trainer.num_iterations", gt=0, le=10**6)
    num_workers: int = option(2, "runs at a time, each on one thread", ge=1, le=1024, may_change=True)


class Config(Options):
    name: Name = option(
        "dark_room-a2c", "name of the run: its folder under histories/, logs/ and videos/", stages="all"
    )
    histories: Annotated[list[Name], OneOrMore] = option(
        ["dark_room-a2c"],
        "name of the histories that stages two and three read; a list of several is a mixture",
        stages="2, 3, ilql, awr, export",
    )
    run: Name = option(
        "dark_room-a2c",
        "name of the run whose models are rolled out, or whose critic a policy is extracted from",
        stages="3, awr",
    )
    root: PathName = option(
        ".", "folder that holds histories/, logs/ and videos/; relative to the project", stages="all"
    )
    seed: int = option(0, "seed of everything random except the split of tasks", ge=0, le=10**9, stages="all")
    num_threads: int = option(0, "CPU threads of PyTorch (0: all cores)", ge=0, le=1024, may_change=True, stages="all")
    format: Literal["txt", "npz"] = option("txt", "file format of the export", stages="export")
    device: DeviceConfig = group(DeviceConfig, "where tensors live, and their precision", "all")
    env: AnyEnv = group(DarkRoomConfig, "the world", "all")
    tasks: TasksConfig = group(TasksConfig, "training and held-out tasks", "all")
    source: AnySource = group(A2CConfig, "source agents, and the pace of stage one", "1")
    data: DataConfig = group(DataConfig, "which part of the histories is learned from", "2, ilql, awr")
    model: GPTConfig = group(GPTConfig, "the sequence model", "2, 3, ilql, awr")
    objective: ObjectiveConfig = group(ObjectiveConfig, "what the model learns to predict", "2")
    optimizer: AnyOptimizer = group(AdamWConfig, "how the model's parameters are updated", "2, ilql, awr")
    trainer: TrainerConfig = group(TrainerConfig, "the gradient loop: budget, batches, memory", "2, ilql, awr")
    encoder: EncoderConfig = group(EncoderConfig, "the trunk of a critic", "ilql")
    decoder: DecoderConfig = group(DecoderConfig, "the heads of a critic", "ilql")
    critic: CriticConfig = group(CriticConfig, "what values are, and how they are learned", "ilql")
    awr: AwrConfig = group(AwrConfig, "how a policy is extracted from values", "awr")
    evals: EvalsConfig = group(EvalsConfig, "evaluations during training", "1, 2, ilql, awr")
    checkpoints: CheckpointsConfig = group(CheckpointsConfig, "what survives a crash", "1, 2, ilql, awr")
    summaries: SummariesConfig = group(SummariesConfig, "what TensorBoard shows of training", "1, 2, ilql, awr")
    policy: PolicyConfig = group(PolicyConfig, "how the model acts", "2, 3, ilql, awr")
    evaluation: EvaluationConfig = group(EvaluationConfig, "the in-context protocol", "3")
    study: StudyConfig = group(StudyConfig, "a comparison of many runs", "study")
    search: SearchConfig = group(SearchConfig, "the search over options of the source", "search")

    def folder(self, kind: str) -> Path:
        """Folder of the run under `kind`: histories, logs or videos."""
        return PROJECT / self.root / kind / self.name

    @property
    def histories_folders(self) -> list[Path]:
        """Histories that stage two reads."""
        return [PROJECT / self.root / "histories" / name for name in self.histories]

    @property
    def run_folder(self) -> Path:
        """Logs of the run with the model that stage three evaluates."""
        return PROJECT / self.root / "logs" / self.run

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_rules(self)
        return self
