"""Dark rooms: square rooms in which the agent sees its cell (row * size + column) but never its goals.

Actions: 0 stay, 1 up, 2 right, 3 down, 4 left, clipped at the walls. DarkRoom is step-for-step equal to that of
`toymeta` 0.0.1. Trials also visit rooms of any size, place and start in one square grid, a `RoomFamily`.
"""

from __future__ import annotations

from functools import cache
from itertools import permutations
from typing import Literal

import torch
from torch import Tensor

from icrl.config.options import option
from icrl.envs.core import NAME, EnvConfig, Family, MapView, Outcomes, State, TensorEnv, certain, look_up, world
from icrl.randomness import integers, mix
from icrl.spaces import discrete_spec

NUM_ACTIONS = 5
STAY, UP, RIGHT, DOWN, LEFT = range(NUM_ACTIONS)


class RoomConfig(EnvConfig):
    size: int = option(9, "side of the room in cells", ge=2, le=64)
    random_start: bool = option(False, "start each episode on a random cell instead of the centre")


class DarkRoomConfig(RoomConfig):
    name: Literal["dark_room"] = option("dark_room", NAME)
    terminate_on_goal: bool = option(True, "reaching the goal ends the episode")
    permute_actions: bool = option(False, "a task is a goal and a permutation of the five actions")


class Room(TensorEnv):
    """World in a square room. Episodes start in the centre or anywhere."""

    goal_columns: tuple[str, ...]  # the first columns of a task: the cells to reach, in this order

    def __init__(self, config: RoomConfig, num_layers: int, success: str) -> None:
        self.size, self.num_cells, self.random_start = config.size, config.size**2, config.random_start
        centre = (self.size // 2) * self.size + self.size // 2
        self.starts = torch.arange(self.num_cells) if config.random_start else torch.tensor([centre])
        self._next_cell = next_cells(self.size)
        num_obs = num_layers * self.num_cells
        self.spec = discrete_spec(num_obs, NUM_ACTIONS, (0.0, 1.0), self.size, config.max_episode_steps, success)

    def label(self, task: Tensor) -> str:
        places = ((name, *divmod(int(cell), self.size)) for name, cell in zip(self.goal_columns, task, strict=False))
        return "_".join(f"{name}_{row}_{column}" for name, row, column in places)

    def map_view(self, task: Tensor) -> MapView:
        return MapView(self.size, self.size, tuple(task[: len(self.goal_columns)].tolist()))

    def goal_cell(self, tasks: Tensor) -> Tensor:
        return tasks[:, len(self.goal_columns) - 1]


@world("dark_room", DarkRoomConfig)
class DarkRoom(Room):
    """Find a goal: the reward is 1 if the agent stands on it after the move.

    That ends the episode, or in the classic variant (Laskin et al., 2022) pays at each step on the goal. A task is the
    goal's cell, `[B, 1]`, or with permuted actions also the number of a permutation, `[B, 2]`: action a does what
    `permutation[a]` says, so the agent has to find out what the actions mean."""

    goal_columns = ("goal",)

    def __init__(self, config: DarkRoomConfig) -> None:
        super().__init__(config, 1, "goal" if config.terminate_on_goal else "reward")
        self.terminate_on_goal, self.permute_actions = config.terminate_on_goal, config.permute_actions
        self.task_columns = ("goal", "permutation") if config.permute_actions else ("goal",)
        self._meaning = torch.tensor(list(permutations(range(NUM_ACTIONS))))  # [permutations, actions]
        self._inverse = self._meaning.argsort(dim=1)

    def all_tasks(self) -> Tensor:
        """Every task but those with the goal on the only start, where it would be reached at once."""
        cells = torch.arange(self.num_cells)
        goals = cells if self.random_start else cells[cells != self.starts.cpu()]
        return torch.cartesian_prod(goals, torch.arange(len(self._meaning))) if self.permute_actions else goals[:, None]

    def unsolvable(self, tasks: Tensor) -> Tensor:
        """`tasks` `[N, task_dim]` with a goal outside the room."""
        return tasks.index_fill(1, torch.tensor(0, device=tasks.device), self.num_cells)

    def family(self, side: int, corner: int, sizes: tuple[int, int], hidden: Tensor) -> Family | None:
        return None if self.permute_actions else RoomFamily(self, side, corner, sizes, hidden)

    def outcomes(self, task: Tensor, state_index: Tensor, action: Tensor) -> Outcomes:
        if self.permute_actions:
            action = self._meaning[task[..., 1], action]
        state_index = look_up(self._next_cell, torch.add(action, state_index, alpha=NUM_ACTIONS))
        on_goal = state_index == task[..., 0]
        return certain(state_index, on_goal.long(), on_goal if self.terminate_on_goal else torch.zeros_like(on_goal))

    def optimal_action(self, state: State) -> Tensor:
        move = first_move(state.inner, state.task[..., 0], self.size)
        return self._inverse[state.task[..., 1], move] if self.permute_actions else move

    def label(self, task: Tensor) -> str:
        meaning = "".join(map(str, self._meaning[task[1]].tolist())) if self.permute_actions else ""
        return super().label(task) + (f"_actions_{meaning}" if meaning else "")

    def fingerprint(self, tasks: Tensor) -> list[str]:
        """Goal and permutation; a goal alone is the same task as with the identity."""
        identity = tasks.new_zeros(len(tasks), 1)
        return super().fingerprint(tasks if self.permute_actions else torch.cat([tasks, identity], dim=1))


def next_cells(size: int) -> Tensor:
    """Cell that each action leads to from each cell, clipped at the walls, `[cells * actions]`."""
    cells, change = torch.arange(size**2)[:, None], moves()
    row, column = (cells // size + change[:, 0]).clamp(0, size - 1), (cells % size + change[:, 1]).clamp(0, size - 1)
    return (row * size + column).flatten()


def first_move(cell: Tensor, target: Tensor, size: int) -> Tensor:
    """First action of a shortest path: rows first, then columns, then stay. A target of `size**2`, the cell after the
    last one, is outside of the room."""
    here, there, moves = _move_tables(size, cell.device)
    return look_up(moves, look_up(there, target) - look_up(here, cell))


@cache
def _move_tables(size: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Numbers of cells as starts and as targets, `[cells + 1]` each, and the first action of a shortest path by the
    difference of the two numbers, which stands for a difference of rows and one of columns."""
    cells, span = torch.arange(size**2 + 1, device=device), 2 * size - 1
    here = cells // size * span + cells % size
    rows, columns = (torch.arange(1 - size, size + more, device=device) for more in (1, 0))
    vertical = torch.where(rows < 0, UP, torch.where(rows > 0, DOWN, STAY))[:, None]
    horizontal = torch.where(columns < 0, LEFT, torch.where(columns > 0, RIGHT, STAY))
    return here, here + (size - 1) * (span + 1), torch.where(vertical != STAY, vertical, horizontal).flatten()


_GOAL, _TOP, _LEFT, _SIZE, _START = range(5)  # columns of a task


def moves() -> Tensor:
    """Rows and columns that each action of a room moves, `[actions, 2]`."""
    return torch.tensor([(0, 0), (-1, 0), (0, 1), (1, 0), (0, -1)])


class RoomFamily(Family):
    """Dark rooms in a square grid of `side` cells, which has the `room` at row and column `corner`. Observations are
    cells of the grid (row * side + column).

    A task is `[goal, top, left, size, start]`: the room covers `size` rows from `top` and `size` columns from `left`.
    Goal and start are cells of the grid; a goal of `side**2` is nowhere, a start of it is anywhere in the room. Actions
    and rewards are those of `DarkRoom`. No best action is known here."""

    task_columns = ("goal", "top", "left", "size", "start")
    has_planner = False

    def __init__(self, room: DarkRoom, side: int, corner: int, sizes: tuple[int, int], hidden: Tensor) -> None:
        """Drawn rooms have between both `sizes` rows, and no goal where the tasks `hidden` `[N, 1]` have theirs."""
        self.side, self.num_cells, self.terminate_on_goal = side, side**2, room.terminate_on_goal
        self._room, self._corner, self._sizes = room, corner, sizes
        self._moves, self._closed = moves(), self._in_grid(hidden[:, 0])
        success, num_steps = room.spec.success, room.spec.max_episode_steps
        self.spec = discrete_spec(self.num_cells, NUM_ACTIONS, (0.0, 1.0), side, num_steps, success)
        self.to(hidden.device)

    def _in_grid(self, cells: Tensor) -> Tensor:
        """Cells of the grid for cells of the room; the one outside of it is nowhere."""
        size, corner = self._room.size, self._corner
        inside = (corner + cells // size) * self.side + corner + cells % size
        return torch.where(cells < self._room.num_cells, inside, self.num_cells)

    def translated(self, tasks: Tensor) -> Tensor:
        start = self.num_cells if self._room.random_start else int(self._in_grid(self._room.starts))
        place = tasks.new_tensor([self._corner, self._corner, self._room.size, start])
        return torch.cat([self._in_grid(tasks[:, :1]), place.expand(len(tasks), -1)], dim=1)

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

    def draw(self, seeds: Tensor) -> Tensor:
        """A room for each of `seeds` `[N]`: its size, its place, its start and its goal uniform. The goal is nowhere if
        it would be on a hidden goal or on the start."""
        least, most = self._sizes
        size = least + integers(seeds, 0, most - least + 1)
        top, left = (integers(seeds, counter, self.side - size + 1) for counter in (1, 2))
        room = torch.stack([size, top, left, size], dim=1)
        start, goal = (self._any_cell(room, mix(seeds, counter)) for counter in (3, 4))
        goal = goal.masked_fill(torch.isin(goal, self._closed) | (goal == start), self.num_cells)
        return torch.stack([goal, top, left, size, start], dim=1)

    def _any_cell(self, task: Tensor, seed: Tensor) -> Tensor:
        """A uniform cell `[N]` of the room of each `task` `[N, 4 or more]`."""
        row, column = (task[:, 1 + axis] + integers(seed, axis, task[:, _SIZE]) for axis in (0, 1))
        return row * self.side + column
