"""Host and agent of the polyhedra game learn by double DQN (van Hasselt et al., 2016, arXiv 1509.06461), from games
against each other or against fixed players.

Each role that learns has a network Q, a target network Q', a replay buffer and games of its own. One update, over W
transitions (s, a, r, s') of the buffer:

    y = r + discount * Q'(s', a')   with a' = argmax of Q(s', a) over the actions a that are legal in s'
    loss = mean of weight * huber(Q(s, a) - y),   huber(x) = x^2 / 2 where |x| <= 1, else |x| - 1/2

without the second term of y where the game ended; a game that was truncated goes on in it. `weight` is 1, or corrects
prioritised replay. The gradient is clipped by its norm. The agent's s' holds the subset that the host really plays
next. Every `steps_before_update_target` updates Q' <- Q' + target_update_rate * (Q - Q'), running means and variances
of batch normalisation alike; these are estimated in the prediction Q(s, a) alone.

Every `steps_before_rollout` updates the role plays `rollout_length` moves in its games: with probability epsilon a
uniformly random legal action, else the best one. Its opponent does not explore. Rollouts take the opponents in turn.

All that is random follows from (seed, role, update), or from a game's own seed. B games, T moves, W transitions, N rows
for points, n coordinates, A actions.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icrl.config.players_schema import PlayersConfig
from icrl.config.schedules import Clock, make_schedule
from icrl.nn.layers import read_net_arch
from icrl.nn.net_arch import PointValues
from icrl.point_game.fixed_players import AGENTS, HOSTS, Agent, Host, choose
from icrl.point_game.parts import make_game, optimizer_config
from icrl.point_game.rollout import PointRollout, PointState, Turn, host_reward, play
from icrl.point_game.rules import canonical, reposition, rescale, subset_of, subsets
from icrl.point_game.stopwatch import Stopwatch
from icrl.point_game.transitions import Transitions, as_columns, drawn_transitions, transition_replay
from icrl.randomness import mix
from icrl.rl.double_q import blend, double_q_target
from icrl.runs.device import dtype_of
from icrl.runs.intervals import is_due
from icrl.training.optimizers import make_optimizer, set_rates

_LARGEST_NOISE = 1 - 2**-24  # of the numbers that players are given

Player = Callable[..., Tensor]  # a `Host` or an `Agent`


class Learner(ABC):
    """A role that is trained. Its networks are in evaluation mode but for the prediction that is learned from."""

    name: str
    number: int  # tells its luck from the other role's

    def __init__(self, config: PlayersConfig, watch: Stopwatch, device: torch.device) -> None:
        self.role, self.watch, self.game = config.roles[self.name], watch, make_game(config)
        self._scale, self._dtype = config.game.scale_observation, dtype_of(config)
        self._device, key = device, mix(torch.tensor(config.seed, device=device), self.number)
        self._key_of_games, self._key_of_draws = mix(key, 0), mix(key, 1)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(key))
            self.network = self._make_network().to(device, self._dtype).eval()
        self.target_network = copy.deepcopy(self.network).requires_grad_(False)
        self._optimizer_config = optimizer_config(self.role, config.training.max_gradient_norm)
        self.optimizer = make_optimizer(self.network, self._optimizer_config)
        self._epsilon = make_schedule(self.role.epsilon)
        self._learning_rate = make_schedule(self.role.learning_rate)
        self._opponents: list[Player] = []
        self._turns: list[Turn] = []  # where the games against each of them stand
        self._num_games, self._rollouts, self.moves = config.training.num_games, 0, 0
        shape = (1, self.game.options.max_num_points * self.game.options.dimension + self.num_others)
        number, flat = torch.zeros(1, device=device), torch.zeros(shape, device=device, dtype=self._dtype)
        like = Transitions(flat, number.long(), number.to(self._dtype), number.bool(), flat)
        self.replay = transition_replay(config.replay, like)

    @property
    @abstractmethod
    def num_actions(self) -> int: ...

    @property
    @abstractmethod
    def num_others(self) -> int:
        """Numbers in an observation that come after those of the points."""

    @abstractmethod
    def player(self, epsilon: float = 0.0) -> Player:
        """Who plays the network's best action, or with probability `epsilon` any legal one, as the network changes."""

    @abstractmethod
    def legal(self, observation: Tensor) -> Tensor:
        """The actions that may be taken, `[B, A]` bool."""

    @abstractmethod
    def transitions(self, rollout: PointRollout) -> Transitions:
        """What `[T, B]` moves tell this role."""

    @abstractmethod
    def _sides(self, player: Player, opponent: Player) -> tuple[Host, Agent]:
        """Who sits where when the learner is `player`."""

    def meet(self, opponents: list[Player]) -> None:
        """Start the games against each of the `opponents`."""
        self._opponents = opponents
        for i, opponent in enumerate(opponents):
            seeds = mix(mix(self._key_of_games, i), torch.arange(self._num_games, device=self._device))
            host, _ = self._sides(self.player(self._epsilon(Clock(0, 0, 0, 0))), opponent)
            self._turns.append(self.game.ask(host, self.game.reset(seeds)))

    def begin(self) -> None:
        """Play the first moves against each opponent, before there is any update."""
        for _ in self._opponents:
            self._rollout(Clock(0, 0, 0, 0), self.role.initial_rollout_length)

    def learn(self, clock: Clock) -> dict[str, Tensor]:
        """The update after `clock.updates` others, then what is due; returns metrics of the update, its rates too."""
        rates = {name: torch.tensor(value) for name, value in self.rates(clock).items()}
        with self.watch.phase("train"):
            metrics = self._update(clock)
            if is_due(clock.updates + 1, self.role.steps_before_update_target):
                blend(self.target_network, self.network, self.role.target_update_rate)
        if is_due(clock.updates + 1, self.role.steps_before_rollout):
            self._rollout(clock, self.role.rollout_length)
        return metrics | rates

    @torch.no_grad()
    def target(self, transitions: Transitions) -> Tensor:
        """Target y `[W]` of the values of the actions that were taken."""
        after = transitions.next_observation
        chooser_values, target_values = self._legal_values(after), self.target_network(after)
        ended, discount = transitions.terminated, self.role.discount
        return double_q_target(transitions.reward, ended, target_values, chooser_values, discount)

    def rates(self, clock: Clock) -> dict[str, float]:
        """What the schedules say at `clock`."""
        clock = clock._replace(env_steps=self.moves)
        return {"epsilon": self._epsilon(clock), "learning_rate": self._learning_rate(clock)}

    def _update(self, clock: Clock) -> dict[str, Tensor]:
        clock = clock._replace(env_steps=self.moves)
        drawn = self.replay.draw(self.role.batch_size, mix(self._key_of_draws, clock.updates), clock)
        transitions = drawn_transitions(drawn.rollout)
        observation, action, *_ = transitions
        target = self.target(transitions)
        self.network.train()
        value = self.network(observation).gather(1, action[:, None])[:, 0]
        self.network.eval()
        loss = (drawn.weight[0] * F.smooth_l1_loss(value, target, reduction="none")).mean()
        self.optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), self._optimizer_config.max_gradient_norm)
        set_rates(self.optimizer, self._optimizer_config, clock)
        self.optimizer.step()
        self.replay.set_priorities(drawn.where, (value - target).detach().abs()[None], clock)
        return {"loss": loss.detach(), "mean_q": value.detach().mean(), "gradient_norm": norm}

    def _rollout(self, clock: Clock, num_steps: int) -> None:
        """Play `num_steps` moves against the opponent whose turn it is, and keep them to learn from."""
        now = self._rollouts % len(self._opponents)
        epsilon = self.rates(clock)["epsilon"]
        host, agent = map(self._timed, self._sides(self.player(epsilon), self._opponents[now]))
        with self.watch.phase("env"):
            rollout, self._turns[now] = play(self.game, host, agent, self._turns[now], num_steps)
        with self.watch.phase("store"):
            self.replay.add(as_columns(self.transitions(rollout)))
        self._rollouts += 1
        self.moves += rollout.subset.numel()

    def _timed(self, player: Player) -> Player:
        def timed(*seen: Tensor) -> Tensor:
            with self.watch.phase("inference"):
                return player(*seen)

        return timed

    def _see(self, points: Tensor) -> Tensor:
        """Positions `[B, N, n]` as networks see them, `[B, N * n]`: the same for any order of the points, and with
        `game.reposition` wherever they lie."""
        points = canonical(points.to(self._device))
        points = reposition(points) if self.game.options.reposition else points
        return (rescale(points) if self._scale else points).to(self._dtype).flatten(1)

    @torch.no_grad()
    def _choose(self, observation: Tensor, noise: Tensor, epsilon: float) -> Tensor:
        """The best legal actions `[B]`, or random ones where `noise` `[B]` is below `epsilon`: below it, noise is
        uniform again."""
        best = self._legal_values(observation).argmax(1)
        share = noise.to(best.device).double()
        again = (share / max(epsilon, 2**-24)).clamp(max=_LARGEST_NOISE)
        return torch.where(share < epsilon, choose(self.legal(observation), again), best).to(noise.device)

    def _legal_values(self, observation: Tensor) -> Tensor:
        """Values of all actions, `[B, A]`: of those that are not legal minus infinity."""
        values = self.network(observation).nan_to_num()  # of a network that diverges: every legal one above the others
        return values.masked_fill(~self.legal(observation), -torch.inf)

    def _make_network(self) -> PointValues:
        options, layers = self.game.options, read_net_arch(f"{self.name}.net_arch", self.role.net_arch)
        return PointValues(options.max_num_points, options.dimension, self.num_others, self.num_actions, layers)

    def state_dict(self) -> dict[str, Any]:
        parts = {name: getattr(self, name).state_dict() for name in _PARTS}
        turns = [[turn.state._asdict(), turn.subset] for turn in self._turns]
        return parts | {"turns": turns, "rollouts": self._rollouts, "moves": self.moves}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state` was saved, against the opponents that were met."""
        for name in _PARTS:
            getattr(self, name).load_state_dict(state[name])
        self._turns = [Turn(PointState(**standing), subset) for standing, subset in state["turns"]]
        self._rollouts, self.moves = state["rollouts"], state["moves"]


_PARTS = ("network", "target_network", "optimizer", "replay")


class HostLearner(Learner):
    """Sees the points and names a subset."""

    name, number = "host", 0

    @property
    def num_actions(self) -> int:
        return len(subsets(self.game.options.dimension))

    @property
    def num_others(self) -> int:
        return 0

    def player(self, epsilon: float = 0.0) -> Host:
        return lambda points, noise: self._choose(self._see(points), noise, epsilon)

    def legal(self, observation: Tensor) -> Tensor:
        return torch.ones(len(observation), self.num_actions, dtype=torch.bool, device=observation.device)

    def transitions(self, rollout: PointRollout) -> Transitions:
        seen, after = (self._see(points.flatten(0, 1)) for points in (rollout.points, rollout.next_points))
        ended = rollout.terminated.flatten()
        return Transitions(seen, rollout.subset.flatten(), host_reward(ended).to(self._dtype), ended, after)

    def _sides(self, player: Player, opponent: Player) -> tuple[Host, Agent]:
        return player, opponent


class AgentLearner(Learner):
    """Sees the points and the host's subset, 0 or 1 for each coordinate, and names a coordinate of it."""

    name, number = "agent", 1

    @property
    def num_actions(self) -> int:
        return self.game.options.dimension

    @property
    def num_others(self) -> int:
        return self.num_actions

    def player(self, epsilon: float = 0.0) -> Agent:
        return lambda points, coords, noise: self._choose(self._see_turn(points, coords), noise, epsilon)

    def legal(self, observation: Tensor) -> Tensor:
        return observation[:, -self.num_actions :] > 0

    def transitions(self, rollout: PointRollout) -> Transitions:
        now, then = ((rollout.points, rollout.subset), (rollout.next_points, rollout.next_subset))
        seen, after = (
            self._see_turn(points.flatten(0, 1), subset_of(subset.flatten(), self.num_actions))
            for points, subset in (now, then)
        )
        ended = rollout.terminated.flatten()
        return Transitions(seen, rollout.axis.flatten(), -host_reward(ended).to(self._dtype), ended, after)

    def _sides(self, player: Player, opponent: Player) -> tuple[Host, Agent]:
        return opponent, player

    def _see_turn(self, points: Tensor, coords: Tensor) -> Tensor:
        return torch.cat([self._see(points), coords.to(self._device, self._dtype)], 1)


def make_learners(config: PlayersConfig, watch: Stopwatch, device: torch.device) -> dict[str, Learner]:
    """The roles that are trained, with their games against their opponents begun."""
    kinds = {"host": HostLearner, "agent": AgentLearner}
    learners: dict[str, Learner] = {name: kinds[name](config, watch, device) for name in config.learning}
    others: dict[str, dict[str, Player]] = {
        "host": {**AGENTS, "agent": player_of("agent", config, learners)},
        "agent": {**HOSTS, "host": player_of("host", config, learners)},
    }
    for name, learner in learners.items():
        learner.meet([others[name][opponent] for opponent in learner.role.opponents])
    return learners


def player_of(name: str, config: PlayersConfig, learners: dict[str, Learner]) -> Player:
    """Who plays the role `name`: what is learned, or a fixed player."""
    fixed = HOSTS if name == "host" else AGENTS
    return learners[name].player() if name in learners else fixed[config.roles[name].player]
