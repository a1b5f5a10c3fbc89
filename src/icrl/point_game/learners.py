"""Double DQN learners (van Hasselt et al., 2016, arXiv 1509.06461) of host and agent of the polyhedra game.

Each role that learns has a network Q, a target network Q', a replay buffer and games of its own. One update, over W
transitions (s, a, r, s') of the buffer:

    y = r + discount * Q'(s', a')   with a' = argmax of Q(s', a) over the actions a that are legal in s'
    loss = mean of weight * huber(Q(s, a) - y),   huber(x) = x^2 / 2 if |x| <= 1, else |x| - 1/2

The second term of y is left out if the game ended, and kept if the game was truncated. `weight` is 1, or corrects for
prioritised replay. The gradient is clipped by its norm. The agent's s' holds the subset that the host really plays
next. Every `steps_before_update_target` updates Q' <- Q' + target_update_rate * (Q - Q'), with the running means and
variances of batch normalisation; the prediction Q(s, a) alone updates those of Q.

Every `steps_before_rollout` updates the role plays `rollout_length` moves in its games: with probability epsilon a
uniformly random legal action, else the best one. Its opponent does not explore. Rollouts take the opponents in turn.

Random numbers are functions of (seed, role, update), or of a game's own seed. B games, T moves, W transitions, N rows
for points, n coordinates, A actions.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icrl.config.schedules import Clock, make_schedule
from icrl.nn.networks import PointValues, read_net_arch
from icrl.point_game.fixed_players import AGENTS, HOSTS, Agent, Host, choose
from icrl.point_game.options import PlayersConfig
from icrl.point_game.parts import make_game, optimizer_config
from icrl.point_game.rollout import PointRollout, PointState, host_reward, play
from icrl.point_game.rules import canonical, reposition, rescale, subset_of, subsets
from icrl.point_game.stopwatch import Stopwatch
from icrl.point_game.transitions import Transitions, as_columns, drawn_transitions, transition_replay
from icrl.randomness import mix
from icrl.rl.double_q import blend, double_q_target
from icrl.runs.device import dtype_of
from icrl.runs.intervals import is_due
from icrl.training.optimizers import make_optimizer, set_rates

_LARGEST_NOISE = 1 - 2**-24  # of the numbers that players are given
_START = Clock(0, 0, 0, 0)

Player = Callable[..., Tensor]  # a `Host` or an `Agent`


class Learner:
    """Learner of one role. Its networks are in evaluation mode, except in the prediction that it learns from.

    The host observes the points and names a subset. The agent observes the points and the host's subset, 0 or 1 for
    each coordinate, and names a coordinate of it."""

    def __init__(self, name: str, config: PlayersConfig, watch: Stopwatch, device: torch.device) -> None:
        self.name, self._is_host = name, name == "host"
        self.role, self.watch, self.game = config.roles[self.name], watch, make_game(config)
        self._scale, self._dtype = config.game.scale_observation, dtype_of(config)
        role = 0 if self._is_host else 1  # gives the two roles different random numbers
        self._device, key = device, mix(torch.tensor(config.seed, device=device), role)
        self._key_of_games, self._key_of_draws = mix(key, 0), mix(key, 1)
        dimension = self.game.options.dimension
        self.num_actions = len(subsets(dimension)) if self._is_host else dimension
        num_others = 0 if self._is_host else dimension  # numbers in an observation after those of the points
        sizes = (self.game.options.max_num_points, dimension, num_others, self.num_actions)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(key))
            network = PointValues(*sizes, read_net_arch(f"{self.name}.net_arch", self.role.net_arch))
            self.network = network.to(device, self._dtype).eval()
        self.target_network = copy.deepcopy(self.network).requires_grad_(False)
        self._optimizer_config = optimizer_config(self.role, config.training.max_gradient_norm)
        self.optimizer = make_optimizer(self.network, self._optimizer_config)
        self._epsilon = make_schedule(self.role.epsilon)
        self._learning_rate = make_schedule(self.role.learning_rate)
        self._opponents: list[Player] = []
        self._states: list[PointState] = []  # of the games against each of them
        self._num_games, self._rollouts, self.moves = config.training.num_games, 0, 0
        shape = (1, self.game.options.max_num_points * self.game.options.dimension + num_others)
        number, flat = torch.zeros(1, device=device), torch.zeros(shape, device=device, dtype=self._dtype)
        like = Transitions(flat, number.long(), number.to(self._dtype), number.bool(), flat)
        self.replay = transition_replay(config.replay, like)

    def player(self, epsilon: float = 0.0) -> Player:
        """Player that takes the best action of the current network, or with probability `epsilon` any legal one."""

        def act(*seen: Tensor) -> Tensor:
            return self._choose(self._see(*seen[:-1]), seen[-1], epsilon)

        return act

    def legal(self, observation: Tensor) -> Tensor:
        """Mask of the legal actions, `[B, A]` bool."""
        if self._is_host:
            return torch.ones(len(observation), self.num_actions, dtype=torch.bool, device=observation.device)
        return observation[:, -self.num_actions :] > 0

    def transitions(self, rollout: PointRollout) -> Transitions:
        """Transitions of this role in `[T, B]` moves."""
        flat = PointRollout(*(column.flatten(0, 1) for column in rollout))
        before, after = (
            self._see(points) if self._is_host else self._see(points, subset_of(subset, self.num_actions))
            for points, subset in ((flat.points, flat.subset), (flat.next_points, flat.next_subset))
        )
        action, sign = (flat.subset, 1) if self._is_host else (flat.axis, -1)
        return Transitions(before, action, sign * host_reward(flat.terminated).to(self._dtype), flat.terminated, after)

    def meet(self, opponents: list[Player]) -> None:
        """Start the games against each of the `opponents`."""
        self._opponents = opponents
        for i, opponent in enumerate(opponents):
            seeds = mix(mix(self._key_of_games, i), torch.arange(self._num_games, device=self._device))
            host, _ = self._sides(self.player(self._epsilon(_START)), opponent)
            self._states.append(self.game.ask(host, self.game.reset(seeds)))

    def begin(self) -> None:
        """Play the first moves against each opponent, before the first update."""
        for _ in self._opponents:
            self._rollout(_START, self.role.initial_rollout_length)

    def learn(self, clock: Clock) -> dict[str, Tensor]:
        """Make the update after `clock.updates` others, and what else is due; returns its metrics and rates."""
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
        """Target values y `[W]` of the actions taken."""
        after = transitions.next_observation
        chooser_values, target_values = self._legal_values(after), self.target_network(after)
        ended, discount = transitions.terminated, self.role.discount
        return double_q_target(transitions.reward, ended, target_values, chooser_values, discount)

    def rates(self, clock: Clock) -> dict[str, float]:
        """Scheduled exploration and learning rate at `clock`; their `env_steps` are the moves of this role."""
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
        """Play `num_steps` moves against the opponent whose turn it is, and store them."""
        now = self._rollouts % len(self._opponents)
        players = (self.player(self.rates(clock)["epsilon"]), self._opponents[now])
        host, agent = self._sides(*(self.watch.phase("inference")(player) for player in players))
        with self.watch.phase("env"):
            rollout, self._states[now] = play(self.game, host, agent, self._states[now], num_steps)
        with self.watch.phase("store"):
            self.replay.add(as_columns(self.transitions(rollout)))
        self._rollouts += 1
        self.moves += rollout.subset.numel()

    def _sides(self, player: Player, opponent: Player) -> tuple[Host, Agent]:
        """Host and agent of a game between this role's `player` and its opponent."""
        return (player, opponent) if self._is_host else (opponent, player)

    def _see(self, points: Tensor, *coords: Tensor) -> Tensor:
        """Observations `[B, K]` of positions `[B, N, n]` and, for the agent, subsets `[B, n]`: the same for any order
        of the points, and with `game.reposition` for any translation."""
        points = canonical(points.to(self._device))
        points = reposition(points) if self.game.options.reposition else points
        numbers = (rescale(points) if self._scale else points).to(self._dtype).flatten(1)
        return torch.cat([numbers, *(flags.to(self._device, self._dtype) for flags in coords)], 1)

    @torch.no_grad()
    def _choose(self, observation: Tensor, noise: Tensor, epsilon: float) -> Tensor:
        """Best legal actions `[B]`, or random ones where `noise` `[B]` is below `epsilon`; noise below it, divided by
        it, is uniform again."""
        best = self._legal_values(observation).argmax(1)
        share = noise.to(best.device).double()
        again = (share / max(epsilon, 2**-24)).clamp(max=_LARGEST_NOISE)
        return torch.where(share < epsilon, choose(self.legal(observation), again), best).to(noise.device)

    def _legal_values(self, observation: Tensor) -> Tensor:
        """Values of all actions, `[B, A]`; minus infinity for illegal ones."""
        values = self.network(observation).nan_to_num()  # if the network diverges, keep legal values above illegal ones
        return values.masked_fill(~self.legal(observation), -torch.inf)

    def state_dict(self) -> dict[str, Any]:
        parts = {name: getattr(self, name).state_dict() for name in _PARTS}
        games = [state._asdict() for state in self._states]
        return parts | {"games": games, "rollouts": self._rollouts, "moves": self.moves}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved `state`, against the same opponents."""
        for name in _PARTS:
            getattr(self, name).load_state_dict(state[name])
        self._states = [PointState(**games) for games in state["games"]]
        self._rollouts, self.moves = state["rollouts"], state["moves"]


_PARTS = ("network", "target_network", "optimizer", "replay")


def make_learners(config: PlayersConfig, watch: Stopwatch, device: torch.device) -> dict[str, Learner]:
    """Learners of the roles that are trained, with their games against their opponents started."""
    learners = {name: Learner(name, config, watch, device) for name in config.learning}
    others: dict[str, dict[str, Player]] = {
        "host": {**AGENTS, "agent": player_of("agent", config, learners)},
        "agent": {**HOSTS, "host": player_of("host", config, learners)},
    }
    for name, learner in learners.items():
        learner.meet([others[name][opponent] for opponent in learner.role.opponents])
    return learners


def player_of(name: str, config: PlayersConfig, learners: dict[str, Learner]) -> Player:
    """Player of the role `name`: the learner's, or a fixed one."""
    fixed = HOSTS if name == "host" else AGENTS
    return learners[name].player() if name in learners else fixed[config.roles[name].player]
