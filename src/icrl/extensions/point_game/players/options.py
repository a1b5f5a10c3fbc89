"""Options of `train_players`: host and agent of the polyhedra game, trained against each other."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import model_validator

from icrl.config.options import (
    NO_EFFECT,
    Name,
    OneOf,
    OneOrMore,
    Options,
    PathName,
    Rate,
    RootOptions,
    Seed,
    group,
    option,
    presets_option,
    refuse,
    refuse_both,
    seed_option,
)
from icrl.extensions.point_game.fixed_players import AGENTS, HOSTS
from icrl.extensions.point_game.players.networks import read_net_arch
from icrl.runs.checkpoint import CheckpointsConfig
from icrl.runs.device import DeviceConfig
from icrl.runs.evaluations import EvalTimesConfig
from icrl.runs.files import PROJECT
from icrl.runs.metrics import CurvesConfig

LEARNED = "dqn"  # the player that is trained
LEAGUE, LEAGUE_SIZE = "league", 4  # opponents: the newest earlier selves of the other side
OTHER = {"host": "agent", "agent": "host"}
SAVED = r"^[^@]*/[^@]*(@(last|best|[0-9]+))?$"  # names a player that an earlier run trained
_SAVED = (SAVED, "a saved player: logs/NAME (with @best its best checkpoint, with @400 its snapshot of update 400)")
_PLAYER = "dqn, a network that is trained, or a fixed or saved player, which ignores the other options of the group"
_OPPONENTS = (
    "training opponents: rollouts take them in turn, each in separate games; `%s` is the other side, `league` stands "
    f"for the {LEAGUE_SIZE} newest of its earlier selves"
)


class GameConfig(Options):
    # A host's network has an output for each subset of the coordinates, of which there are 2**n.
    dimension: int = option(3, "coordinates of a point", ge=2, le=12)
    max_num_points: int = option(20, "points of a starting position", ge=2, le=1024)
    max_value: int = option(20, "coordinates of starting points are uniform in 0 .. this", ge=1, le=2**20)
    max_episode_steps: int = option(50, "moves after which a training game is truncated", ge=1, le=10000)
    reposition: bool = option(True, "subtract each coordinate's minimum after a move: the same game, smaller numbers")
    scale_observation: bool = option(True, "networks see each position divided by its largest coordinate")

    former = {"reduction": "dominance"}


class TrainingConfig(Options):
    num_updates: int = option(
        10000,
        "gradient updates of each player that learns; a finished run continues if this is raised, unless a schedule "
        "has progress: percent",
        ge=1,
        may_change=True,
    )
    league_interval: int = option(1000, "updates between two versions of each player that enter its league", ge=1)
    num_games: int = option(256, "games side by side in a rollout", ge=1, le=2**20)
    max_gradient_norm: float = option(10.0, "gradient norm clip of each network", gt=0)

    former = {"phase_length": 0, "league_size": LEAGUE_SIZE}


class TransitionsConfig(Options):
    size: int = option(100000, "newest transitions in each player's replay buffer", ge=1, le=10**9)

    former = {"kind": "uniform", "alpha": NO_EFFECT, "beta": NO_EFFECT, "eps": NO_EFFECT}


class RoleConfig(Options):
    """Options that host and agent share."""

    role: ClassVar[str]
    player: str
    opponents: list[str]
    batch_size: int = option(256, "transitions in an update", ge=1, le=2**20)
    initial_rollout_length: int = option(10, "moves of every game and opponent before the first update", ge=1)
    rollout_length: int = option(1, "moves of every game in a rollout", ge=1)
    steps_before_rollout: int = option(4, "updates between two rollouts", ge=1)
    steps_before_update_target: int = option(100, "updates between two updates of the target network", ge=1)
    target_update_rate: float = option(0.9, "step of the target network towards the network (1: a copy)", gt=0, le=1)
    discount: float = option(0.95, "discount factor", ge=0, le=1)
    epsilon: Annotated[Any, Rate(ge=0, le=1)] = option(
        {"kind": "linear", "progress": "percent", "points": [[0, 1.0], [0.3, 0.1]]},
        "probability of a uniformly random legal action in its own rollouts",
    )
    learning_rate: Annotated[Any, Rate(ge=0)] = option(
        {"kind": "cosine", "progress": "percent", "initial": 0.001, "final": 1e-05, "time": 1}, "learning rate"
    )
    net_arch: list[dict[str, Any]] = option(
        [{"width": 256, "normalization": "layer"}, {"width": 256}],
        "hidden layers: each a `width` and, if needed, `normalization` (none, layer, batch), `activation` (relu, "
        "tanh, gelu), `residual: true` (two that add to their input) and `repeat`; or a `net_arch` to `repeat`",
    )

    former = {
        **{"start": "none", "optimizer": "adam", "momentum": 0.0},
        **{"adam_beta1": 0.9, "adam_beta2": 0.999, "adam_eps": 1e-8},
    }

    @model_validator(mode="after")
    def _check(self) -> Self:
        role, layers = self.role, read_net_arch(f"{self.role}.net_arch", self.net_arch)
        if self.player != LEARNED:
            return self
        refuse(not self.opponents, f"{role}.opponents=[]: must have at least one name")
        refuse(
            self.batch_size < 2 and any(layer.normalization == "batch" for layer in layers),
            f"{role}.batch_size={self.batch_size} must be at least 2 with normalization: batch in {role}.net_arch",
        )
        return self


class HostConfig(RoleConfig):
    role = "host"
    player: Annotated[str, OneOf((LEARNED, *HOSTS), *_SAVED)] = option(LEARNED, _PLAYER)
    opponents: Annotated[list[Annotated[str, OneOf(("agent", *AGENTS, LEAGUE), *_SAVED)]], OneOrMore] = option(
        ["agent", "random", "first", "last"], _OPPONENTS % "agent"
    )


class AgentConfig(RoleConfig):
    role = "agent"
    player: Annotated[str, OneOf((LEARNED, *AGENTS), *_SAVED)] = option(LEARNED, _PLAYER)
    opponents: Annotated[list[Annotated[str, OneOf(("host", *HOSTS, LEAGUE), *_SAVED)]], OneOrMore] = option(
        ["host", "zeillinger"], _OPPONENTS % "host"
    )


class MatchesConfig(EvalTimesConfig):
    num_games: int = option(500, "games of each pair of players, during training", ge=1, le=10**6)
    num_final_games: int = option(2000, "games of each pair of players, at the end", ge=1, le=10**6)
    max_moves: int = option(100, "moves after which a game counts as unfinished (evaluations)", ge=1, le=10000)
    pictures: bool = option(True, "draw the matches at the end, and one game in 2 or 3 dimensions, with a video")

    former = {"confidence": 0.95, "num_bootstrap": NO_EFFECT}

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse_both("evaluation", num_evals=self.num_evals, eval_interval=self.eval_interval)
        return self


class PlayerSavingConfig(CheckpointsConfig):
    snapshot_interval: int = option(
        0, "updates between snapshots of the players' networks, which are kept (0: none)", ge=0, may_change=True
    )


class PlayerCurvesConfig(CurvesConfig):
    former = dict.fromkeys(("details", "gradient_noise_scale", "layerwise", "timing"), NO_EFFECT)


class PlayersConfig(RootOptions):
    """Host and agent of the polyhedra game, trained against each other (docs/point_game.md)."""

    page: ClassVar[str] = "players"

    name: Name = option("point_game", "name of the run: its folder is logs/<name>/players/", stages="players")
    root: PathName = option(".", "folder that holds logs/; relative to the project", stages="players")
    presets: PathName = presets_option("players")
    seed: Seed = seed_option("seed of everything random", "players")
    num_threads: int = option(0, "CPU threads (0: all cores)", ge=0, le=1024, may_change=True, stages="players")
    device: DeviceConfig = group(DeviceConfig, "device of tensors, and precision", "players")
    game: GameConfig = group(GameConfig, "the rules", "players")
    training: TrainingConfig = group(TrainingConfig, "the gradient loop", "players")
    replay: TransitionsConfig = group(TransitionsConfig, "replay buffers", "players")
    host: HostConfig = group(HostConfig, "the host, and how it learns", "players")
    agent: AgentConfig = group(AgentConfig, "the agent, and how it learns", "players")
    evaluation: MatchesConfig = group(MatchesConfig, "matches between players", "players")
    checkpoints: PlayerSavingConfig = group(PlayerSavingConfig, "checkpoints and snapshots", "players")
    summaries: PlayerCurvesConfig = group(PlayerCurvesConfig, "what TensorBoard shows of training", "players")

    @model_validator(mode="after")
    def _check(self) -> Self:
        amp = self.device.amp_dtype
        digits = "it must be auto or none, because values need more digits than half precision has"
        refuse(amp not in ("auto", "none"), f"device.amp_dtype={amp}: with train_players {digits}")
        for name in self.learning:
            self._check_role(name, self.roles[name])
        for name, role in self.roles.items():
            refuse("_vs_" in role.player, f"{name}.player={role.player}: a name must not contain _vs_")
        return self

    def _check_role(self, name: str, role: RoleConfig) -> None:
        """Raise `ConfigError` if the options of the learning `role` conflict with others."""
        games, size, opponents = self.training.num_games, self.replay.size, role.opponents
        fixed = {side: other.player for side, other in self.roles.items() if other.player != LEARNED}
        for player, times in Counter(fixed.get(one, one) for one in opponents).items():
            named = [f", {side}.player={player}" for side in opponents if fixed.get(side) == player]
            twice = f"{player} is there {times} times" + "".join(named)
            refuse(times > 1, f"{name}.opponents={opponents}: must name each player once, and {twice}")
            refuse("_vs_" in player, f"{name}.opponents={opponents}: a name must not contain _vs_")
        other = OTHER[name]
        alone = LEAGUE in opponents and other in fixed
        refuse(alone, f"{name}.opponents={opponents}: {LEAGUE} needs {other}.player={LEARNED}, not {fixed.get(other)}")
        for length, number in (("initial_rollout_length", len(self.opponents_of(name))), ("rollout_length", 1)):
            moves = games * getattr(role, length) * number
            refuse(
                moves > size,
                f"{name}.{length}={getattr(role, length)} gives {moves} transitions with training.num_games={games} "
                f"and {name}.opponents={opponents}, more than replay.size={size} keeps",
            )

    @property
    def folder(self) -> Path:
        """Output folder of the run."""
        return PROJECT / self.root / "logs" / self.name / "players"

    @property
    def roles(self) -> dict[str, RoleConfig]:
        return {"host": self.host, "agent": self.agent}

    def opponents_of(self, name: str) -> list[str]:
        """Opponents of a role, with the members of a league written out."""
        league = [f"{LEAGUE}_{number}" for number in range(1, LEAGUE_SIZE + 1)]
        return [one for name in self.roles[name].opponents for one in (league if name == LEAGUE else [name])]

    def league_of(self, name: str) -> int:
        """Number of earlier selves that a learner keeps, for the other side."""
        other = OTHER[name]
        return LEAGUE_SIZE * (other in self.learning and LEAGUE in self.roles[other].opponents)

    @property
    def learning(self) -> list[str]:
        """Names of the roles that are trained."""
        return [name for name, role in self.roles.items() if role.player == LEARNED]
