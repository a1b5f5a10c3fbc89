"""Searchers: policies that learn in context with a perfect memory, and the source whose histories show this.

In bandits it is Thompson sampling. In rooms a searcher goes to the nearest cell where the goal may be, by all that its
stream has shown, and takes a shortest path once a reward has shown the goal. It plans no further than one cell, so it
leaves cells behind that cost a detour later: with such a memory one can do better (see `CoveringPlan`).

G goals to find one after the other in each episode, S cells, P permutations of the actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from functools import cached_property
from itertools import permutations
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from icrl.config.options import OneOrMore, option, refuse
from icrl.config.schedules import Schedule, make_schedule
from icrl.contracts import Env, Learned, Sample, Step
from icrl.envs import make_env
from icrl.envs.bandit import BanditConfig
from icrl.envs.core import EnvConfig, TensorEnv
from icrl.envs.rooms import NUM_ACTIONS, STAY, DarkKeyToDoor, DarkRoom, first_move, next_cells
from icrl.randomness import Noise, stream_seeds
from icrl.sources import source
from icrl.sources.bandit_policies import ThompsonSampling
from icrl.sources.explorers import CoveringPlan, PersistentWalk, TurningWalk, UniformWalk, has_explorers
from icrl.sources.learners import Learner
from icrl.sources.options import Share, SourceConfig, named

if TYPE_CHECKING:
    from icrl.config.root import Config

_TINY = 2.0**-24  # the smallest difference of two numbers of noise


class Memory(NamedTuple):
    """Knowledge of a searcher about each stream."""

    candidate: Tensor  # [B, G, S] bool: the g-th goal may be here
    found: Tensor  # [B, G] int64: cell of the g-th goal, -1 until found
    stage: Tensor  # [B] int64: number of the goal that is sought now


class RoomSearcher:
    """Searcher for DarkRoom (G = 1: the goal) and Dark Key-to-Door (G = 2: the key, then the door).

    A cell is ruled out for the goal that is sought when a move ended there without reward, and for all other goals when
    one is found there. The first cell of an episode is not ruled out: it pays nothing then even if it is the goal.
    Before the key is found nothing is learned about the door. The noise breaks ties between nearest cells.

    If a move to a goal that was found brings no reward, the goal has moved. Then all that is known of that goal is
    forgotten, but for the cell where it is missed: it may be anywhere else. Where goals do not move this never
    happens."""

    def __init__(self, env: DarkRoom | DarkKeyToDoor) -> None:
        self._size, self._num_cells = env.size, env.size**2
        goals = env.all_tasks()[:, :1] if isinstance(env, DarkRoom) else env.all_tasks()  # [tasks, G]
        self._possible = torch.zeros(goals.shape[1], self._num_cells, dtype=torch.bool)
        self._possible.scatter_(1, goals.T, value=True)

    def initial_carry(self, num_streams: int) -> Memory:
        found = torch.full((num_streams, len(self._possible)), -1)
        return Memory(self._possible.repeat(num_streams, 1, 1), found, torch.zeros(num_streams, dtype=torch.long))

    def act(self, carry: Memory, step: Step, noise: Tensor) -> tuple[Tensor, Memory]:
        memory = self.learned(carry, step)
        cell = step.obs % self._num_cells
        distance = self.distances(cell).masked_fill(~self.wanted(memory), self._num_cells)  # [B, S]
        nearest = distance == distance.amin(dim=1, keepdim=True)
        return first_move(cell, chosen(nearest, noise), self._size), memory

    def replace_action(self, carry: Memory, action: Tensor) -> Memory:
        return carry  # does not depend on the chosen action

    def learned(self, memory: Memory, step: Step) -> Memory:
        """Knowledge after `step`."""
        candidate, found, stage = (column.to(step.obs.device) for column in memory)  # a fresh one is on the CPU
        landed, rewarded = (step.final_obs % self._num_cells)[:, None, None], step.reward > 0
        ended = step.terminated | step.truncated
        acted = (step.timestep > 0) | ended  # false before a stream's first action
        sought = torch.arange(candidate.shape[1], device=stage.device) == stage[:, None]  # [B, G]
        ruled_out = acted[:, None] & (sought | rewarded[:, None])
        here = torch.zeros_like(candidate).scatter_(2, landed.expand(-1, candidate.shape[1], 1), value=True)
        missed = acted[:, None] & ~rewarded[:, None] & sought & (found == landed[..., 0])
        candidate = (candidate | (missed[..., None] & self._possible.to(found.device))) & ~(here & ruled_out[..., None])
        found = torch.where(sought & rewarded[:, None], landed[..., 0], found.masked_fill(missed, -1))
        stage = (stage + rewarded).clamp(max=candidate.shape[1] - 1).masked_fill(ended, 0)
        return Memory(candidate, found, stage)

    def wanted(self, memory: Memory) -> Tensor:
        """Cells to go to, `[B, S]` bool: the goal that is sought is there, or may be."""
        stream = torch.arange(len(memory.stage), device=memory.stage.device)
        found = memory.found[stream, memory.stage][:, None]
        known = torch.arange(self._num_cells, device=found.device) == found
        return torch.where(found >= 0, known, memory.candidate[stream, memory.stage])

    def distances(self, cell: Tensor) -> Tensor:
        """Moves from each `cell` `[...]` to every cell, `[..., S]`."""
        cells, size = torch.arange(self._num_cells, device=cell.device), self._size
        return (cell[..., None] // size - cells // size).abs() + (cell[..., None] % size - cells % size).abs()


class PermutedMemory(NamedTuple):
    """Knowledge of a searcher where the actions are permuted."""

    memory: Memory
    consistent: Tensor  # [B, P] bool: permutations of the actions that explain all moves so far
    cell: Tensor  # [B] int64: where it acted last
    action: Tensor  # [B] int64: the last action


class PermutedSearcher:
    """Searcher for DarkRoom with permuted actions, which must also find out which action makes which of the five moves.

    All permutations that explain its moves so far are equally likely to it. It takes the action that most likely makes
    progress: the nearest cell where the goal may be is one move nearer after it, or at distance 0. The noise breaks
    ties. So it tries an unknown action only if no known one leads on."""

    def __init__(self, env: DarkRoom) -> None:
        self._searcher = RoomSearcher(env)
        self._next_cells = next_cells(env.size).view(-1, NUM_ACTIONS)  # [S, moves]
        self._moves = torch.tensor(list(permutations(range(NUM_ACTIONS))))  # [P, A]: the move of each action

    def initial_carry(self, num_streams: int) -> PermutedMemory:
        nothing = torch.zeros(num_streams, dtype=torch.long)
        consistent = torch.ones(num_streams, len(self._moves), dtype=torch.bool)
        return PermutedMemory(self._searcher.initial_carry(num_streams), consistent, nothing, nothing)

    def act(self, carry: PermutedMemory, step: Step, noise: Tensor) -> tuple[Tensor, PermutedMemory]:
        memory = self._searcher.learned(carry.memory, step)
        tensors = (self._next_cells, self._moves, *carry[1:])
        next_cells, moves, consistent, cell, action = (tensor.to(step.obs.device) for tensor in tensors)
        acted = (step.timestep > 0) | step.terminated | step.truncated
        explains = next_cells[cell] == step.final_obs[:, None]  # [B, moves]
        consistent = consistent & (explains.gather(1, moves[:, action].T) | ~acted[:, None])
        after, wanted = next_cells[step.obs], self._searcher.wanted(memory)[:, None]  # [B, moves], [B, 1, S]
        distance = self._searcher.distances(after).masked_fill(~wanted, len(next_cells)).amin(dim=2)
        progress = distance <= (distance[:, STAY] - 1).clamp(min=0)[:, None]
        each = moves.expand(len(noise), -1, -1)  # [B, P, A]
        likely = (progress.gather(1, each.flatten(1)).view_as(each) & consistent[..., None]).sum(dim=1)  # [B, A]
        action = chosen(likely == likely.amax(dim=1, keepdim=True), noise)
        return action, PermutedMemory(memory, consistent, step.obs, action)

    def replace_action(self, carry: PermutedMemory, action: Tensor) -> PermutedMemory:
        """The next move must be explained by the `action` `[B]` that was done."""
        return carry._replace(action=action)


def chosen(allowed: Tensor, noise: Tensor) -> Tensor:
    """One of the true columns of each row of `allowed` `[B, N]`, all equally likely: `[B]` int64."""
    choice = (noise * allowed.sum(dim=1)).long()
    return (allowed.cumsum(dim=1) <= choice[:, None]).sum(dim=1)


class SearcherConfig(SourceConfig):
    name: Literal["searcher"] = named("searcher")
    strategy: Literal["nearest", "covering_plan", "persistent_walk", "turning_walk", "uniform_walk"] = option(
        "nearest",
        "how it looks for the goal. nearest: the nearest cell where it may be (bandits: Thompson sampling); in DarkRoom"
        " with one start also covering_plan: paths that visit all cells with few wasted steps, and three random walks",
    )
    noise: Annotated[list[Share], OneOrMore] = option(
        [0.03],
        "probability of a uniformly random action instead of the searcher's; of a list, the k-th for learner k of a "
        "task (after the last, the first again)",
    )


_EXPLORERS = {
    "covering_plan": CoveringPlan,
    "persistent_walk": PersistentWalk,
    "turning_walk": TurningWalk,
    "uniform_walk": UniformWalk,
}
_READ = ("reward", "terminated", "truncated", "next_obs", "obs", "timestep", "action")  # columns, by `relabelled`


def searcher_of(strategy: str, config: Config) -> Any:
    """Searcher of this `source.strategy` for the world of `config`. Raises `ConfigError` if there is none."""
    with closing(make_env(config.env)) as env:
        policy = in_context_learner(env, config.env) if strategy == "nearest" else None
        if strategy != "nearest" and isinstance(env, DarkRoom) and has_explorers(env):
            policy = _EXPLORERS[strategy](env)
    where = f"env.name={config.env.name} and its options"
    refuse(policy is None, f"strategy={strategy}: there is no such searcher with {where}")
    return policy


def in_context_learner(env: TensorEnv, config: EnvConfig) -> RoomSearcher | PermutedSearcher | ThompsonSampling | None:
    """Policy that learns in context in the world `env` with the options `config`; None if there is none."""
    if isinstance(env, DarkRoom) and env.permute_actions:
        return PermutedSearcher(env)
    if isinstance(env, DarkRoom | DarkKeyToDoor):
        return RoomSearcher(env)
    if isinstance(config, BanditConfig):
        return ThompsonSampling(env.spec, config.deviation if config.distribution == "gaussian" else None)
    return None


@source("searcher", SearcherConfig)
class Searcher(Learner):
    """L learners that act by `policy`; they learn only in the contexts of their streams, in the carry. With probability
    noise(t) an action is uniformly random instead, so that histories also show what to do after a mistake."""

    policy: Any = None  # of `in_context_learner`; to be set before the first use

    @classmethod
    def create(cls, config: Config, env: Env[Any], tasks: Tensor, seeds: Tensor, device: torch.device) -> Self:
        """Learners with the policy for this world. Raises `ConfigError` if there is none."""
        learners = super().create(config, env, tasks, seeds, device)
        learners.policy = searcher_of(learners.config.strategy, config)
        return learners

    def initial_carry(self, num_streams: int) -> Any:
        super().initial_carry(num_streams)
        return self.policy.initial_carry(num_streams)

    @cached_property
    def _levels(self) -> list[Schedule]:
        return [make_schedule(level) for level in self.config.noise]

    @property
    def noise(self) -> Tensor:
        """Probability of a uniformly random action now, `[L]`."""
        levels = torch.tensor([level(self.clock) for level in self._levels], device=self.device)
        number = torch.arange(self.num_learners, device=self.device) % self.config.num_learners
        return levels[number % len(levels)]

    def act(self, carry: Any, step: Step, noise: Tensor) -> tuple[Tensor, Any]:
        """The policy's action, or a random one if `noise` is below its probability. Its rest is uniform for either."""
        num_actions, share = self._spec.num_actions, self.noise.repeat_interleave(len(noise) // self.num_learners)
        rest = (noise - share) / (1 - share).clamp(min=_TINY)
        action, carry = self.policy.act(carry, step, rest.clamp(0, 1 - _TINY))
        at_random = (noise / share.clamp(min=_TINY) * num_actions).long().clamp(max=num_actions - 1)
        action = torch.where(noise < share, at_random, action)
        return action, self.policy.replace_action(carry, action)

    def update(self, sample: Sample) -> Learned:
        """Report the noise; nothing is learned."""
        return Learned({"noise": self.noise})


def relabelled(policy: Any, columns: Mapping[str, NDArray[Any]], num_actions: int) -> NDArray[np.uint8]:
    """Actions `[N, T]` that the searcher `policy` would take at every step of rows `[N, T]` of histories, given what
    the row has shown before: labels of an expert for what others played (Ross et al., 2011, arXiv 1011.0686). Ties are
    broken by random numbers of row and step."""
    time = {name: torch.from_numpy(columns[name].T.copy()) for name in _READ}  # [T, N]
    time |= {name: column.long() for name, column in time.items() if name != "reward"}
    num_steps, num_rows = time["obs"].shape
    noise, carry = Noise(stream_seeds(0, num_rows)), policy.initial_carry(num_rows)
    zero = torch.zeros(num_rows, dtype=torch.long)
    none, unknown = zero.bool(), zero + num_actions
    labels = torch.empty(num_steps, num_rows, dtype=torch.uint8)
    for t in range(num_steps):
        last = [time[name][t - 1] for name in _READ[:4]] if t else [zero.float(), none, none, time["obs"][0]]
        reward, terminated, truncated, landed = last
        step = Step(time["obs"][t], reward, terminated > 0, truncated > 0, landed, time["timestep"][t], unknown)
        labels[t], carry = policy.act(carry, step, noise.draw(1)[0])
        carry = policy.replace_action(carry, time["action"][t])
    return labels.T.contiguous().numpy()
