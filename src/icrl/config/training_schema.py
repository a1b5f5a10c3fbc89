"""The options of what trains: source agents, the gradient loop, and the services that both loops share.

An iteration of stage one is an unroll of every environment and the updates on it; of stage two, one update.
"""

import re
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import model_validator

from icrl.config.options import DeviceName, Name, OneOrMore, Options, PathName, Rate, option, refuse, refuse_both
from icrl.config.source_rules import check_source

_OPTIMIZER = "update rule; the preset `optimizer=` sets all of this group"
_NAME = "source algorithm; the preset `source=` sets all of this group"


class SourceConfig(Options):
    """What every source has; each adds its own."""

    name: str = option("", _NAME)
    num_learners: int = option(10, "independent learners per training task", ge=1, le=10**5)
    num_envs: int = option(10, "environments per learner; each is one history row", ge=1, le=10**6)
    num_iterations: int = option(0, "iterations of unroll and updates (0: what source.num_env_steps needs)", ge=0)
    num_env_steps: int = option(
        30000, "env steps per learner, all its environments together (0: what source.num_iterations make)", ge=0
    )
    history_steps: int = option(30000, "env steps per learner that are recorded, counted from the start", ge=1)
    vectorization: Literal["tensor", "process"] = option(
        "tensor",
        "tensor: all environments step as tensors in this process; process: each by itself, in worker processes",
    )
    num_workers: int = option(0, "worker processes (0: one for each core it may use)", ge=0, may_change=True)
    unroll_length: float = option(
        10.0,
        "env steps per environment and iteration (n of n-step returns); a fraction is carried over to the next",
        ge=1,
        le=10**6,
    )
    initial_collect_steps: int = option(
        0, "env steps per learner, all its environments together, before its first update", ge=0
    )
    num_updates_per_train_iter: int = option(1, "sweeps of updates over an iteration's transitions", ge=1, le=10**6)
    mini_batch_length: int = option(
        0, "env steps in a window that is learned from (0: the unroll, or 1 of what replay keeps)", ge=0
    )
    mini_batch_size: int = option(0, "windows per learner and update (0: all there are)", ge=0)
    async_unroll: bool = option(False, "a process of its own plays, while this one learns from what it played before")
    unroll_queue_size: int = option(
        2, "unrolls that it may be ahead; unroll i acts on what had been learned by iteration i - this", ge=1, le=10**4
    )
    unroll_parameter_update_period: int = option(1, "iterations between two transfers of what was learned", ge=1)
    unroll_step_interval: float = option(
        0.0, "least seconds between two env steps there", ge=0, le=3600, may_change=True
    )
    discount: float = option(0.99, "discount factor of the returns", ge=0, le=1)
    evaluate: bool = option(False, "also play evaluation episodes amid training (evals.*), and keep the best agents")
    per_agent_curves: bool = option(False, "also write one TensorBoard curve per agent", may_change=True)
    videos_per_task: int = option(1, "learners per task that get a video of their own (0: none)", ge=0, may_change=True)
    max_videos: int = option(64, "learners in all that get one at most", ge=1, may_change=True)

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_source(self)
        return self

    @property
    def replays(self) -> bool:
        """Whether it learns from all that is kept of its experience, not from the newest unroll alone."""
        return False

    @property
    def draws(self) -> bool:
        """Whether mini-batches are drawn from what is kept, instead of dealt out in sweeps."""
        return False

    @property
    def has_offline(self) -> bool:
        """Whether it learns from histories of other learners too."""
        return False

    @property
    def pretraining(self) -> int:
        """Iterations before the first env step."""
        return 0


class NetworkConfig(SourceConfig):
    """Sources with a network, trained by Adam."""

    hidden_size: int = option(128, "width of the embedding of observations", ge=1, le=2**16)
    learning_rate: Annotated[Any, Rate(ge=0)] = option(0.003, "Adam's learning rate")
    adam_beta1: float = option(0.9, "Adam's decay of the mean of gradients", ge=0, le=0.9999)
    adam_beta2: float = option(0.999, "Adam's decay of the mean of squares", ge=0, le=0.99999)
    adam_eps: float = option(1e-06, "Adam's epsilon", gt=0)
    max_gradient_norm: float = option(0.5, "gradient norm clip, for each learner by itself", gt=0)


class A2CConfig(NetworkConfig):
    name: Literal["a2c"] = option("a2c", _NAME)
    entropy_coefficient: Annotated[Any, Rate(ge=0)] = option(0.01, "weight of the entropy bonus")
    value_coefficient: Annotated[Any, Rate(ge=0)] = option(0.99, "weight of the value loss")


class PPOConfig(A2CConfig):
    name: Literal["ppo"] = option("ppo", _NAME)
    clip_range: Annotated[Any, Rate(gt=0)] = option(
        0.2, "the ratio of new to old probability is clipped to 1 - this .. 1 + this"
    )
    gae_lambda: float = option(0.95, "lambda of generalised advantage estimation", ge=0, le=1)
    normalize_advantage: bool = option(
        False, "scale each learner's advantages in a mini-batch to mean 0 and deviation 1"
    )


class ReplayConfig(SourceConfig):
    """Sources that can learn from what was played long ago, or by others."""

    replay_buffer_length: int = option(1000, "newest env steps of each environment that are kept to learn from", ge=1)
    whole_replay_buffer_training: bool = option(
        True,
        "each sweep learns from all that is kept once, in windows counted from the newest step backwards; else one "
        "mini-batch is drawn from it",
    )
    clear_replay_buffer: bool = option(True, "learn from the newest unroll alone and forget it then")
    priority_replay: bool = option(False, "draw windows of large TD error more often")
    priority_replay_alpha: Annotated[Any, Rate(ge=0)] = option(
        0.7, "priority is (|TD error| + source.priority_replay_eps)^alpha"
    )
    priority_replay_beta: Annotated[Any, Rate(ge=0)] = option(
        0.4, "a drawn window's weight is priority^(-beta), over the largest drawn"
    )
    priority_replay_eps: Annotated[Any, Rate(gt=0)] = option(1e-06, "added to the TD error of every window")
    offline_buffer_dir: Name = option("none", "name of histories of the same tasks to learn from too (none: no others)")
    offline_buffer_length: int = option(0, "env steps of each row of theirs to use (0: all)", ge=0)
    offline_buffer_range: Literal["first", "last"] = option(
        "first", "which end of a row source.offline_buffer_length counts from"
    )
    offline_buffer_every: int = option(1, "use every k-th episode of these", ge=1)
    offline_loss_weight: Annotated[Any, Rate(ge=0)] = option(
        1.0, "weight of their loss beside that of one's own experience"
    )
    rl_train_after_update_steps: int = option(
        0, "iterations that learn from them alone, before the first env step", ge=0
    )
    rl_train_every_update_steps: int = option(
        1, "own experience is learned from every so many iterations, theirs in all; it is collected in all", ge=1
    )

    @property
    def replays(self) -> bool:
        return not self.clear_replay_buffer

    @property
    def draws(self) -> bool:
        return not self.whole_replay_buffer_training

    @property
    def has_offline(self) -> bool:
        return self.offline_buffer_dir != "none"

    @property
    def pretraining(self) -> int:
        return self.rl_train_after_update_steps


class QLearningConfig(ReplayConfig):
    name: Literal["q_learning"] = option("q_learning", _NAME)
    learning_rate: Annotated[Any, Rate(ge=0, le=1)] = option(0.5, "step size towards the target")
    epsilon: Annotated[Any, Rate(ge=0, le=1)] = option(
        {"kind": "linear", "progress": "percent", "points": [[0, 1.0], [0.7, 0.0]]},
        "probability of a uniformly random action",
    )
    initial_value: float = option(0.0, "Q of everything at the start; above what can be had makes optimistic explorers")


class DQNConfig(ReplayConfig, NetworkConfig):
    name: Literal["dqn"] = option("dqn", _NAME)
    epsilon: Annotated[Any, Rate(ge=0, le=1)] = option(
        {"kind": "linear", "progress": "percent", "points": [[0, 1.0], [0.7, 0.0]]},
        "probability of a uniformly random action",
    )
    double: bool = option(True, "the network chooses the next action and the target network values it (double DQN)")
    target_update_period: int = option(1, "updates between two copies of the network to the target network", ge=1)
    target_update_rate: Annotated[Any, Rate(gt=0, le=1)] = option(
        0.05, "how far each copy moves the target network towards the network"
    )


class NoiseDistillationConfig(SourceConfig):
    name: Literal["noise_distillation"] = option("noise_distillation", _NAME)
    noise: Annotated[Any, Rate(ge=0, le=1)] = option(
        {"kind": "linear", "progress": "percent", "points": [[0, 1.0], [0.9, 0.0]]},
        "probability of a uniformly random action instead of the expert's",
    )
    max_performance: float = option(
        1.0,
        "how far from the return of chance (0) to the optimal one (1) the planner comes at best: the noise never falls "
        "below what gives this",
        gt=0,
        le=1,
    )
    teacher: Name = option("none", "name of the stage-one run whose trained agents are the experts (none: the planner)")


class SearcherConfig(SourceConfig):
    name: Literal["searcher"] = option("searcher", _NAME)
    noise: Annotated[Any, Rate(ge=0, le=1)] = option(
        0.03, "probability of a uniformly random action instead of the searcher's"
    )


class OptimalConfig(SourceConfig):
    name: Literal["optimal"] = option("optimal", _NAME)


class RandomConfig(SourceConfig):
    name: Literal["random"] = option("random", _NAME)


SOURCES: dict[str, type[SourceConfig]] = {
    kind.model_fields["name"].default: kind
    for kind in (
        *(A2CConfig, PPOConfig, QLearningConfig, DQNConfig),
        *(NoiseDistillationConfig, SearcherConfig, OptimalConfig, RandomConfig),
    )
}


def source_of(recorded: Any) -> SourceConfig:
    """Options of the source in a `recorded` configuration, as manifests and checkpoints keep it."""
    return SOURCES[recorded["source"]["name"]](**recorded["source"])


class OptimizerConfig(Options):
    """Options of every optimizer; each adds its own."""

    name: str = option("", _OPTIMIZER)
    initialize: bool = option(
        False,
        "start anew where critic.initial_model_prefix is gone on from, instead of with the state of its optimizer",
        stages="ilql",
    )
    learning_rate: Annotated[Any, Rate(ge=0)] = option(
        {
            "kind": "cosine",
            "progress": "percent",
            "initial": 0.004,
            "final": 4e-05,
            "time": 1,
            "warmup": {"until": 0.03, "start": 0},
        },
        "learning rate of all parameters",
    )
    max_gradient_norm: Annotated[Any, Rate(gt=0)] = option(
        1.0, "gradient norm clip; with mtadam, of each term by itself"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, value in self:
            refuse(
                isinstance(value, dict) and value.get("progress") == "env_steps",
                f"optimizer.{name}={value}: the updates of trainer.num_iterations take no env steps; progress must be "
                "percent, iterations or updates",
            )
        return self


class SGDConfig(OptimizerConfig):
    name: Literal["sgd"] = option("sgd", _OPTIMIZER)
    momentum: float = option(0.9, "decay of the sum of gradients", ge=0, le=0.9999)


class AdamConfig(OptimizerConfig):
    name: Literal["adam", "radam"] = option("adam", _OPTIMIZER)
    beta1: float = option(0.9, "decay of the mean of gradients", ge=0, le=0.9999)
    beta2: float = option(0.99, "decay of the mean of squares", ge=0, le=0.99999)
    epsilon: float = option(1e-8, "added to the root of the mean of squares", gt=0)


class AdamWConfig(AdamConfig):
    name: Literal["adamw", "lamb"] = option("adamw", _OPTIMIZER)  # type: ignore[assignment]
    weight_decay: Annotated[Any, Rate(ge=0)] = option(0.01, "decoupled weight decay of matrices")


class MTAdamConfig(AdamWConfig):
    name: Literal["mtadam"] = option("mtadam", _OPTIMIZER)  # type: ignore[assignment]
    beta3: float = option(0.9, "decay of the mean of each term's gradient norm", ge=0, le=0.9999)


OPTIMIZERS: dict[str, type[OptimizerConfig]] = {
    "sgd": SGDConfig,
    "adam": AdamConfig,
    "radam": AdamConfig,
    "adamw": AdamWConfig,
    "lamb": AdamWConfig,
    "mtadam": MTAdamConfig,
}


class DeviceConfig(Options):
    """Where, and how precisely, is computed."""

    type: DeviceName = option(
        "auto",
        "where tensors live: auto (a GPU where there is one), cpu, cuda, or cuda:N, the GPU with the number N",
        may_change=True,
    )
    dtype: Literal["float32", "float64"] = option(
        "float32", "precision of parameters", stages="2, 3, ilql, awr, players"
    )
    amp_dtype: Literal["none", "bfloat16", "float16"] = option(
        "none", "mixed precision: matrix products in bfloat16, or in float16 with a loss scaler", stages="2, ilql, awr"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(
            re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.type) is None,
            f"device.type={self.type}: must be auto, cpu, cuda or cuda:N",
        )
        refuse(
            self.amp_dtype != "none" and self.dtype == "float64",
            f"device.amp_dtype={self.amp_dtype} needs device.dtype=float32, not {self.dtype}",
        )
        return self


class TrainerConfig(Options):
    num_iterations: int = option(2000, "gradient updates", ge=1)
    mini_batch_size: int = option(32, "windows per update, over all processes and accumulation steps", ge=1)
    mini_batch_length: int = option(0, "env steps in a window (0: model.context_len)", ge=0)
    gradient_accumulation_steps: int = option(
        1, "parts that an update's windows are worked off in, to save memory", ge=1
    )
    evaluate: bool = option(True, "evaluate in context amid training (evals.*), and keep the best checkpoint")
    activation_checkpointing: bool = option(
        False, "keep a block's input alone and compute the rest anew, to save memory"
    )
    compile: bool = option(False, "torch.compile: slower to start, faster to run; needs a C++ compiler")
    empty_cache: bool = option(False, "give unused GPU memory back after every update; slow", may_change=True)
    parameter_check_interval: int = option(
        0,
        "updates between comparisons of the parameters of all processes under torchrun (0: none)",
        ge=0,
        may_change=True,
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        parts, size = self.gradient_accumulation_steps, self.mini_batch_size
        refuse(
            size % parts != 0, f"trainer.gradient_accumulation_steps={parts} must divide trainer.mini_batch_size={size}"
        )
        return self


class EvalsConfig(Options):
    num_evals: int = option(5, "evaluations amid training, evenly spread (0: evals.eval_interval says)", ge=0)
    eval_interval: int = option(0, "iterations between evaluations (0: evals.num_evals says)", ge=0)
    num_eval_episodes: int = option(128, "episodes per task (stage one: per learner)", ge=1, le=10**6)
    num_eval_environments: int = option(
        8, "streams these are spread over; the first ceil(episodes / streams) of each count", ge=1, le=10**5
    )
    sample_probability: float = option(
        1.0, "probability of drawing an action from the policy, else its most probable one", ge=0, le=1
    )
    async_eval: bool = option(True, "evaluate in a process of its own while training goes on", may_change=True)
    timeout: float = option(
        3600.0, "seconds without an answer, then that process is restarted", gt=0, le=10**6, may_change=True
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse_both("evals", ("num_evals", self.num_evals), ("eval_interval", self.eval_interval))
        refuse(
            self.num_eval_environments > self.num_eval_episodes,
            f"evals.num_eval_environments={self.num_eval_environments} is more than "
            f"evals.num_eval_episodes={self.num_eval_episodes}",
        )
        return self


class SavingConfig(Options):
    """What every program saves."""

    num_checkpoints: int = option(
        10, "checkpoints, evenly spread (0: checkpoints.checkpoint_interval says)", ge=0, may_change=True
    )
    checkpoint_interval: int = option(
        0, "iterations between checkpoints (both 0: one at the end alone)", ge=0, may_change=True
    )
    keep_last: int = option(2, "newest checkpoints to keep", ge=1, may_change=True)
    on_crash: Literal["save", "skip", "ask"] = option(
        "save",
        "what to do with the state of a run that fails: save it as crash-*.pt, skip, ask at the terminal",
        may_change=True,
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        number, interval = self.num_checkpoints, self.checkpoint_interval
        refuse_both("checkpoints", ("num_checkpoints", number), ("checkpoint_interval", interval))
        return self


class CheckpointsConfig(SavingConfig):
    snapshot_interval: int = option(
        0,
        "samples (windows that were learned from) between snapshots, which are kept for good (0: none)",
        ge=0,
        may_change=True,
        stages="2, ilql, awr",
    )


class CurvesConfig(Options):
    """What every program shows."""

    num_summaries: int = option(
        100, "TensorBoard points per curve (0: summaries.summary_interval says)", ge=0, may_change=True
    )
    summary_interval: int = option(0, "iterations between points (both 0: none)", ge=0, may_change=True)
    flush_secs: int = option(10, "seconds until points are on disk at the latest", ge=1, le=10**6, may_change=True)
    max_queue: int = option(100, "points that may wait before they reach the disk", ge=1, may_change=True)
    code_snapshots: Annotated[list[PathName], OneOrMore] = option(
        [], "files, relative to the project, to keep as texts of the run", may_change=True
    )
    profiled_iterations: int = option(0, "iterations to trace with torch.profiler (0: none)", ge=0, may_change=True)

    details: ClassVar[tuple[str, ...]] = ()  # options that add to the points of a curve

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse_both("summaries", ("num_summaries", self.num_summaries), ("summary_interval", self.summary_interval))
        for name in self.details:
            value = getattr(self, name)
            refuse(
                value not in (False, "none") and not self.num_summaries and not self.summary_interval,
                f"summaries.{name}={value} shows nothing with summaries.num_summaries=0 and "
                "summaries.summary_interval=0",
            )
        return self


class SummariesConfig(CurvesConfig):
    summarize_first_interval: bool = option(
        False, "also a point for every iteration of the first interval", may_change=True
    )
    grads_and_vars: bool = option(False, "norm and histogram of every parameter and its gradient", may_change=True)
    gradient_noise_scale: Literal["none", "alternative", "paper"] = option(
        "none",
        "estimate of the batch size from which on larger ones help little, from halves or tenths of the batch",
        may_change=True,
        stages="2",
    )
    action_distributions: bool = option(False, "mean probability of every action, and entropy", may_change=True)
    outputs: bool = option(False, "histograms of the network's outputs", may_change=True)
    debug: bool = option(False, "histograms of observations, actions, rewards that are learned from", may_change=True)

    details = (
        *("summarize_first_interval", "grads_and_vars", "gradient_noise_scale"),
        *("action_distributions", "outputs", "debug"),
    )
