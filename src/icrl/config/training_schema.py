"""The options of what trains: source agents, the gradient loop, and the services that both loops share.

An iteration of stage one is an unroll of every environment and the updates on it; of stage two, one update.
"""

from dataclasses import dataclass
from typing import Any

from icrl.config.options import option, rate


@dataclass
class SourceConfig:
    """What every source has; each adds its own."""

    name: str = option(
        "source algorithm; the preset `source=` sets all of this group",
        choices=("a2c", "ppo", "q_learning", "dqn", "noise_distillation", "searcher", "optimal", "random"),
    )
    num_learners: int = option("independent learners per training task", low=1, high=10**5)
    num_envs: int = option("environments per learner; each is one history row", low=1, high=10**6)
    num_iterations: int = option("iterations of unroll and updates (0: what source.num_env_steps needs)", low=0)
    num_env_steps: int = option(
        "env steps per learner, all its environments together (0: what source.num_iterations make)", low=0
    )
    history_steps: int = option("env steps per learner that are recorded, counted from the start", low=1)
    vectorization: str = option(
        "tensor: all environments step as tensors in this process; process: each by itself, in worker processes",
        choices=("tensor", "process"),
    )
    num_workers: int = option("worker processes (0: one for each core it may use)", low=0, may_change=True)
    unroll_length: float = option(
        "env steps per environment and iteration (n of n-step returns); a fraction is carried over to the next",
        low=1,
        high=10**6,
    )
    initial_collect_steps: int = option(
        "env steps per learner, all its environments together, before its first update", low=0
    )
    num_updates_per_train_iter: int = option("sweeps of updates over an iteration's transitions", low=1, high=10**6)
    mini_batch_length: int = option(
        "env steps in a window that is learned from (0: the unroll, or 1 of what replay keeps)", low=0
    )
    mini_batch_size: int = option("windows per learner and update (0: all there are)", low=0)
    async_unroll: bool = option("a process of its own plays, while this one learns from what it played before")
    unroll_queue_size: int = option(
        "unrolls that it may be ahead; unroll i acts on what had been learned by iteration i - this", low=1, high=10**4
    )
    unroll_parameter_update_period: int = option("iterations between two transfers of what was learned", low=1)
    unroll_step_interval: float = option("least seconds between two env steps there", low=0, high=3600, may_change=True)
    discount: float = option("discount factor of the returns", low=0, high=1)
    evaluate: bool = option("also play evaluation episodes amid training (evals.*), and keep the best agents")
    per_agent_curves: bool = option("also write one TensorBoard curve per agent", may_change=True)
    videos_per_task: int = option("learners per task that get a video of their own (0: none)", low=0, may_change=True)
    max_videos: int = option("learners in all that get one at most", low=1, may_change=True)


@dataclass
class NetworkConfig(SourceConfig):
    """Sources with a network, trained by Adam."""

    hidden_size: int = option("width of the embedding of observations", low=1, high=2**16)
    learning_rate: Any = rate("Adam's learning rate", low=0)
    adam_beta1: float = option("Adam's decay of the mean of gradients", low=0, high=0.9999)
    adam_beta2: float = option("Adam's decay of the mean of squares", low=0, high=0.99999)
    adam_eps: float = option("Adam's epsilon", above=0)
    max_gradient_norm: float = option("gradient norm clip, for each learner by itself", above=0)


@dataclass
class A2CConfig(NetworkConfig):
    entropy_coefficient: Any = rate("weight of the entropy bonus", low=0)
    value_coefficient: Any = rate("weight of the value loss", low=0)


@dataclass
class PPOConfig(A2CConfig):
    clip_range: Any = rate("the ratio of new to old probability is clipped to 1 - this .. 1 + this", above=0)
    gae_lambda: float = option("lambda of generalised advantage estimation", low=0, high=1)
    normalize_advantage: bool = option("scale each learner's advantages in a mini-batch to mean 0 and deviation 1")


@dataclass
class ReplayConfig(SourceConfig):
    """Sources that can learn from what was played long ago, or by others."""

    replay_buffer_length: int = option("newest env steps of each environment that are kept to learn from", low=1)
    whole_replay_buffer_training: bool = option(
        "each sweep learns from all that is kept once, in windows counted from the newest step backwards; else one "
        "mini-batch is drawn from it"
    )
    clear_replay_buffer: bool = option("learn from the newest unroll alone and forget it then")
    priority_replay: bool = option("draw windows of large TD error more often")
    priority_replay_alpha: Any = rate("priority is (|TD error| + source.priority_replay_eps)^alpha", low=0)
    priority_replay_beta: Any = rate("a drawn window's weight is priority^(-beta), over the largest drawn", low=0)
    priority_replay_eps: Any = rate("added to the TD error of every window", above=0)
    offline_buffer_dir: str = option("name of histories of the same tasks to learn from too (none: no others)")
    offline_buffer_length: int = option("env steps of each row of theirs to use (0: all)", low=0)
    offline_buffer_range: str = option(
        "which end of a row source.offline_buffer_length counts from", choices=("first", "last")
    )
    offline_buffer_every: int = option("use every k-th episode of these", low=1)
    offline_loss_weight: Any = rate("weight of their loss beside that of one's own experience", low=0)
    rl_train_after_update_steps: int = option("iterations that learn from them alone, before the first env step", low=0)
    rl_train_every_update_steps: int = option(
        "own experience is learned from every so many iterations, theirs in all; it is collected in all", low=1
    )


@dataclass
class QLearningConfig(ReplayConfig):
    learning_rate: Any = rate("step size towards the target", low=0, high=1)
    epsilon: Any = rate("probability of a uniformly random action", low=0, high=1)
    initial_value: float = option("Q of everything at the start; above what can be had makes optimistic explorers")


@dataclass
class DQNConfig(ReplayConfig, NetworkConfig):
    epsilon: Any = rate("probability of a uniformly random action", low=0, high=1)
    double: bool = option("the network chooses the next action and the target network values it (double DQN)")
    target_update_period: int = option("updates between two copies of the network to the target network", low=1)
    target_update_rate: Any = rate("how far each copy moves the target network towards the network", above=0, high=1)


@dataclass
class NoiseDistillationConfig(SourceConfig):
    noise: Any = rate("probability of a uniformly random action instead of the expert's", low=0, high=1)
    max_performance: float = option(
        "how far from the return of chance (0) to the optimal one (1) the planner comes at best: the noise never falls "
        "below what gives this",
        above=0,
        high=1,
    )
    teacher: str = option("name of the stage-one run whose trained agents are the experts (none: the planner)")


@dataclass
class SearcherConfig(SourceConfig):
    noise: Any = rate("probability of a uniformly random action instead of the searcher's", low=0, high=1)


SOURCES: dict[str, type[SourceConfig]] = {
    "a2c": A2CConfig,
    "ppo": PPOConfig,
    "q_learning": QLearningConfig,
    "dqn": DQNConfig,
    "noise_distillation": NoiseDistillationConfig,
    "searcher": SearcherConfig,
    "optimal": SourceConfig,
    "random": SourceConfig,
}


def source_of(recorded: Any) -> SourceConfig:
    """The options of the source in a `recorded` configuration, as manifests and checkpoints keep it."""
    return SOURCES[recorded["source"]["name"]](**recorded["source"])


OPTIMIZERS = {  # what each reads, beside the learning rate and the gradient norm
    "sgd": ("momentum",),
    "adam": ("beta1", "beta2", "epsilon"),
    "adamw": ("beta1", "beta2", "epsilon", "weight_decay"),
    "radam": ("beta1", "beta2", "epsilon"),
    "lamb": ("beta1", "beta2", "epsilon", "weight_decay"),
    "mtadam": ("beta1", "beta2", "beta3", "epsilon", "weight_decay"),
}
IDLE = {  # what is written where an optimizer does not read it
    "momentum": 0.0,
    "beta1": 0.0,
    "beta2": 0.0,
    "beta3": 0.0,
    "epsilon": 1e-8,
    "weight_decay": 0.0,
}


@dataclass
class OptimizerConfig:
    name: str = option("update rule; the preset `optimizer=` sets all of this group", choices=tuple(OPTIMIZERS))
    initialize: bool = option(
        "start anew where critic.initial_model_prefix is gone on from, instead of with the state of its optimizer",
        stages="ilql",
    )
    learning_rate: Any = rate("learning rate of all parameters", low=0)
    momentum: float = option("decay of the sum of gradients (sgd; others: 0)", low=0, high=0.9999)
    beta1: float = option("decay of the mean of gradients (sgd: 0)", low=0, high=0.9999)
    beta2: float = option("decay of the mean of squares (sgd: 0)", low=0, high=0.99999)
    beta3: float = option("decay of the mean of each term's gradient norm (mtadam; others: 0)", low=0, high=0.9999)
    epsilon: float = option("added to the root of the mean of squares (sgd: 1e-8)", above=0)
    weight_decay: Any = rate("decoupled weight decay of matrices (adamw, lamb, mtadam; others: 0)", low=0)
    max_gradient_norm: Any = rate("gradient norm clip; with mtadam, of each term by itself", above=0)


@dataclass
class DeviceConfig:
    """Where, and how precisely, is computed."""

    type: str = option(
        "where tensors live: auto (a GPU where there is one), cpu, cuda, or cuda:N, the GPU with the number N",
        may_change=True,
    )
    dtype: str = option("precision of parameters", choices=("float32", "float64"), stages="2, 3, ilql, awr, players")
    amp_dtype: str = option(
        "mixed precision: matrix products in bfloat16, or in float16 with a loss scaler",
        choices=("none", "bfloat16", "float16"),
        stages="2, ilql, awr",
    )


@dataclass
class TrainerConfig:
    num_iterations: int = option("gradient updates", low=1)
    mini_batch_size: int = option("windows per update, over all processes and accumulation steps", low=1)
    mini_batch_length: int = option("env steps in a window (0: model.context_len)", low=0)
    gradient_accumulation_steps: int = option("parts that an update's windows are worked off in, to save memory", low=1)
    evaluate: bool = option("evaluate in context amid training (evals.*), and keep the best checkpoint")
    activation_checkpointing: bool = option("keep a block's input alone and compute the rest anew, to save memory")
    compile: bool = option("torch.compile: slower to start, faster to run; needs a C++ compiler")
    empty_cache: bool = option("give unused GPU memory back after every update; slow", may_change=True)
    parameter_check_interval: int = option(
        "updates between comparisons of the parameters of all processes under torchrun (0: none)",
        low=0,
        may_change=True,
    )


@dataclass
class EvalsConfig:
    num_evals: int = option("evaluations amid training, evenly spread (0: evals.eval_interval says)", low=0)
    eval_interval: int = option("iterations between evaluations (0: evals.num_evals says)", low=0)
    num_eval_episodes: int = option("episodes per task (stage one: per learner)", low=1, high=10**6)
    num_eval_environments: int = option(
        "streams these are spread over; the first ceil(episodes / streams) of each count", low=1, high=10**5
    )
    sample_probability: float = option(
        "probability of drawing an action from the policy, else its most probable one", low=0, high=1
    )
    async_eval: bool = option("evaluate in a process of its own while training goes on", may_change=True)
    timeout: float = option(
        "seconds without an answer, then that process is restarted", above=0, high=10**6, may_change=True
    )


@dataclass
class SavingConfig:
    """What every program saves."""

    num_checkpoints: int = option(
        "checkpoints, evenly spread (0: checkpoints.checkpoint_interval says)", low=0, may_change=True
    )
    checkpoint_interval: int = option(
        "iterations between checkpoints (both 0: one at the end alone)", low=0, may_change=True
    )
    keep_last: int = option("newest checkpoints to keep", low=1, may_change=True)
    on_crash: str = option(
        "what to do with the state of a run that fails: save it as crash-*.pt, skip, ask at the terminal",
        choices=("save", "skip", "ask"),
        may_change=True,
    )


@dataclass
class CheckpointsConfig(SavingConfig):
    snapshot_interval: int = option(
        "samples (windows that were learned from) between snapshots, which are kept for good (0: none)",
        low=0,
        may_change=True,
        stages="2, ilql, awr",
    )


@dataclass
class CurvesConfig:
    """What every program shows."""

    num_summaries: int = option(
        "TensorBoard points per curve (0: summaries.summary_interval says)", low=0, may_change=True
    )
    summary_interval: int = option("iterations between points (both 0: none)", low=0, may_change=True)
    flush_secs: int = option("seconds until points are on disk at the latest", low=1, high=10**6, may_change=True)
    max_queue: int = option("points that may wait before they reach the disk", low=1, may_change=True)
    code_snapshots: list[str] = option("files, relative to the project, to keep as texts of the run", may_change=True)
    profiled_iterations: int = option("iterations to trace with torch.profiler (0: none)", low=0, may_change=True)


@dataclass
class SummariesConfig(CurvesConfig):
    summarize_first_interval: bool = option("also a point for every iteration of the first interval", may_change=True)
    grads_and_vars: bool = option("norm and histogram of every parameter and its gradient", may_change=True)
    gradient_noise_scale: str = option(
        "estimate of the batch size from which on larger ones help little, from halves or tenths of the batch",
        choices=("none", "alternative", "paper"),
        may_change=True,
        stages="2",
    )
    action_distributions: bool = option("mean probability of every action, and entropy", may_change=True)
    outputs: bool = option("histograms of the network's outputs", may_change=True)
    debug: bool = option("histograms of observations, actions, rewards that are learned from", may_change=True)
