"""Every option of the project: its type, range and meaning here, its default in `conf/*.yaml`.

`load_config(overrides)` composes the YAML groups with Hydra and checks the result; command line, notebooks, search and
tests all get their `Config` from it. A field has no default here: every default is written out in YAML.
"""

import dataclasses
import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from src.conflicts import check_conflicts
from src.contracts import ConfigError, Json

PROJECT = Path(__file__).resolve().parent.parent
CONF = Path(__file__).resolve().parent / "conf"


def _train_tasks(size: int) -> int:
    return round((size**2 - 1) * 57 / 80)  # the split of the 80 goals of a 9 x 9 room, for any room


OmegaConf.register_new_resolver("train_tasks", _train_tasks, replace=True)


def option(
    meaning: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    choices: Sequence[str] = (),
    may_change: bool = False,
) -> Any:
    """Declare an option: `low <= value <= high`, `value > above`, or one of `choices`. `may_change` marks what a
    continued run may set anew, because it does not touch what the run computes."""
    limits = {"low": low, "high": high, "above": above, "choices": tuple(choices)}
    return dataclasses.field(metadata={"meaning": meaning, "may_change": may_change, **limits})


@dataclass
class EnvConfig:
    name: str = option("rules of the world; the preset `env=` sets all of this group", choices=("dark_room",))
    variant: str = option("label of the preset, used in run names")
    size: int = option("side of the room in cells", low=2, high=64)
    random_start: bool = option("start each episode on a random cell instead of the centre")
    terminate_on_goal: bool = option("reaching the goal ends the episode")
    max_episode_steps: int = option("env steps after which an episode is truncated", low=1, high=255)


@dataclass
class TasksConfig:
    num_train: int = option("tasks with source agents; all others are held out", low=2)
    seed: int = option("seed of the split into training and held-out tasks", low=0, high=10**9)


@dataclass
class SourceConfig:
    name: str = option("source algorithm", choices=("a2c",))
    num_learners: int = option("independent learners per training task", low=1)
    num_envs: int = option("environments per learner; each is one history row", low=1)
    num_env_steps: int = option("env steps per learner, all its environments together", low=1)
    history_steps: int = option("env steps per learner that are recorded, counted from the start", low=1)
    vectorization: str = option(
        "tensor: all environments step as tensors in this process; process: each lives in a process of its own",
        choices=("tensor", "process"),
    )
    hidden_size: int = option("width of the embedding that actor and critic share", low=1)
    rollout_len: int = option("env steps per environment between two updates (n of the n-step returns)", low=1)
    learning_rate: float = option("Adam's learning rate", above=0)
    adam_beta1: float = option("Adam's decay of the mean of gradients", low=0, high=0.9999)
    adam_beta2: float = option("Adam's decay of the mean of squares", low=0, high=0.99999)
    adam_eps: float = option("Adam's epsilon", above=0)
    max_gradient_norm: float = option("gradient norm clip, for each learner by itself", above=0)
    entropy_coefficient: float = option("weight of the entropy bonus", low=0)
    value_coefficient: float = option("weight of the value loss", low=0)
    discount: float = option("discount factor of the returns", low=0, high=1)
    checkpoint_interval: int = option("env steps per environment between checkpoints", low=1, may_change=True)
    log_interval: int = option("updates between log lines and TensorBoard points", low=1, may_change=True)
    per_agent_curves: bool = option("also write one TensorBoard curve per agent", may_change=True)
    videos_per_task: int = option("learners per task that get a video of their own (0: none)", low=0, may_change=True)


@dataclass
class DataConfig:
    history_len: int = option("use the first so many env steps per learner (0: all recorded)", low=0)
    keep_every: int = option("keep every k-th episode of a history, so that progress shows inside a window", low=1)
    min_final_success: float = option(
        "leave out learners whose success over the last tenth of their life is lower", low=0, high=1
    )
    num_validation_tasks: int = option("training tasks set aside to choose the best checkpoint", low=0)


@dataclass
class ModelConfig:
    tokens: str = option(
        "transition: one token per step with previous obs, action, reward and current obs; "
        "interleaved: three tokens per step, reward, state, action",
        choices=("transition", "interleaved"),
    )
    position: str = option(
        "position code: env time step embedding, learned absolute, rotary, or none",
        choices=("env_time", "learned", "rope", "none"),
    )
    add_env_time: bool = option("add the env time step embedding to another position code")
    obs_encoding: str = option(
        "cell: one embedding per cell; coordinates: row and column embeddings added", choices=("cell", "coordinates")
    )
    max_size: int = option("largest room side the coordinate tables cover", low=2, high=64)
    context_len: int = option("env steps in the context, across episodes", low=2)
    embed_dim: int = option("width of the residual stream", low=1)
    num_layers: int = option("transformer blocks", low=1)
    num_heads: int = option("attention heads; must divide model.embed_dim", low=1)
    ff_dim: int = option("width of the feed-forward layer", low=1)
    attention_dropout: float = option("dropout on attention weights", low=0, high=0.99)
    residual_dropout: float = option("dropout on what a block adds", low=0, high=0.99)
    embedding_dropout: float = option("dropout on token embeddings", low=0, high=0.99)


@dataclass
class ObjectiveConfig:
    name: str = option("ad: predict the source's next action at every step", choices=("ad",))
    label_smoothing: float = option("probability mass spread over all actions", low=0, high=0.99)


@dataclass
class OptimizerConfig:
    name: str = option("update rule", choices=("adam", "adamw"))
    learning_rate: float = option("peak learning rate", above=0)
    final_learning_rate: float = option("learning rate at the end of the cosine", low=0)
    warmup_updates: int = option("updates of linear warm-up before the cosine", low=0)
    schedule_updates: int = option("updates until the cosine ends (0: trainer.num_updates)", low=0)
    beta1: float = option("decay of the mean of gradients", low=0, high=0.9999)
    beta2: float = option("decay of the mean of squares", low=0, high=0.99999)
    eps: float = option("Adam's epsilon", above=0)
    weight_decay: float = option("decoupled weight decay of matrices (adamw only)", low=0)
    max_gradient_norm: float = option("gradient norm clip", above=0)


@dataclass
class TrainerConfig:
    num_updates: int = option("gradient updates", low=1)
    batch_size: int = option("windows per update", low=1)
    log_interval: int = option("updates between log lines and TensorBoard points", low=1, may_change=True)
    checkpoint_interval: int = option("updates between checkpoints", low=1, may_change=True)
    keep_checkpoints: int = option("newest checkpoints to keep", low=1, may_change=True)
    evaluation_interval: int = option("updates between in-context evaluations", low=1)
    evaluation_steps: int = option("env steps per stream of such an evaluation", low=1)
    evaluation_streams: int = option("streams per task of such an evaluation", low=1)


@dataclass
class EvaluationConfig:
    checkpoint: str = option("which checkpoint of stage two to roll out", choices=("best", "last"))
    num_episodes: int = option("episodes per stream", low=2)
    num_streams: int = option("streams per held-out task", low=1)
    num_train_streams: int = option("streams per training task", low=1)
    decoding: str = option("sampled: draw actions at evaluation.temperature; greedy", choices=("sampled", "greedy"))
    temperature: float = option("temperature of sampled decoding", above=0)
    context_kept: float = option("part of a full context that is read anew when it is rebuilt", low=0.01, high=0.99)
    num_bootstrap: int = option("bootstrap resamples of the intervals", low=100)
    confidence: float = option("coverage of the intervals", low=0.5, high=0.999)
    videos: bool = option("write the videos of the model beside the source agent", may_change=True)


@dataclass
class SearchConfig:
    num_trials: int = option("trials in all; a repeated call adds only what is missing", low=1, may_change=True)
    goal_row: int = option("row of the goal that is searched on", low=0)
    goal_column: int = option("column of the goal that is searched on", low=0)
    num_learners: int = option("learners per trial, averaged", low=1)
    num_env_steps: int = option("env steps per learner", low=1)


@dataclass(kw_only=True)
class Config:
    name: str = option("name of the run: its folder under histories/, logs/ and videos/")
    histories: str = option("name of the histories that stages two and three read")
    run: str = option("name of the run whose model stage three rolls out")
    root: str = option("folder that holds histories/, logs/ and videos/; relative to the project")
    seed: int = option("seed of all that is random but the split of tasks", low=0, high=10**9)
    device: str = option("where tensors live; auto takes a GPU when there is one", choices=("auto", "cpu", "cuda"))
    num_threads: int = option("CPU threads of PyTorch (0: all cores)", low=0, high=1024, may_change=True)
    format: str = option("export_histories: form of the export", choices=("txt", "npz"))
    env: EnvConfig
    tasks: TasksConfig
    source: SourceConfig
    data: DataConfig
    model: ModelConfig
    objective: ObjectiveConfig
    optimizer: OptimizerConfig
    trainer: TrainerConfig
    evaluation: EvaluationConfig
    search: SearchConfig

    def folder(self, kind: str) -> Path:
        """The run's folder under `kind`: histories, logs or videos."""
        return PROJECT / self.root / kind / self.name

    @property
    def histories_folder(self) -> Path:
        """The histories stages two and three read."""
        return PROJECT / self.root / "histories" / self.histories

    @property
    def run_folder(self) -> Path:
        """The logs of the run whose model stage three rolls out."""
        return PROJECT / self.root / "logs" / self.run


def load_config(overrides: Iterable[str] = ()) -> Config:
    """Compose and check the configuration; `overrides` as on the command line: `["env.size=7", "seed=1"]`.

    Raises `ConfigError` for an unknown or missing key, a wrong type or range, or options that conflict."""
    try:
        with initialize_config_dir(config_dir=str(CONF), version_base="1.3"):
            composed = compose("config", overrides=list(overrides))
        typed = OmegaConf.merge(OmegaConf.structured(Config), composed)
        if missing := OmegaConf.missing_keys(typed):
            raise ConfigError(f"no value for {', '.join(sorted(missing))}")
        config = cast(Config, OmegaConf.to_object(typed))
    except (HydraException, OmegaConfBaseException, ValueError) as error:  # ValueError: a number as a preset
        raise ConfigError(_in_one_line(error)) from error
    for key, value, field in walk(config):
        if field.type is bool and not isinstance(OmegaConf.select(composed, key), bool):
            raise ConfigError(f"{key}={OmegaConf.select(composed, key)}: must be true or false")
        _check_range(key, value, field)
    check_conflicts(config)
    return config


def walk(config: Any, prefix: str = "") -> Iterable[tuple[str, Any, dataclasses.Field[Any]]]:
    """Every option as (dotted key, value, declaration), in order of declaration."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from walk(value, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", value, field


def allowed(field: dataclasses.Field[Any]) -> str:
    """What a declaration allows, in words: its type and range."""
    limits = field.metadata
    if limits["choices"]:
        return f"one of {', '.join(limits['choices'])}"
    if field.type is str:
        return "a path" if field.name == "root" else "a name without '/' or a leading dot"
    signs = {"above": ">", "low": ">=", "high": "<="}
    bounds = " and ".join(f"{sign} {limits[key]:g}" for key, sign in signs.items() if limits[key] is not None)
    return f"{cast(type, field.type).__name__} {bounds}".strip()


def _check_range(key: str, value: Any, field: dataclasses.Field[Any]) -> None:
    limits = field.metadata
    if limits["choices"]:
        good = value in limits["choices"]
    elif isinstance(value, (int, float)):
        holds = {"low": operator.ge, "high": operator.le, "above": operator.gt}
        bounded = all(limits[bound] is None or within(value, limits[bound]) for bound, within in holds.items())
        good = math.isfinite(value) and bounded
    else:
        good = key == "root" or (value != "" and "/" not in value and not value.startswith("."))
    if not good:
        raise ConfigError(f"{key}={value}: must be {allowed(field)}")


def check_same(config: Config, recorded: Json, sections: Iterable[str], where: str) -> None:
    """Raise `ConfigError` unless `config` equals the `recorded` one (as `dataclasses.asdict` gives it) in `sections`.

    A run is described by one configuration: each stage takes the same options and is compared with what the stage
    before it wrote. Options that `may_change` are not compared."""
    for key, value, field in walk(config):
        section, _, leaf = key.partition(".")
        if section not in sections or field.metadata["may_change"]:
            continue
        before = recorded.get(section, {}).get(leaf) if leaf else recorded.get(section)
        if before != value:
            raise ConfigError(
                f"{where} was made with {key}={before}, and this configuration says {value}: "
                f"give {key}={before} here too, or another name="
            )


def _in_one_line(error: Exception) -> str:
    """The first line of a Hydra or OmegaConf error with the key it is about."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines[0].startswith("Could not override"):  # what Hydra goes on to say does not help here
        return f"{lines[0]} There is no such option; --help lists all"
    key = next((line for line in lines[1:] if line.startswith("full_key:")), "")
    return f"{key.replace('full_key:', '').strip()}: {lines[0]}" if key else " ".join(lines)
