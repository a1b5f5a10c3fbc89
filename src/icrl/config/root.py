"""Every option of the project but those of worlds (`env_schema.py`) and training (`training_schema.py`)."""

from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from icrl.config.env_schema import ENVS, DarkRoomConfig, EnvConfig
from icrl.config.offline_schema import AwrConfig, CriticConfig, DecoderConfig, EncoderConfig
from icrl.config.options import Name, OneOrMore, Options, PathName, Text, group, option, refuse
from icrl.config.paths import PROJECT
from icrl.config.rules import check_rules
from icrl.config.training_schema import (
    OPTIMIZERS,
    SOURCES,
    A2CConfig,
    AdamWConfig,
    CheckpointsConfig,
    DeviceConfig,
    EvalsConfig,
    OptimizerConfig,
    SourceConfig,
    SummariesConfig,
    TrainerConfig,
)

if TYPE_CHECKING:
    AnyEnv, AnySource, AnyOptimizer = EnvConfig, SourceConfig, OptimizerConfig
else:
    AnyEnv = Annotated[reduce(or_, ENVS.values()), Field(discriminator="name")]
    AnySource = Annotated[reduce(or_, SOURCES.values()), Field(discriminator="name")]
    AnyOptimizer = Annotated[reduce(or_, OPTIMIZERS.values()), Field(discriminator="name")]


LEAST_TEMPERATURE = 0.001  # a colder one overflows, and is greedy


class TasksConfig(Options):
    split: Literal["random", "quadrant", "ring", "checkerboard", "list"] = option(
        "random",
        "which tasks are held out. random: the last of a seeded permutation; where tasks have a place in a room, "
        "quadrant: those strictly on one side of its middle row and of its middle column, the quadrant seed % 4; ring: "
        "those at its walls; checkerboard: those on cells of one colour, seed % 2; list: tasks.held_out",
    )
    num_train: int = option(57, "tasks with source agents, at least 2 (0: all that are not held out)", ge=0)
    num_held_out: int = option(
        0,
        "tasks to be learned in context alone, for the test (0: all that have no source agents, or with another split "
        "than random all that it holds out)",
        ge=0,
    )
    held_out: Annotated[list[Annotated[int, Field(ge=0)]], OneOrMore] = option(
        [], "numbers of the tasks to hold out, where tasks.split is list"
    )
    seed: int = option(0, "seed of the split into training and held-out tasks", ge=0, le=10**9)

    @model_validator(mode="after")
    def _check(self) -> Self:
        held_out, listed = self.held_out, self.split == "list"
        refuse(self.num_train == 1, "tasks.num_train=1: must be at least 2, or 0 for all tasks that are not held out")
        refuse(
            self.split == "random" and not self.num_train and not self.num_held_out,
            "tasks.num_train=0 and tasks.num_held_out=0: tasks.split=random needs the number of one of them",
        )
        refuse(
            listed and not held_out,
            "tasks.split=list holds out the tasks numbered in tasks.held_out, which is []: must have at least one",
        )
        refuse(
            held_out and not listed,
            f"tasks.held_out={held_out} is for tasks.split=list, and this is tasks.split={self.split}",
        )
        refuse(len(set(held_out)) < len(held_out), f"tasks.held_out={held_out}: no task may be there twice")
        return self


class DataConfig(Options):
    weights: list[Annotated[float, Field(gt=0)]] = option(
        [], "how likely a window is of each of several histories, up to a factor ([]: as the number of its windows)"
    )
    history_len: int = option(0, "use the first so many env steps per learner (0: all recorded)", ge=0)
    keep_every: Annotated[list[Annotated[int, Field(ge=1, le=1000)]], OneOrMore] = option(
        [1, 4, 16], "keep every k-th episode of a history, so that progress shows inside a window; for each k of a list"
    )
    kept_steps: int = option(
        320, "use the first so many steps of what each k leaves, so that each has as many windows (0: all)", ge=0
    )
    min_final_success: float = option(
        0.5, "leave out learners whose success over the last tenth of their life is lower", ge=0, le=1
    )
    num_development_tasks: int = option(
        4, "training tasks that the model does not learn from, on which recipes and checkpoints are chosen", ge=0
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(not self.keep_every, "data.keep_every=[] keeps nothing: must have at least one number")
        refuse(
            len(set(self.keep_every)) < len(self.keep_every),
            f"data.keep_every={self.keep_every}: no number may be there twice",
        )
        return self


class ModelConfig(Options):
    tokens: Literal["transition", "interleaved", "cross"] = option(
        "transition",
        "transition: one token per step with previous obs, action, reward and current obs; "
        "interleaved: three tokens per step, reward, state, action; "
        "cross: reward, state and action as streams of their own that read each other by cross-attention",
    )
    position: Literal["env_time", "learned", "sinusoidal", "rope", "none"] = option(
        "env_time", "position code: env time step embedding, learned absolute, sinusoidal, rotary, or none"
    )
    add_env_time: bool = option(True, "add the env time step embedding to another position code")
    obs_encoding: Literal["cell", "coordinates", "framed"] = option(
        "coordinates",
        "cell: one embedding per observation; coordinates: those of row and column added, and of what else is seen; "
        "framed: coordinates in a grid of side model.max_size that the room lies in, anywhere while training and in "
        "its middle otherwise, so that a larger room can be read (where the world is no square room, both: cell)",
    )
    max_size: int = option(17, "largest room side the coordinate tables cover", ge=2, le=64)
    induction: bool = option(
        False, "a first layer that looks up what came of earlier visits to the observation that is seen now"
    )
    context_len: int = option(160, "env steps in the context, across episodes", ge=2, le=10**6)
    embed_dim: int = option(64, "width of the residual stream", ge=1, le=2**16)
    num_layers: int = option(4, "transformer blocks", ge=1, le=1000)
    num_heads: int = option(4, "attention heads; must divide model.embed_dim", ge=1, le=2**16)
    ff_dim: int = option(256, "width of the feed-forward layer", ge=1, le=2**20)
    activation: Literal["relu", "gelu"] = option("gelu", "of the feed-forward layer")
    attention_dropout: float = option(0.0, "dropout on attention weights", ge=0, le=0.99)
    residual_dropout: float = option(0.0, "dropout on what a block adds", ge=0, le=0.99)
    embedding_dropout: float = option(0.0, "dropout on token embeddings", ge=0, le=0.99)

    @model_validator(mode="after")
    def _check(self) -> Self:
        heads, width = self.num_heads, self.embed_dim
        refuse(width % heads != 0, f"model.num_heads={heads} must divide model.embed_dim={width}")
        refuse(
            self.position == "rope" and width // heads % 2 == 1,
            f"model.position=rope needs an even model.embed_dim / model.num_heads, not {width} / {heads}",
        )
        refuse(
            self.position == "env_time" and not self.add_env_time,
            "model.position=env_time is the env time embedding, which model.add_env_time=false leaves out",
        )
        return self


class ObjectiveConfig(Options):
    name: Literal["ad", "dpt"] = option(
        "ad",
        "ad: predict the source's next action at every step; dpt: the optimal action of a planner that knows the task",
    )
    label_smoothing: float = option(0.0, "probability mass spread over all actions", ge=0, le=0.99)
    weighting: Literal["none", "improvement", "recency"] = option(
        "improvement",
        "how much a step of a history counts. none: all alike; improvement: in proportion to what the rest of its "
        "episode brought, over what it brought others at that age; recency: in proportion to its age",
    )
    discount: float = option(0.9, "discount factor of what the rest of an episode brought", ge=0, le=1)
    max_weight: float = option(20.0, "largest weight of a step where weighting is improvement", ge=1, le=1000)


class PolicyConfig(Options):
    model: Name = option(
        "gpt",
        "what acts: gpt, the model of stage two; critic, the values alone; or an extracted policy, by its "
        "awr.experiment_name",
    )
    advantage_scale: float = option(
        0.0, "what is added to the logits for each unit of advantage that the critic sees (0: it is not asked)", ge=0
    )
    temperature: float = option(1.0, "temperature that actions are drawn at", ge=0.001)
    context_kept: float = option(0.75, "part of a full context that is read anew when it is rebuilt", ge=0.01, le=0.99)


class EvaluationConfig(Options):
    checkpoint: Literal["best", "last"] = option("last", "which checkpoint of stage two to roll out")
    tasks: Literal["test", "development"] = option(
        "test",
        "test: the held-out tasks, and development tasks beside them; development: these in their place, to choose a "
        "recipe by",
    )
    num_episodes: int = option(40, "episodes per stream", ge=2, le=10**6)
    num_streams: int = option(20, "streams per held-out task, or development task in its place", ge=1, le=10**5)
    num_train_tasks: int = option(
        0, "tasks that the model learned from and that are played too, to compare (0: all)", ge=0
    )
    num_train_streams: int = option(
        4, "streams of each of these, and of each development task beside held-out ones", ge=1, le=10**5
    )
    sample_probability: float = option(
        1.0, "probability of drawing an action at policy.temperature, else the most probable one", ge=0, le=1
    )
    temperatures: list[Annotated[float, Field(ge=0)]] = option(
        [0.0, 0.5], "temperatures that the held-out tasks are played at too, to compare (0: the most probable action)"
    )
    ablations: bool = option(
        True, "play the held-out tasks with a context that was blanked, shuffled, wiped, or another task's too"
    )
    num_probe_streams: int = option(
        4, "streams per held-out task for each of these temperatures and contexts", ge=1, le=10**5
    )
    num_bootstrap: int = option(2000, "bootstrap resamples of the intervals", ge=100, le=10**5)
    confidence: float = option(0.95, "coverage of the intervals", ge=0.5, le=0.999)
    videos: bool = option(True, "write the videos of the model beside the source agent", may_change=True)

    @model_validator(mode="after")
    def _check(self) -> Self:
        temperatures = self.temperatures
        refuse(
            any(0 < temperature < LEAST_TEMPERATURE for temperature in temperatures),
            f"evaluation.temperatures={temperatures}: must be 0 or at least {LEAST_TEMPERATURE}",
        )
        refuse(
            len(set(temperatures)) < len(temperatures),
            f"evaluation.temperatures={temperatures}: no number may be there twice",
        )
        return self


class SearchConfig(Options):
    num_trials: int = option(
        20, "trials in all; a repeated call adds only what is missing", ge=1, le=10**4, may_change=True
    )
    goal_row: int = option(0, "row of the goal that is searched on", ge=0, le=63)
    goal_column: int = option(0, "column of the goal that is searched on", ge=0, le=63)
    num_learners: int = option(8, "learners per trial, averaged", ge=1, le=10**5)
    num_env_steps: int = option(20000, "env steps per learner", ge=1, le=10**8)


class StudyConfig(Options):
    question: Text = option("none", "what the comparison is about: the title of its picture")
    measure: Literal["success", "returns"] = option("success", "what variants are judged by")
    seeds: list[Annotated[int, Field(ge=0, le=10**9)]] = option(
        [0, 1, 2], "every variant is trained with each of these seeds"
    )
    variants: list[dict[str, Any]] = option(
        [],
        "what is compared: each a `label`, what it changes (`set`, a list of KEY=VALUE) and, if need be, its place `x` "
        "(a number or a name) on the axis, `line`, the name of the line through such places, and `test`, the worlds it "
        "is evaluated in: "
        "for each a label and a list of KEY=VALUE ([]: there is nothing to compare)",
    )
    xlabel: Text = option("variant", "what the axis is called that variants stand on")
    scale: float = option(
        1.0, "trainer.num_iterations is multiplied by this: larger takes longer and says more", gt=0, le=10**6
    )
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
        "dark_room-a2c", "name of the run whose models are rolled out, or extracted from", stages="3, awr"
    )
    root: PathName = option(
        ".", "folder that holds histories/, logs/ and videos/; relative to the project", stages="all"
    )
    seed: int = option(0, "seed of all that is random but the split of tasks", ge=0, le=10**9, stages="all")
    num_threads: int = option(0, "CPU threads of PyTorch (0: all cores)", ge=0, le=1024, may_change=True, stages="all")
    format: Literal["txt", "npz"] = option("txt", "form of the export", stages="export")
    device: DeviceConfig = group(DeviceConfig, "where tensors live, and their precision", "all")
    env: AnyEnv = group(DarkRoomConfig, "the world", "all")
    tasks: TasksConfig = group(TasksConfig, "training and held-out tasks", "all")
    source: AnySource = group(A2CConfig, "source agents, and the pace of stage one", "1")
    data: DataConfig = group(DataConfig, "which part of the histories is learned from", "2, ilql, awr")
    model: ModelConfig = group(ModelConfig, "the sequence model", "2, 3, ilql, awr")
    objective: ObjectiveConfig = group(ObjectiveConfig, "what the model learns to predict", "2")
    optimizer: AnyOptimizer = group(AdamWConfig, "how the model's parameters are updated", "2, ilql, awr")
    trainer: TrainerConfig = group(TrainerConfig, "the gradient loop: budget, batches, memory", "2, ilql, awr")
    encoder: EncoderConfig = group(EncoderConfig, "the trunk of a critic", "ilql")
    decoder: DecoderConfig = group(DecoderConfig, "the heads of a critic", "ilql")
    critic: CriticConfig = group(CriticConfig, "what values are, and how they are learned", "ilql")
    awr: AwrConfig = group(AwrConfig, "how a policy is extracted from values", "awr")
    evals: EvalsConfig = group(EvalsConfig, "evaluations amid training", "1, 2, ilql, awr")
    checkpoints: CheckpointsConfig = group(CheckpointsConfig, "what survives a crash", "1, 2, ilql, awr")
    summaries: SummariesConfig = group(SummariesConfig, "what TensorBoard shows of training", "1, 2, ilql, awr")
    policy: PolicyConfig = group(PolicyConfig, "how the model acts", "2, 3, ilql, awr")
    evaluation: EvaluationConfig = group(EvaluationConfig, "the in-context protocol", "3")
    study: StudyConfig = group(StudyConfig, "a comparison of many runs", "study")
    search: SearchConfig = group(SearchConfig, "the search over options of the source", "search")

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

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_rules(self)
        return self
