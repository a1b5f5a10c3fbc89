"""Root of the configuration of all stages: one group of options for each component, declared beside its code, and the
rules across groups. Each message of a rule names both fields: `$key` in it stands for key=value.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import model_validator

from icrl.config.options import (
    Choice,
    Name,
    OneOrMore,
    PathName,
    RootOptions,
    Seed,
    group,
    option,
    presets_option,
    seed_option,
    with_values,
)
from icrl.contracts import ConfigError
from icrl.data.windows import DataConfig
from icrl.envs import env_options
from icrl.envs.core import EnvConfig
from icrl.envs.rooms import DarkRoomConfig
from icrl.envs.tasks import TasksConfig, regions
from icrl.evaluation.kinds import policy_kind
from icrl.evaluation.protocol import EvaluationConfig
from icrl.nn.encoders import OF_ROWS
from icrl.nn.gpt import GPTConfig
from icrl.nn.gpt_policy import PolicyConfig
from icrl.objectives import objective_options
from icrl.objectives.imitation import ObjectiveConfig
from icrl.runs.checkpoint import CheckpointsConfig
from icrl.runs.device import DeviceConfig
from icrl.runs.evaluations import EvalsConfig
from icrl.runs.files import PROJECT
from icrl.runs.metrics import SummariesConfig
from icrl.sources import source_options
from icrl.sources.a2c import A2CConfig
from icrl.sources.options import SourceConfig
from icrl.training.optimizers import AdamWConfig, OptimizerConfig, rules
from icrl.training.policy_gradient import FinetuneConfig
from icrl.training.updates import TrainerConfig

CHOICES: dict[str, Callable[[], Mapping[str, Any]]] = {  # groups with several classes, chosen by `name`
    "env": env_options,
    "source": source_options,
    "objective": objective_options,
    "optimizer": lambda: {name: rule.options for name, rule in rules().items()},
}
AnyEnv = Annotated[EnvConfig, Choice("env", CHOICES["env"])]
AnySource = Annotated[SourceConfig, Choice("source", CHOICES["source"])]
AnyObjective = Annotated[ObjectiveConfig, Choice("objective", CHOICES["objective"])]
AnyOptimizer = Annotated[OptimizerConfig, Choice("optimizer", CHOICES["optimizer"])]

_FITS = "2, 3"  # stages with a gradient loop
Rule = Callable[["Config"], Iterator[str]]  # messages about options that conflict
_RULES: list[Rule] = []  # of extensions
# Further lines of extensions about an error in the options of a root, of a program, from its command line.
FURTHER: list[Callable[[ConfigError, type[Any], str, Sequence[str]], list[str]]] = []


def rule(conflicts: Rule) -> Rule:
    """Decorator of a rule across groups."""
    _RULES.append(conflicts)
    return conflicts


class Config(RootOptions):
    page: ClassVar[str] = "config"

    name: Name = option("dark_room-a2c", "name of the run: its folder under histories/, logs/, videos/", stages="all")
    histories: Annotated[list[Name], OneOrMore] = option(
        ["dark_room-a2c"], "histories that stages two to four read; a list of several is a mixture", stages="2, 3, 4"
    )
    run: Name = option("dark_room-a2c", "name of the run whose models are rolled out or fine-tuned", stages="3, 4")
    root: PathName = option(".", "folder of histories/, logs/ and videos/; relative to the project", stages="all")
    presets: PathName = presets_option("all")
    module: Annotated[list[PathName], OneOrMore] = option(
        [],
        "Python file of your own, or installed module, that is imported first and registers worlds, sources, "
        "objectives and encoders; a list of several",
        may_change=True,
        stages="all",
    )
    code: dict[str, str] = option(
        {},
        "checksum of each file of your own that an option names; filled in, not to be set",
        may_change=True,
        stages="all",
    )
    seed: Seed = seed_option("seed of everything random except the split of tasks", "all")
    num_threads: int = option(0, "CPU threads of PyTorch (0: all cores)", ge=0, le=1024, may_change=True, stages="all")
    device: DeviceConfig = group(DeviceConfig, "device of tensors, and precision", "all")
    env: AnyEnv = group(DarkRoomConfig, "the world", "all")
    tasks: TasksConfig = group(TasksConfig, "training and held-out tasks", "all")
    source: AnySource = group(A2CConfig, "source agents and pace of stage one", "1")
    data: DataConfig = group(DataConfig, "part of the histories that is used", _FITS)
    model: GPTConfig = group(GPTConfig, "the sequence model", "2, 3, 4")
    objective: AnyObjective = group(ObjectiveConfig, "what the model learns to predict", "2")
    optimizer: AnyOptimizer = group(AdamWConfig, "how parameters are updated", "2")
    trainer: TrainerConfig = group(TrainerConfig, "budget, batches, memory of training", "2, 3")
    finetune: FinetuneConfig = group(FinetuneConfig, "policy gradients over whole trials", "3")
    evals: EvalsConfig = group(EvalsConfig, "evaluations during training", f"1, {_FITS}")
    checkpoints: CheckpointsConfig = group(CheckpointsConfig, "checkpoints and snapshots", f"1, {_FITS}")
    summaries: SummariesConfig = group(SummariesConfig, "what TensorBoard shows of training", "1, 2, 3")
    policy: PolicyConfig = group(PolicyConfig, "how the model acts", "2, 3, 4")
    evaluation: EvaluationConfig = group(EvaluationConfig, "the in-context protocol", "4")

    def folder(self, kind: str) -> Path:
        """Folder of the run under `kind`: histories, logs or videos."""
        return PROJECT / self.root / kind / self.name

    @property
    def histories_folders(self) -> list[Path]:
        """Histories that the stages after the first read."""
        return [PROJECT / self.root / "histories" / name for name in self.histories]

    @property
    def run_folder(self) -> Path:
        """Logs of the run with the model that trials start from and that stage four evaluates."""
        return PROJECT / self.root / "logs" / self.run

    @model_validator(mode="after")
    def _check(self) -> Self:
        rules = (_in_splits, _in_lengths, _in_model, _in_training)
        for conflicts in (*_RULES, *rules):
            for message in conflicts(self):
                raise ConfigError(with_values(message, self))
        policy_kind(self.policy, self.finetune)  # raises, too
        return self


def _in_splits(config: Config) -> Iterator[str]:
    """Conflicts between held-out, development and training tasks."""
    data, tasks = config.data, config.tasks
    if data.development == "region" and tasks.split not in regions():
        yield f"$data.development needs a region that is held out: $tasks.split must be one of {', '.join(regions())}"
    if data.development != "random" and not data.num_development_tasks:
        yield "$data.development sets tasks aside, so $data.num_development_tasks must be above 0"
    if data.development == "random" and 0 < tasks.num_train <= data.num_development_tasks:
        fewer = f"give data.num_development_tasks={max(1, tasks.num_train // 3)}"
        yield f"$data.num_development_tasks must be below $tasks.num_train: {fewer}"
    if config.source.task_change and getattr(config.env, "task_visible", False):
        yield "$source.task_change changes the task that $env.task_visible shows: give source.task_change=0"


def _in_lengths(config: Config) -> Iterator[str]:
    """Conflicts of lengths: histories must be long enough for their use. Those of a mixture are in its stores."""
    names, data, source, shorter = config.histories, config.data, config.source, config.trainer.mini_batch_length
    length, key = shorter or config.model.context_len, "trainer.mini_batch_length" if shorter else "model.context_len"
    if len(set(names)) < max(len(names), 1):
        yield "$histories: must be one name, or several different ones"
    if data.weights and len(data.weights) != len(names):
        yield "$data.weights must have one weight for each of $histories, or be empty"
    if 0 < data.kept_steps < length:
        yield f"$data.kept_steps is less than ${key}: give data.kept_steps={2 * length}, or 0 for all"
    if len(names) > 1:
        return
    if data.history_len > source.history_steps:
        yield "$data.history_len is more than $source.history_steps: give data.history_len=0 for all of them"
    horizon, steps = config.env.max_episode_steps, source.history_steps // source.num_envs
    row_len = (data.history_len or source.history_steps) // source.num_envs
    if config.policy.model != "finetuned" or config.finetune.start == "gpt":  # windows of kept episodes are learned
        row_len = min(row_len, -(-row_len // min(data.keep_every)) * horizon)  # at most
    if length > row_len:
        yield (
            f"${key} is longer than a history: {row_len} steps per row, from $data.history_len or "
            f"$source.history_steps, $source.num_envs and $data.keep_every: give {key}={max(2, row_len)}, or more steps"
        )
    if (needed := (config.evaluation.num_episodes + 1) * horizon) > steps:
        enough = int(round(math.ceil(needed / source.unroll_length) * source.unroll_length, 6)) * source.num_envs
        longer = f"source.num_env_steps={enough} source.history_steps={enough}"
        other = f"evaluation.num_episodes={steps // horizon - 1}" if steps // horizon > 2 else longer
        yield (
            f"$evaluation.num_episodes needs {needed} steps per row, $env.max_episode_steps for each episode, but "
            f"$source.history_steps gives {steps}: give {other}"
        )


def _in_model(config: Config) -> Iterator[str]:
    model, length = config.model, config.trainer.mini_batch_length
    side = "size" if hasattr(config.env, "size") else "width"
    if model.obs_encoding in OF_ROWS and model.max_size < getattr(config.env, side, 0):
        least = getattr(config.env, side)
        yield f"$model.max_size must be at least $env.{side} with $model.obs_encoding: give model.max_size={least}"
    if length > model.context_len:
        yield "$trainer.mini_batch_length is longer than $model.context_len: give trainer.mini_batch_length=0"
    if model.position == "learned" and 0 < length < model.context_len:
        yield "$trainer.mini_batch_length leaves positions untrained with $model.position and $model.context_len"


def _in_training(config: Config) -> Iterator[str]:
    trainer = config.trainer
    if config.env.unplayable and trainer.evaluate:
        yield "$trainer.evaluate plays episodes, which is impossible in $env.name; give trainer.evaluate=false"
    if trainer.evaluate and not config.data.num_development_tasks:
        yield "$trainer.evaluate needs $data.num_development_tasks above 0: raise it, or give trainer.evaluate=false"
    if config.evaluation.tasks == "development" and not config.data.num_development_tasks:
        yield "$evaluation.tasks needs $data.num_development_tasks above 0: give data.num_development_tasks=1, or more"
    if not trainer.evaluate and config.evaluation.checkpoint == "best":
        yield "$trainer.evaluate saves no best checkpoint; give evaluation.checkpoint=last"
