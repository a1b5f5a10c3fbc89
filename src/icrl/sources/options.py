"""Options that all sources share."""

from typing import Annotated, Any, Literal, Self

from pydantic import model_validator

from icrl.config.options import Name, Options, Rate, option
from icrl.sources.rules import check_source

_NAME = "source algorithm; the preset `source=` sets all of this group"


class SourceConfig(Options):
    """Options of every source; each source adds its own."""

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
        0, "env steps in a training window (0: the unroll, or 1 with a replay buffer)", ge=0
    )
    mini_batch_size: int = option(0, "windows per learner and update (0: all)", ge=0)
    async_unroll: bool = option(False, "collect unrolls in another process while this one learns from earlier unrolls")
    unroll_queue_size: int = option(
        2,
        "unrolls that the other process may be ahead; unroll i uses the parameters of iteration i - this",
        ge=1,
        le=10**4,
    )
    unroll_parameter_update_period: int = option(
        1, "iterations between two transfers of parameters to the other process", ge=1
    )
    unroll_step_interval: float = option(
        0.0, "least seconds between two env steps of the other process", ge=0, le=3600, may_change=True
    )
    discount: float = option(0.99, "discount factor of the returns", ge=0, le=1)
    evaluate: bool = option(False, "also play evaluation episodes during training (evals.*), and keep the best agents")
    per_agent_curves: bool = option(False, "also write one TensorBoard curve per agent", may_change=True)
    videos_per_task: int = option(1, "learners per task that get a video of their own (0: none)", ge=0, may_change=True)
    max_videos: int = option(64, "most learners in all that get a video", ge=1, may_change=True)

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
    max_gradient_norm: float = option(0.5, "gradient norm clip, for each learner separately", gt=0)


class ReplayConfig(SourceConfig):
    """Sources that can learn from what was played long ago, or by others."""

    replay_buffer_length: int = option(1000, "newest env steps of each environment in the replay buffer", ge=1)
    whole_replay_buffer_training: bool = option(
        True,
        "each sweep covers the whole replay buffer once, in windows counted from the newest step backwards; "
        "if false, one mini-batch is drawn from it",
    )
    clear_replay_buffer: bool = option(True, "learn from the newest unroll only, and clear it afterwards")
    priority_replay: bool = option(False, "draw windows of large TD error more often")
    priority_replay_alpha: Annotated[Any, Rate(ge=0)] = option(
        0.7, "priority is (|TD error| + source.priority_replay_eps)^alpha"
    )
    priority_replay_beta: Annotated[Any, Rate(ge=0)] = option(
        0.4, "a drawn window's weight is priority^(-beta), over the largest drawn"
    )
    priority_replay_eps: Annotated[Any, Rate(gt=0)] = option(1e-06, "added to the TD error of every window")
    offline_buffer_dir: Name = option(
        "none", "name of recorded histories of the same tasks to learn from too (none: no histories)"
    )
    offline_buffer_length: int = option(0, "env steps to use of each row of the recorded histories (0: all)", ge=0)
    offline_buffer_range: Literal["first", "last"] = option(
        "first", "end of a row that source.offline_buffer_length counts from"
    )
    offline_buffer_every: int = option(1, "use every k-th episode of the recorded histories", ge=1)
    offline_loss_weight: Annotated[Any, Rate(ge=0)] = option(
        1.0, "weight of the loss on recorded histories, beside that on own experience"
    )
    rl_train_after_update_steps: int = option(
        0, "iterations that learn from recorded histories only, before the first env step", ge=0
    )
    rl_train_every_update_steps: int = option(
        1,
        "iterations between updates on own experience; recorded histories are learned from, and experience "
        "is collected, in every iteration",
        ge=1,
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
