"""Every option of the project but those of worlds (`env_schema.py`) and training (`training_schema.py`)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from icrl.config.env_schema import EnvConfig
from icrl.config.offline_schema import AwrConfig, CriticConfig, DecoderConfig, EncoderConfig
from icrl.config.options import group, option
from icrl.config.paths import PROJECT
from icrl.config.training_schema import (
    CheckpointsConfig,
    DeviceConfig,
    EvalsConfig,
    OptimizerConfig,
    SourceConfig,
    SummariesConfig,
    TrainerConfig,
)


@dataclass
class TasksConfig:
    split: str = option(
        "which tasks are held out. random: the last of a seeded permutation; where tasks have a place in a room, "
        "quadrant: those strictly on one side of its middle row and of its middle column, the quadrant seed % 4; ring: "
        "those at its walls; checkerboard: those on cells of one colour, seed % 2; list: tasks.held_out",
        choices=("random", "quadrant", "ring", "checkerboard", "list"),
    )
    num_train: int = option("tasks with source agents, at least 2 (0: all that are not held out)", low=0)
    num_held_out: int = option(
        "tasks to be learned in context alone, for the test (0: all that have no source agents, or with another split "
        "than random all that it holds out)",
        low=0,
    )
    held_out: list[int] = option("numbers of the tasks to hold out, where tasks.split is list", low=0)
    seed: int = option("seed of the split into training and held-out tasks", low=0, high=10**9)


@dataclass
class DataConfig:
    weights: list[float] = option(
        "how likely a window is of each of several histories, up to a factor ([]: as the number of its windows)",
        above=0,
    )
    history_len: int = option("use the first so many env steps per learner (0: all recorded)", low=0)
    keep_every: list[int] = option(
        "keep every k-th episode of a history, so that progress shows inside a window; for each k of a list",
        low=1,
        high=1000,
    )
    kept_steps: int = option(
        "use the first so many steps of what each k leaves, so that each has as many windows (0: all)", low=0
    )
    min_final_success: float = option(
        "leave out learners whose success over the last tenth of their life is lower", low=0, high=1
    )
    num_development_tasks: int = option(
        "training tasks that the model does not learn from, on which recipes and checkpoints are chosen", low=0
    )


@dataclass
class ModelConfig:
    tokens: str = option(
        "transition: one token per step with previous obs, action, reward and current obs; "
        "interleaved: three tokens per step, reward, state, action; "
        "cross: reward, state and action as streams of their own that read each other by cross-attention",
        choices=("transition", "interleaved", "cross"),
    )
    position: str = option(
        "position code: env time step embedding, learned absolute, sinusoidal, rotary, or none",
        choices=("env_time", "learned", "sinusoidal", "rope", "none"),
    )
    add_env_time: bool = option("add the env time step embedding to another position code")
    obs_encoding: str = option(
        "cell: one embedding per observation; coordinates: those of row and column added, and of what else is seen; "
        "framed: coordinates in a grid of side model.max_size that the room lies in, anywhere while training and in "
        "its middle otherwise, so that a larger room can be read (where the world is no square room, both: cell)",
        choices=("cell", "coordinates", "framed"),
    )
    max_size: int = option("largest room side the coordinate tables cover", low=2, high=64)
    induction: bool = option(
        "a first layer that looks up what came of earlier visits to the observation that is seen now"
    )
    context_len: int = option("env steps in the context, across episodes", low=2, high=10**6)
    embed_dim: int = option("width of the residual stream", low=1, high=2**16)
    num_layers: int = option("transformer blocks", low=1, high=1000)
    num_heads: int = option("attention heads; must divide model.embed_dim", low=1, high=2**16)
    ff_dim: int = option("width of the feed-forward layer", low=1, high=2**20)
    activation: str = option("of the feed-forward layer", choices=("relu", "gelu"))
    attention_dropout: float = option("dropout on attention weights", low=0, high=0.99)
    residual_dropout: float = option("dropout on what a block adds", low=0, high=0.99)
    embedding_dropout: float = option("dropout on token embeddings", low=0, high=0.99)


@dataclass
class ObjectiveConfig:
    name: str = option(
        "ad: predict the source's next action at every step; dpt: the optimal action of a planner that knows the task",
        choices=("ad", "dpt"),
    )
    label_smoothing: float = option("probability mass spread over all actions", low=0, high=0.99)
    weighting: str = option(
        "how much a step of a history counts. none: all alike; improvement: in proportion to what the rest of its "
        "episode brought, over what it brought others at that age; recency: in proportion to its age",
        choices=("none", "improvement", "recency"),
    )
    discount: float = option("discount factor of what the rest of an episode brought", low=0, high=1)
    max_weight: float = option("largest weight of a step where weighting is improvement", low=1, high=1000)


@dataclass
class PolicyConfig:
    model: str = option(
        "what acts: gpt, the model of stage two; critic, the values alone; or an extracted policy, by its "
        "awr.experiment_name"
    )
    advantage_scale: float = option(
        "what is added to the logits for each unit of advantage that the critic sees (0: it is not asked)", low=0
    )
    temperature: float = option("temperature that actions are drawn at", low=0.001)
    context_kept: float = option("part of a full context that is read anew when it is rebuilt", low=0.01, high=0.99)


@dataclass
class EvaluationConfig:
    checkpoint: str = option("which checkpoint of stage two to roll out", choices=("best", "last"))
    tasks: str = option(
        "test: the held-out tasks, and development tasks beside them; development: these in their place, to choose a "
        "recipe by",
        choices=("test", "development"),
    )
    num_episodes: int = option("episodes per stream", low=2, high=10**6)
    num_streams: int = option("streams per held-out task, or development task in its place", low=1, high=10**5)
    num_train_tasks: int = option(
        "tasks that the model learned from and that are played too, to compare (0: all)", low=0
    )
    num_train_streams: int = option(
        "streams of each of these, and of each development task beside held-out ones", low=1, high=10**5
    )
    sample_probability: float = option(
        "probability of drawing an action at policy.temperature, else the most probable one", low=0, high=1
    )
    temperatures: list[float] = option(
        "temperatures that the held-out tasks are played at too, to compare (0: the most probable action)", low=0
    )
    ablations: bool = option(
        "play the held-out tasks with a context that was blanked, shuffled, wiped, or another task's too"
    )
    num_probe_streams: int = option(
        "streams per held-out task for each of these temperatures and contexts", low=1, high=10**5
    )
    num_bootstrap: int = option("bootstrap resamples of the intervals", low=100, high=10**5)
    confidence: float = option("coverage of the intervals", low=0.5, high=0.999)
    videos: bool = option("write the videos of the model beside the source agent", may_change=True)


@dataclass
class SearchConfig:
    num_trials: int = option(
        "trials in all; a repeated call adds only what is missing", low=1, high=10**4, may_change=True
    )
    goal_row: int = option("row of the goal that is searched on", low=0, high=63)
    goal_column: int = option("column of the goal that is searched on", low=0, high=63)
    num_learners: int = option("learners per trial, averaged", low=1, high=10**5)
    num_env_steps: int = option("env steps per learner", low=1, high=10**8)


@dataclass
class StudyConfig:
    question: str = option("what the comparison is about: the title of its picture")
    measure: str = option("what variants are judged by", choices=("success", "returns"))
    seeds: list[int] = option("every variant is trained with each of these seeds", low=0, high=10**9)
    variants: list[Any] = option(
        "what is compared: each a `label`, what it changes (`set`, a list of KEY=VALUE) and, if need be, its place `x` "
        "(a number or a name) on the axis, `line`, the name of the line through such places, and `test`, the worlds it "
        "is evaluated in: "
        "for each a label and a list of KEY=VALUE ([]: there is nothing to compare)"
    )
    xlabel: str = option("what the axis is called that variants stand on")
    scale: float = option(
        "trainer.num_iterations is multiplied by this: larger takes longer and says more", above=0, high=10**6
    )
    num_workers: int = option("runs at a time, each on one thread", low=1, high=1024, may_change=True)


@dataclass(kw_only=True)
class Config:
    name: str = option("name of the run: its folder under histories/, logs/ and videos/", stages="all")
    histories: list[str] = option(
        "name of the histories that stages two and three read; a list of several is a mixture",
        stages="2, 3, ilql, awr, export",
    )
    run: str = option("name of the run whose models are rolled out, or extracted from", stages="3, awr")
    root: str = option("folder that holds histories/, logs/ and videos/; relative to the project", stages="all")
    seed: int = option("seed of all that is random but the split of tasks", low=0, high=10**9, stages="all")
    num_threads: int = option("CPU threads of PyTorch (0: all cores)", low=0, high=1024, may_change=True, stages="all")
    format: str = option("form of the export", choices=("txt", "npz"), stages="export")
    device: DeviceConfig = group("where tensors live, and their precision", stages="all")
    env: EnvConfig = group("the world", stages="all")
    tasks: TasksConfig = group("training and held-out tasks", stages="all")
    source: SourceConfig = group("source agents, and the pace of stage one", stages="1")
    data: DataConfig = group("which part of the histories is learned from", stages="2, ilql, awr")
    model: ModelConfig = group("the sequence model", stages="2, 3, ilql, awr")
    objective: ObjectiveConfig = group("what the model learns to predict", stages="2")
    optimizer: OptimizerConfig = group("how the model's parameters are updated", stages="2, ilql, awr")
    trainer: TrainerConfig = group("the gradient loop: budget, batches, memory", stages="2, ilql, awr")
    encoder: EncoderConfig = group("the trunk of a critic", stages="ilql")
    decoder: DecoderConfig = group("the heads of a critic", stages="ilql")
    critic: CriticConfig = group("what values are, and how they are learned", stages="ilql")
    awr: AwrConfig = group("how a policy is extracted from values", stages="awr")
    evals: EvalsConfig = group("evaluations amid training", stages="1, 2, ilql, awr")
    checkpoints: CheckpointsConfig = group("what survives a crash", stages="1, 2, ilql, awr")
    summaries: SummariesConfig = group("what TensorBoard shows of training", stages="1, 2, ilql, awr")
    policy: PolicyConfig = group("how the model acts", stages="2, 3, ilql, awr")
    evaluation: EvaluationConfig = group("the in-context protocol", stages="3")
    study: StudyConfig = group("a comparison of many runs", stages="study")
    search: SearchConfig = group("the search over options of the source", stages="search")

    def folder(self, kind: str) -> Path:
        """The run's folder under `kind`: histories, logs or videos."""
        return PROJECT / self.root / kind / self.name

    @property
    def histories_folders(self) -> list[Path]:
        """The histories stage two reads."""
        return [PROJECT / self.root / "histories" / name for name in self.histories]

    @property
    def run_folder(self) -> Path:
        """The logs of the run whose model stage three rolls out."""
        return PROJECT / self.root / "logs" / self.run
