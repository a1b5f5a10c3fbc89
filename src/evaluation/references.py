"""What to compare a policy with: random, optimal, and a searcher with a perfect memory.

The policies keep the `Policy` protocol. Optimal and searcher are for rooms where an observation is the cell and a task
the goal's cell. Random and optimal also have exact expectations, by dynamic programming instead of play.

B streams, N tasks, S cells, A actions, M steps an episode.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from src.contracts import Step
from src.envs.base import State, TensorEnv

_TASKS_AT_ONCE = 16  # bounds the memory of the dynamic programming in large rooms


class RandomPolicy:
    """Every action with the same probability."""

    def __init__(self, num_actions: int) -> None:
        self.num_actions = num_actions

    def initial_carry(self, num_streams: int) -> tuple[()]:
        return ()

    def act(self, carry: tuple[()], step: Step, noise: Tensor) -> tuple[Tensor, tuple[()]]:
        return (noise * self.num_actions).long(), carry


class OptimalPolicy:
    """The best play of who knows the goal: `tasks` `[B, task_dim]` are those of the streams."""

    def __init__(self, env: TensorEnv, tasks: Tensor) -> None:
        self.env = env
        self.tasks = tasks

    def initial_carry(self, num_streams: int) -> tuple[()]:
        if num_streams != len(self.tasks):
            raise ValueError(f"{num_streams} streams for {len(self.tasks)} tasks")
        return ()

    def act(self, carry: tuple[()], step: Step, noise: Tensor) -> tuple[Tensor, tuple[()]]:
        return _toward(self.env, self.tasks[:, 0], step), carry


class SearcherCarry(NamedTuple):
    """What the searcher knows of each stream."""

    candidate: Tensor  # [B, S] bool: may still be the goal
    goal: Tensor  # [B] int64, -1 until found


class Searcher:
    """Learns in context with a perfect memory: goes to the nearest cell that may be the goal, ties broken by the noise,
    until a reward shows the goal, and takes a shortest path to it ever after, in all episodes of the stream.

    A cell is ruled out when a move ended there without reward. The cell an episode starts on is not: it pays nothing
    then even where it is the goal.
    """

    def __init__(self, env: TensorEnv) -> None:
        self.env = env

    def initial_carry(self, num_streams: int) -> SearcherCarry:
        possible = torch.zeros(self.env.spec.num_obs, dtype=torch.bool)
        possible[self.env.all_tasks()[:, 0]] = True
        return SearcherCarry(possible.repeat(num_streams, 1), torch.full((num_streams,), -1))

    def act(self, carry: SearcherCarry, step: Step, noise: Tensor) -> tuple[Tensor, SearcherCarry]:
        goal = torch.where(step.reward > 0, step.final_obs, carry.goal.to(step.obs.device))
        moved = (step.timestep > 0) | step.terminated | step.truncated  # false before a stream's first action
        here = carry.candidate.to(goal.device)  # a fresh carry does not know where its streams live
        candidate = torch.where(moved[:, None], here.scatter(1, step.final_obs[:, None], False), here)

        cells, width = torch.arange(self.env.spec.num_obs, device=goal.device), self.env.spec.width
        row, column = step.obs[:, None] // width, step.obs[:, None] % width
        distance = (row - cells // width).abs() + (column - cells % width).abs()  # [B, S]
        distance = distance.masked_fill(~candidate, self.env.spec.num_obs)
        nearest = distance == distance.amin(dim=1, keepdim=True)
        choice = (noise * nearest.sum(dim=1)).long()
        target = (nearest.cumsum(dim=1) <= choice[:, None]).sum(dim=1)  # the choice-th of the nearest cells
        return _toward(self.env, torch.where(goal >= 0, goal, target), step), SearcherCarry(candidate, goal)


class Expectation(NamedTuple):
    """Exact values of one episode, `[N]` float64 on the CPU each."""

    episode_return: Tensor
    success: Tensor  # probability of reaching the goal
    steps_to_goal: Tensor  # M where the goal is never reached


def random_exact(env: TensorEnv, tasks: Tensor) -> Expectation:
    """What the uniformly random policy can expect on `tasks` `[N, task_dim]`."""
    num_actions = env.spec.num_actions
    return _exact(
        env,
        tasks,
        lambda state: torch.full((*state.place.shape, num_actions), 1 / num_actions, dtype=torch.float64),
    )


def optimal_exact(env: TensorEnv, tasks: Tensor) -> Expectation:
    """What the optimal policy can expect on `tasks` `[N, task_dim]`; averaged over the starts where they vary."""
    num_actions = env.spec.num_actions
    return _exact(
        env,
        tasks,
        lambda state: torch.nn.functional.one_hot(env.optimal_action(state), num_actions).double(),
    )


def _exact(env: TensorEnv, tasks: Tensor, policy: Callable[[State], Tensor]) -> Expectation:
    """Expectations of a stationary `policy`, which maps states `[N, S]` to probabilities `[N, S, A]`."""
    parts: list[Expectation] = []
    for chunk in tasks.split(_TASKS_AT_ONCE):
        place = torch.arange(env.spec.num_obs, device=chunk.device).expand(len(chunk), -1)
        zero = torch.zeros_like(place)
        state = State(chunk[:, None].expand(-1, env.spec.num_obs, -1), zero, zero, place, zero)
        probability = policy(state).cpu()
        reward = _reward_by_step(env, state, probability, first_only=False)
        first = _reward_by_step(env, state, probability, first_only=True)
        success = first.sum(dim=0)
        num_steps = env.spec.max_episode_steps
        when = torch.arange(1, num_steps + 1, dtype=first.dtype)
        parts.append(Expectation(reward.sum(dim=0), success, when @ first + num_steps * (1 - success)))
    return Expectation(*(torch.cat(part) for part in zip(*parts, strict=True)))


def _reward_by_step(env: TensorEnv, state: State, probability: Tensor, first_only: bool) -> Tensor:
    """Expected reward of each step of an episode, `[M, N]`: the probability mass over cells flows along the moves.

    With `first_only` an episode counts as over at its first reward: the probability that it comes at that step."""
    action = torch.arange(env.spec.num_actions, device=state.place.device)
    task = state.task[:, :, None].expand(-1, -1, len(action), -1)
    next_place, reward, terminated = (part.cpu() for part in env.move(task, state.place[:, :, None], action))
    over = reward > 0 if first_only else terminated  # [N, S, A]
    mass = torch.zeros(state.place.shape, dtype=probability.dtype)
    if env.fixed_start is None:
        mass += 1 / env.spec.num_obs
    else:
        mass[:, env.fixed_start] = 1
    by_step: list[Tensor] = []
    for _ in range(env.spec.max_episode_steps):
        flow = mass[:, :, None] * probability
        by_step.append((flow * reward).sum(dim=(1, 2)))
        flow = flow.masked_fill(over, 0.0)
        mass = torch.zeros_like(mass).scatter_add(1, next_place.flatten(1), flow.flatten(1))
    return torch.stack(by_step)


def _toward(env: TensorEnv, cell: Tensor, step: Step) -> Tensor:
    """First action of a shortest path to `cell` `[B]`, or stay."""
    unused = torch.zeros_like(step.obs)  # seed and episode decide only where episodes start
    return env.optimal_action(State(cell[:, None], unused, unused, step.obs, step.timestep))
