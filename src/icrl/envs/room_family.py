"""Dark rooms of any size, place and start in one square grid, which trials visit beside the room of a run. N rooms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from icrl.envs.core import Family, Outcomes, State, TensorEnv, certain
from icrl.randomness import integers, mix
from icrl.spaces import discrete_spec

if TYPE_CHECKING:
    from icrl.envs.rooms import DarkRoom

_GOAL, _TOP, _LEFT, _SIZE, _START = range(5)  # columns of a task


def moves() -> Tensor:
    """Rows and columns that each action of a room moves, `[actions, 2]`."""
    return torch.tensor([(0, 0), (-1, 0), (0, 1), (1, 0), (0, -1)])


class RoomFamily(TensorEnv):
    """Dark rooms in a square grid of `side` cells. Observations are cells of the grid (row * side + column).

    A task is `[goal, top, left, size, start]`: the room covers `size` rows from `top` and `size` columns from `left`.
    Goal and start are cells of the grid; a goal of `side**2` is nowhere, a start of it is anywhere in the room. Actions
    and rewards are those of `DarkRoom`. No best action is known here."""

    task_columns = ("goal", "top", "left", "size", "start")
    has_planner = False

    def __init__(self, side: int, max_episode_steps: int, terminate_on_goal: bool) -> None:
        self.side, self.num_cells, self.terminate_on_goal = side, side**2, terminate_on_goal
        self._moves = moves()
        success = "goal" if terminate_on_goal else "reward"
        self.spec = discrete_spec(self.num_cells, len(self._moves), (0.0, 1.0), side, max_episode_steps, success)

    def start(self, task: Tensor, seed: Tensor, episode: Tensor) -> Tensor:
        start = task[:, _START]
        return torch.where(start < self.num_cells, start, self._any_cell(task, mix(seed, episode)))

    def outcomes(self, task: Tensor, state_index: Tensor, action: Tensor) -> Outcomes:
        first, change = task[..., _TOP:_SIZE], self._moves[action]
        last = first + task[..., _SIZE:_START] - 1
        place = torch.stack([state_index // self.side, state_index % self.side], dim=-1)
        row, column = (place + change).clamp(first, last).unbind(-1)
        state_index = row * self.side + column
        on_goal = state_index == task[..., _GOAL]
        return certain(state_index, on_goal.long(), on_goal if self.terminate_on_goal else torch.zeros_like(on_goal))

    def optimal_action(self, state: State) -> Tensor:
        return self.spec.unknown_action(state.timestep)

    def unsolvable(self, tasks: Tensor) -> Tensor:
        return tasks.index_fill(1, torch.tensor(_GOAL, device=tasks.device), self.num_cells)

    def draw(self, seeds: Tensor, sizes: tuple[int, int], closed: Tensor) -> Tensor:
        """A room for each of `seeds` `[N]`: its size between both `sizes`, its place, its start and its goal uniform.

        The goal is nowhere if it would be on one of the `closed` cells of the grid, or on the start."""
        size = sizes[0] + integers(seeds, 0, sizes[1] - sizes[0] + 1)
        top, left = (integers(seeds, counter, self.side - size + 1) for counter in (1, 2))
        room = torch.stack([size, top, left, size], dim=1)
        start, goal = (self._any_cell(room, mix(seeds, counter)) for counter in (3, 4))
        goal = goal.masked_fill(torch.isin(goal, closed) | (goal == start), self.num_cells)
        return torch.stack([goal, top, left, size, start], dim=1)

    def _any_cell(self, task: Tensor, seed: Tensor) -> Tensor:
        """A uniform cell `[N]` of the room of each `task` `[N, 4 or more]`."""
        row, column = (task[:, 1 + axis] + integers(seed, axis, task[:, _SIZE]) for axis in (0, 1))
        return row * self.side + column


def family_of(room: DarkRoom, side: int, corner: int, sizes: tuple[int, int], hidden: Tensor) -> Family:
    """Rooms of other `sizes` in a grid of `side` cells, which has the `room` at row and column `corner`. No goal of
    them is where the `room` has a goal of the tasks `hidden` `[N, 1]`."""
    world = RoomFamily(side, room.spec.max_episode_steps, room.terminate_on_goal).to(hidden.device)

    def place(cells: Tensor) -> Tensor:
        """Cells of the grid for cells of the room; the one outside of it is nowhere."""
        inside = (corner + cells // room.size) * side + corner + cells % room.size
        return torch.where(cells < room.num_cells, inside, world.num_cells)

    def own(tasks: Tensor) -> Tensor:
        about = torch.stack([tasks.new_tensor(corner), tasks.new_tensor(corner), tasks.new_tensor(room.size)])
        start = tasks.new_tensor(world.num_cells) if room.random_start else place(room.starts.to(tasks.device))
        start = start.expand(len(tasks))[:, None]
        return torch.cat([place(tasks[:, :1]), about.expand(len(tasks), -1), start], dim=1)

    closed = place(hidden[:, 0])

    def draw(seeds: Tensor) -> Tensor:
        return world.draw(seeds, sizes, closed)

    return Family(world, own, draw)
