"""The options of `train_players`: host and agent of the polyhedra game, trained against each other."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from icrl.config.options import group, option, rate
from icrl.config.paths import PROJECT
from icrl.config.training_schema import CurvesConfig, DeviceConfig, SavingConfig

LEARNED = "dqn"  # the player that is trained
FIXED_HOSTS = (
    *("random_pair", "random_subset", "all_coordinates", "zeillinger", "zeillinger_lexicographic", "spivakovsky"),
    *("weak_spivakovsky", "weak_spivakovsky_first"),
)
FIXED_AGENTS = ("random", "first", "last")


@dataclass
class GameConfig:
    # A host's network has an output for each subset of the coordinates, of which there are 2**n.
    dimension: int = option("coordinates of a point", low=2, high=12)
    max_num_points: int = option("points that are drawn for a start", low=2, high=1024)
    max_value: int = option("coordinates of a start are uniform in 0 .. this", low=1, high=2**20)
    max_episode_steps: int = option("moves after which a game of training is truncated", low=1, high=10_000)
    reposition: bool = option("subtract each coordinate's minimum after every move: the same game in smaller numbers")
    scale_observation: bool = option("networks see each position divided by its largest coordinate")


@dataclass
class TrainingConfig:
    num_updates: int = option("gradient updates of each player that learns", low=1)
    num_games: int = option("games side by side in a rollout", low=1, high=2**20)
    max_gradient_norm: float = option("gradient norm clip of each network", above=0)


@dataclass
class TransitionsConfig:
    kind: str = option(
        "which transitions are learned from: all alike, or those of large TD error more often",
        choices=("uniform", "prioritised"),
    )
    size: int = option("newest transitions that each player keeps", low=1, high=10**9)
    alpha: Any = rate("priority is (|TD error| + replay.eps)^alpha (prioritised)", low=0)
    beta: Any = rate("a drawn transition's weight is priority^(-beta), over the largest drawn (prioritised)", low=0)
    eps: Any = rate("added to the TD error of every transition (prioritised)", above=0)


@dataclass
class RoleConfig:
    """What host and agent have alike."""

    player: str = option("who plays: dqn, a network that is trained, or a fixed player; nothing else here acts then")
    opponents: list[str] = option("whom it trains against: rollouts take them in turn, each in games of its own")
    batch_size: int = option("transitions in an update", low=1, high=2**20)
    initial_rollout_length: int = option("moves of every game, against each opponent, before the first update", low=1)
    rollout_length: int = option("moves of every game in a rollout", low=1)
    steps_before_rollout: int = option("updates between two rollouts", low=1)
    steps_before_update_target: int = option("updates between two changes of the target network", low=1)
    target_update_rate: float = option(
        "how far each change moves the target network towards the network (1: a copy)", above=0, high=1
    )
    discount: float = option("discount factor", low=0, high=1)
    epsilon: Any = rate("probability of a uniformly random legal action in its own rollouts", low=0, high=1)
    optimizer: str = option("update rule", choices=("adam", "sgd"))
    learning_rate: Any = rate("learning rate", low=0)
    momentum: float = option("decay of the sum of gradients (sgd; adam: 0)", low=0, high=0.9999)
    adam_beta1: float = option("decay of the mean of gradients (sgd: 0)", low=0, high=0.9999)
    adam_beta2: float = option("decay of the mean of squares (sgd: 0)", low=0, high=0.99999)
    adam_eps: float = option("added to the root of the mean of squares (sgd: 1e-8)", above=0)
    net_arch: list[Any] = option(
        "hidden layers: each a `width` and, if need be, a `normalization` (none, layer, batch), an `activation` (relu, "
        "tanh, gelu), `residual: true` (a block of two layers that adds to what it is given) and `repeat`; or a "
        "`net_arch` to `repeat`. A linear layer to the actions comes last"
    )


@dataclass
class HostConfig(RoleConfig):
    player: str = option(
        "who plays: dqn, a network that is trained, or a fixed player; no other option of the group acts then",
        choices=(LEARNED, *FIXED_HOSTS),
    )
    opponents: list[str] = option(
        "whom it trains against: rollouts take them in turn, each in games of its own; `agent` is the other side",
        choices=("agent", *FIXED_AGENTS),
    )


@dataclass
class AgentConfig(RoleConfig):
    player: str = option(
        "who plays: dqn, a network that is trained, or a fixed player; no other option of the group acts then",
        choices=(LEARNED, *FIXED_AGENTS),
    )
    opponents: list[str] = option(
        "whom it trains against: rollouts take them in turn, each in games of its own; `host` is the other side",
        choices=("host", *FIXED_HOSTS),
    )


@dataclass
class MatchesConfig:
    num_evals: int = option("evaluations amid training, evenly spread (0: evaluation.eval_interval says)", low=0)
    eval_interval: int = option("updates between evaluations (both 0: one at the end alone)", low=0)
    num_games: int = option("games of each pair of players, amid training", low=1, high=10**6)
    num_final_games: int = option("games of each pair of players, at the end", low=1, high=10**6)
    max_moves: int = option(
        "moves after which a game of an evaluation counts as unfinished: a good agent never ends one",
        low=1,
        high=10_000,
    )
    num_bootstrap: int = option("bootstrap resamples of the intervals", low=100, high=10**5)
    confidence: float = option("coverage of the intervals", low=0.5, high=0.999)
    pictures: bool = option("draw the matches at the end, and in 2 or 3 dimensions a game, as a strip and as a video")


@dataclass
class PlayerCurvesConfig(CurvesConfig):
    layerwise: bool = option("mean and deviation of every parameter and its gradient", may_change=True)
    timing: bool = option("milliseconds of play, inference, storing and training (slower on a GPU)", may_change=True)


@dataclass(kw_only=True)
class PlayersConfig:
    name: str = option("name of the run: its folder is logs/<name>/players/", stages="players")
    root: str = option("folder that holds logs/; relative to the project", stages="players")
    seed: int = option("seed of all that is random", low=0, high=10**9, stages="players")
    num_threads: int = option(
        "CPU threads of PyTorch (0: all cores)", low=0, high=1024, may_change=True, stages="players"
    )
    device: DeviceConfig = group("where tensors live, and their precision", stages="players")
    game: GameConfig = group("the rules", stages="players")
    training: TrainingConfig = group("the gradient loop", stages="players")
    replay: TransitionsConfig = group("what is kept to learn from", stages="players")
    host: HostConfig = group("the host, and how it learns", stages="players")
    agent: AgentConfig = group("the agent, and how it learns", stages="players")
    evaluation: MatchesConfig = group("matches between players", stages="players")
    checkpoints: SavingConfig = group("what survives a crash", stages="players")
    summaries: PlayerCurvesConfig = group("what TensorBoard shows of training", stages="players")

    @property
    def folder(self) -> Path:
        """Where all that the run writes goes."""
        return PROJECT / self.root / "logs" / self.name / "players"

    @property
    def roles(self) -> dict[str, RoleConfig]:
        return {"host": self.host, "agent": self.agent}

    @property
    def learning(self) -> list[str]:
        """The roles that are trained."""
        return [name for name, role in self.roles.items() if role.player == LEARNED]
