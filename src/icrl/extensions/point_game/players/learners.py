"""Double DQN learners (van Hasselt et al., 2016, arXiv 1509.06461) of host and agent of the polyhedra game.

A role that learns has a network Q, a target network Q', a replay buffer and games of its own. One update, over W
transitions (s, a, r, s') of the buffer, reduces

    loss = mean of huber(Q(s, a) - y),   huber(x) = x^2 / 2 if |x| <= 1, else |x| - 1/2
    with y = r + discount * Q'(s', a'),   a' = argmax of Q(s', a) over the actions a that are legal in s'

The second term of y is left out if the game ended, and kept if the game was truncated. The agent's s' holds the subset
that the host really plays next. The prediction Q(s, a) alone updates the running means and variances of batch
normalisation. In its own rollouts the role takes a uniformly random legal action with probability epsilon, else the
best one. Its opponents, which it meets in turn, do not explore; among them may be a league, which holds earlier
networks of the other side.

Random numbers are functions of (seed, role, update), or of a game's own seed. B games, T moves, C stored and W drawn
transitions, N rows for points, n coordinates, A actions, D numbers in an observation.
"""

import copy
import re
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icrl.config.schedules import Clock, make_schedule
from icrl.extensions.point_game.fixed_players import AGENTS, HOSTS
from icrl.extensions.point_game.players.options import LEAGUE, OTHER, SAVED, PlayersConfig
from icrl.extensions.point_game.players.trained_players import NetworkPlayer, Player, load_for
from icrl.extensions.point_game.rollout import PointGame, PointGameOptions, PointRollout, PointState, play
from icrl.extensions.point_game.rules import subset_of
from icrl.extensions.value_sources.replay import Replay
from icrl.extensions.value_sources.targets import double_q_target, polyak_update
from icrl.randomness import mix
from icrl.runs.checkpoint import Interval
from icrl.training.optimizers import AdamConfig, make_optimizer, set_rates

_PARTS = ("network", "target_network", "optimizer", "replay")  # of a learner's state
_START = Clock(0, 0, 0, 0)

Players = dict[str, dict[str, Player]]  # by side and name


class Transitions(NamedTuple):
    """Moves of one role. If a game was truncated, `next_observation` is its last one, for the bootstrap."""

    observation: Tensor  # [W, D]
    action: Tensor  # [W] int64
    reward: Tensor  # [W]
    terminated: Tensor  # [W] bool
    next_observation: Tensor  # [W, D]


def transition_replay(size: int, width: int, dtype: torch.dtype, device: torch.device) -> Replay[Any]:
    """Replay of `size` transitions with D = `width`: one learner, one stream, windows of one step, so its columns are
    `[C, 1, ...]`."""
    kinds = ((dtype, width), (torch.int64,), (dtype,), (torch.bool,), (dtype, width))
    columns = (torch.zeros(size, 1, *shape, dtype=kind, device=device) for kind, *shape in kinds)
    return Replay(Transitions(*columns), 1, from_oldest=False)


class Learner(NetworkPlayer):
    """Learner of one role. Its networks are in evaluation mode, except in the prediction that it learns from."""

    def __init__(self, name: str, config: PlayersConfig, device: torch.device) -> None:
        super().__init__(name, config, device)
        self.role, self.game = config.roles[name], make_game(config)
        self._key_of_games, self._key_of_draws = mix(self._key, 0), mix(self._key, 1)
        self.league = [NetworkPlayer(name, config, device) for _ in range(config.league_of(name))]
        for entry in range(len(self.league)):
            self.enter_league(entry)
        self.target_network = copy.deepcopy(self.network).requires_grad_(False)
        self._max_norm = config.training.max_gradient_norm
        self._optimizer_config = AdamConfig(beta2=0.999, learning_rate=self.role.learning_rate)
        self.optimizer = make_optimizer(self.network, self._optimizer_config)
        self._epsilon, self._learning_rate = make_schedule(self.role.epsilon), make_schedule(self.role.learning_rate)
        self._opponents: list[Player] = []
        self._states: list[PointState] = []  # of the games against each of them
        self._num_games, self._rollouts, self.moves = config.training.num_games, 0, 0
        self.replay = transition_replay(config.replay.size, self.num_inputs, self._dtype, device)

    def transitions(self, rollout: PointRollout) -> Transitions:
        """Transitions of this role in `[T, B]` moves. Its reward is +1 (host) or -1 with the end of a game, else 0."""
        flat = PointRollout(*(column.flatten(0, 1) for column in rollout))
        before, after = (
            self._see(points) if self._is_host else self._see(points, subset_of(subset, self.num_actions))
            for points, subset in ((flat.points, flat.subset), (flat.next_points, flat.next_subset))
        )
        action, sign = (flat.subset, 1) if self._is_host else (flat.axis, -1)
        return Transitions(before, action, sign * flat.terminated.to(self._dtype), flat.terminated, after)

    def meet(self, opponents: list[Player]) -> None:
        """Start the games against each of the `opponents`."""
        self._opponents = opponents
        for i, opponent in enumerate(opponents):
            seeds = mix(mix(self._key_of_games, i), torch.arange(self._num_games, device=self._device))
            host = self.player(self._epsilon(_START)) if self._is_host else opponent
            self._states.append(self.game.ask(host, self.game.reset(seeds)))

    def begin(self) -> None:
        """Play the first moves against each opponent, before the first update."""
        for _ in self._opponents:
            self._rollout(_START, self.role.initial_rollout_length)

    def learn(self, clock: Clock) -> dict[str, Tensor]:
        """Make the update after `clock.updates` others, and what else is due; returns its metrics and rates. The
        `env_steps` of the role's schedules are its own moves."""
        clock = clock._replace(env_steps=self.moves)
        rates = {"epsilon": self._epsilon(clock), "learning_rate": self._learning_rate(clock)}
        metrics = self._update(clock)
        if Interval(0, self.role.steps_before_update_target, 0).due(clock.updates + 1):
            polyak_update(self.target_network, self.network, self.role.target_update_rate)
        if Interval(0, self.role.steps_before_rollout, 0).due(clock.updates + 1):
            self._rollout(clock, self.role.rollout_length)
        return metrics | {name: torch.tensor(value) for name, value in rates.items()}

    @torch.no_grad()
    def target(self, transitions: Transitions) -> Tensor:
        """Target values y `[W]` of the actions taken."""
        after, ended = transitions.next_observation, transitions.terminated
        chooser_values, target_values = self._legal_values(after), self.target_network(after)
        return double_q_target(transitions.reward, ended, target_values, chooser_values, self.role.discount)

    def _update(self, clock: Clock) -> dict[str, Tensor]:
        drawn = self.replay.draw(self.role.batch_size, mix(self._key_of_draws, clock.updates), clock)
        transitions = Transitions(*(column[0] for column in drawn.rollout))
        target = self.target(transitions)
        self.network.train()
        value = self.network(transitions.observation).gather(1, transitions.action[:, None])[:, 0]
        loss = F.smooth_l1_loss(value, target)
        self.network.eval()
        self.optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), self._max_norm)
        set_rates(self.optimizer, self._optimizer_config, clock)
        self.optimizer.step()
        return {"loss": loss.detach(), "mean_q": value.detach().mean(), "gradient_norm": norm}

    def _rollout(self, clock: Clock, num_steps: int) -> None:
        """Play `num_steps` moves against the opponent whose turn it is, and store them."""
        now, epsilon = self._rollouts % len(self._opponents), self._epsilon(clock._replace(env_steps=self.moves))
        players = [self.player(epsilon), self._opponents[now]]
        host, agent = players if self._is_host else reversed(players)
        rollout, self._states[now] = play(self.game, host, agent, self._states[now], num_steps)
        self.replay.add(Transitions(*(column[:, None] for column in self.transitions(rollout))))
        self._rollouts += 1
        self.moves += rollout.subset.numel()

    def enter_league(self, entry: int) -> None:
        """Let a copy of the current network take the place of the oldest member of the league."""
        if self.league:
            self.league[entry % len(self.league)].network.load_state_dict(self.network.state_dict())

    def state_dict(self) -> dict[str, Any]:
        parts = {name: getattr(self, name).state_dict() for name in _PARTS}
        games = [state._asdict() for state in self._states]
        league = {"league": [member.network.state_dict() for member in self.league]} if self.league else {}
        return parts | league | {"games": games, "rollouts": self._rollouts, "moves": self.moves}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved `state`, against the same opponents."""
        for name in _PARTS:
            getattr(self, name).load_state_dict(state[name])
        for member, network in zip(self.league, state.get("league", []), strict=True):
            member.network.load_state_dict(network)
        self._states = [PointState(**games) for games in state["games"]]
        self._rollouts, self.moves = state["rollouts"], state["moves"]


def make_game(config: PlayersConfig) -> PointGame:
    return PointGame(PointGameOptions(**config.game.model_dump(exclude={"scale_observation"})))


def make_learners(config: PlayersConfig, device: torch.device) -> tuple[dict[str, Learner], Players]:
    """Learners of the roles that are trained, by name, with their games against their opponents started; and all
    players of the run by side and name: `host` or `agent` (the learner's player, or the fixed one), the fixed players,
    the saved players that a learner meets, and the members of a league."""
    learners = {name: Learner(name, config, device) for name in config.learning}
    players = dict[str, dict[str, Player]]()
    for side, fixed in (("host", HOSTS), ("agent", AGENTS)):
        learner, given, other = learners.get(side), config.roles[side].player, OTHER[side]
        names = [given] * (not learner) + (config.opponents_of(other) if other in learners else [])
        saved = {name: load_for(config, name, side, device) for name in names if re.match(SAVED, name)}
        league = {f"{LEAGUE}_{number}": one for number, one in enumerate(learner.league if learner else [], 1)}
        others = {**fixed, **{name: one.player() for name, one in (saved | league).items()}}
        players[side] = {side: learner.player() if learner else others[given], **others}
    for side, learner in learners.items():
        learner.meet([players[OTHER[side]][name] for name in config.opponents_of(side)])
    return learners, players
