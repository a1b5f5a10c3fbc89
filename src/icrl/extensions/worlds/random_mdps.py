"""Random MDPs: worlds whose rules are a table for each task. N tasks, S states, A actions, K outcomes.

What the states mean has to be found out in each task anew.
"""

import hashlib
from typing import Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor

from icrl.config.options import option, refuse
from icrl.envs.core import NAME, EnvConfig, MapView, Outcomes, world
from icrl.extensions.exact.tables import TableEnv
from icrl.randomness import mix, stream_seeds, uniform
from icrl.spaces import discrete_spec

_MOST_NUMBERS = 10**8 // 2  # drawn for one property of all tables: 400 MB
BRANCHING = 2  # states that each action of a garnet can lead to from a state
REWARD_SHARE = 0.1  # of the states of a garnet, which pay; at least one, and never the start
LEAP, FALL = 3, 2  # largest number of places that an action of an AnyMDP can lead ahead, and back
DEVIATION = 0.25  # of the place that an action leads to
PITFALL_SHARE = 0.15  # probability that a place is a pitfall if the one before it was not drawn as one


class RandomMDPConfig(EnvConfig):
    num_states: int = option(16, "states of each MDP", ge=3, le=1000)
    num_actions: int = option(4, "actions in each state", ge=2, le=100)
    num_tasks: int = option(1100, "MDPs in all; MDP i is the same however many there are", ge=3, le=10**6)

    former = {"tasks_seed": 0}

    @model_validator(mode="after")
    def _check(self) -> Self:
        numbers = self.num_tasks * self.num_states**2 * self.num_actions
        tables = f"env.num_tasks={self.num_tasks}, env.num_states={self.num_states}, env.num_actions={self.num_actions}"
        many = f"num_tasks * num_states^2 * num_actions must be at most {_MOST_NUMBERS}, not {numbers}"
        refuse(numbers > _MOST_NUMBERS, f"{tables}: {many}")
        return self


class GarnetConfig(RandomMDPConfig):
    name: Literal["garnet"] = option("garnet", NAME)

    former = {"branching": BRANCHING, "reward_share": REWARD_SHARE}


class AnyMDPConfig(RandomMDPConfig):
    name: Literal["anymdp"] = option("anymdp", NAME)

    former = {"leap": LEAP, "fall": FALL, "deviation": DEVIATION, "pitfall_share": PITFALL_SHARE}


class RandomMDP(TableEnv):
    """MDPs with drawn rules. Every episode starts in state 0. A state pays 1 or 0 when it is entered."""

    task_columns = ("mdp",)
    num_paying: int  # states that pay, none of which is the start
    goal_ends: bool  # entering one ends the episode

    def __init__(self, config: RandomMDPConfig, success: str) -> None:
        self._seeds = stream_seeds(0, config.num_tasks)
        self.starts = torch.zeros(1, dtype=torch.long)
        about = (config.num_states, config.num_actions, (0.0, 1.0), 0, config.max_episode_steps, success)
        self.spec = discrete_spec(*about)

    def draw(self, purpose: int, *shape: int) -> Tensor:
        """Uniform numbers `[N, *shape]` float64: those of a task are functions of its seed and the `purpose`."""
        numbers = torch.arange(torch.Size(shape).numel())
        return uniform(mix(self._seeds, purpose)[:, None], numbers).view(len(self._seeds), *shape).double()

    def label(self, task: Tensor) -> str:
        return f"mdp_{int(task[0])}"

    def fingerprint(self, tasks: Tensor) -> list[str]:
        """Checksum of the table."""
        tables = (self._probability, self._next_state, self._reward, self._terminated)

        def checksum(task: int) -> str:
            return hashlib.sha256(b"".join(table[task].cpu().numpy().tobytes() for table in tables)).hexdigest()[:16]

        return [checksum(task) for task in tasks[:, 0].tolist()]

    def map_view(self, task: Tensor) -> MapView:
        """The states in rows, as many as fit a square; those that pay are marked."""
        columns = int((self.num_states - 1) ** 0.5) + 1
        return MapView(-(-self.num_states // columns), columns, self.rewarded(task))


@world("garnet", GarnetConfig)
class Garnet(RandomMDP):
    """Garnets (Archibald, McKinnon and Thomas, 1995, "On the generation of Markov decision processes"): each action
    leads from each state to two other states, all sets equally likely, whose probabilities are the intervals
    beside a random cut of [0, 1]. A share of the states pays; only the clock ends an episode."""

    def __init__(self, config: GarnetConfig) -> None:
        super().__init__(config, "reward")
        num_states, num_actions = config.num_states, config.num_actions
        after = self.draw(0, num_states, num_actions, num_states).argsort(dim=-1)[..., :BRANCHING]
        cuts = self.draw(1, num_states, num_actions, BRANCHING - 1)
        ends = cuts.new_zeros(*cuts.shape[:-1], 1)
        probability = torch.cat([ends, cuts, ends + 1], dim=-1).diff(dim=-1)
        self.num_paying, self.goal_ends = max(1, round(REWARD_SHARE * num_states)), False
        paying = 1 + self.draw(2, num_states - 1).argsort(dim=-1)[:, : self.num_paying]
        pays = torch.zeros(len(after), num_states, dtype=torch.long).scatter_(1, paying, 1)
        reward = pays.gather(1, after.flatten(1)).view_as(after)
        self.set_rules(Outcomes(probability, after, reward, torch.zeros_like(reward).bool()))


@world("anymdp", AnyMDPConfig)
class AnyMDP(RandomMDP):
    """MDPs after the family AnyMDP of OmniRL (Wang et al., 2025, arXiv 2502.02869), with rewards of the goal alone.

    The states are places on a hidden line, under names that are permuted in each task; the first place is state 0. From
    place p an action leads to place p + o, -2 <= o <= 3, with a probability proportional to
    exp(-(o - c)^2 / (2 * 0.25^2)). The centres c of the actions of a place lie in A equal parts of
    [-2, 3], one in each, in an order of this place. The last place is the goal: it pays 1 and ends the episode.
    Pitfalls end it too, and pay nothing; of two neighbours at most one is a pitfall, so that there is a way."""

    def __init__(self, config: AnyMDPConfig) -> None:
        super().__init__(config, "goal")
        num_states, num_actions = config.num_states, config.num_actions
        self.num_paying, self.goal_ends = 1, True
        part = self.draw(0, num_states, num_actions).argsort(dim=-1) + self.draw(1, num_states, num_actions)
        centre = part / num_actions * (LEAP + FALL) - FALL  # [N, S, A], by place
        offset = torch.arange(-FALL, LEAP + 1)
        place = torch.arange(num_states)[:, None, None] + offset  # [S, 1, K]
        log_weight = -((offset - centre[..., None]) ** 2) / (2 * DEVIATION**2)
        inside = (place >= 0) & (place < num_states)
        weight = log_weight.softmax(dim=-1) * inside
        probability = weight / weight.sum(dim=-1, keepdim=True)
        low = self.draw(2, num_states) < PITFALL_SHARE
        low[:, 0] = False
        ends = low & ~low.roll(1, dims=1)
        ends[:, -1] = True
        name = torch.cat([torch.zeros(len(ends), 1).long(), 1 + self.draw(3, num_states - 1).argsort(dim=-1)], dim=1)
        after = place.clamp(0, num_states - 1).expand_as(probability)
        goal = after == num_states - 1
        columns = (probability, _at(name, after), goal.long(), _at(ends, after))
        task, by_name = torch.arange(len(name))[:, None], name.argsort(dim=1)
        self.set_rules(Outcomes(*(column[task, by_name] for column in columns)))


def _at(values: Tensor, place: Tensor) -> Tensor:
    """`values` `[N, S]` at the places `[N, S, A, K]`."""
    return values.gather(1, place.flatten(1)).view_as(place)
