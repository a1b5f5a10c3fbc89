"""Worlds of rooms step by step, against `toymeta` and one cell at a time in plain Python."""

import itertools
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from worlds import scalar_move

from icrl.envs.core import State
from icrl.envs.rooms import NUM_ACTIONS
from icrl.randomness import stream_seeds


def check_peer(env: Any, peer_of: Callable[..., Any]) -> None:
    """Next state index, reward and end for each task, state and action in turn."""
    assert version("toymeta") == "0.0.1"
    size, tasks, theirs = env.size, env.all_tasks(), []
    for task in tasks.tolist():
        peer = peer_of(*task)
        assert peer.reset()[0] == env.starts.item()
        for has_key, cell, action in itertools.product(range(env.num_states // size**2), range(size**2), range(5)):
            peer.has_key, peer.agent_pos = bool(has_key), np.array(divmod(cell, size), dtype=np.float32)
            obs, reward, terminated, _, info = peer.step(action)
            theirs.append([info.get("has_key", 0) * size**2 + obs, int(reward), int(terminated)])
    number, state_index, action = torch.cartesian_prod(*map(torch.arange, (len(tasks), env.num_states, 5))).T
    zero = torch.zeros_like(number)
    ours = env.move(State(tasks[number], zero, zero, state_index, zero), action)
    assert torch.stack(ours, dim=1).tolist() == theirs


def check_streams(make: Callable[..., Any], option: str, value: bool, random_start: bool, size: int) -> None:
    """All fields of every step, with the `value` of `option`: whether the goal ends an episode, or the key is shown."""
    is_room, limit, start = option == "terminate_on_goal", 9, size * (size // 2) + size // 2
    env = make(**{"size": size, option: value, "random_start": random_start, "max_episode_steps": limit})
    permuted, meaning = "permutation" in env.task_columns, list(itertools.permutations(range(NUM_ACTIONS)))
    tasks = env.all_tasks()[:: 37 if permuted else 1]
    state, first = env.reset(tasks, stream_seeds(2, len(tasks)))
    cells, keys, clocks = first.obs.tolist(), [False] * len(tasks), [0] * len(tasks)
    ends = set()
    for action in torch.randint(NUM_ACTIONS, (60, len(tasks)), generator=torch.Generator().manual_seed(1)):
        state, step = env.step(state, action)
        for stream, task in enumerate(tasks.tolist()):
            move, had_key = int(action[stream]), keys[stream]
            cell = scalar_move(size, cells[stream], meaning[task[1]][move] if permuted else move)
            paid = cell == (task[1] if had_key else task[0])
            terminated = paid and (value if is_room else had_key)
            has_key = not is_room and (had_key or paid)
            clock = clocks[stream] + 1
            truncated = clock == limit
            final_obs = obs = cell + size**2 * (has_key and value)
            if terminated or truncated:
                cell = obs = int(step.obs[stream]) if random_start else start
                assert cell < size**2
                has_key, clock = False, 0
            got = tuple(field[stream].item() for field in step[:-1])
            assert got == (obs, int(paid), terminated, truncated, final_obs, clock)
            cells[stream], keys[stream], clocks[stream] = cell, has_key, clock
            ends.add((terminated, truncated))
    assert torch.equal(state.timestep, step.timestep)
    assert ends == {(False, False), (False, True)} | ({(True, False), (True, True)} if value or not is_room else set())


def check_starts(env: Any) -> None:
    """Random starts in 3 x 3 cells, with episodes of one step, change with episode and seed and reach every cell."""
    state, step = env.reset(env.all_tasks()[:1].repeat(40, 1), stream_seeds(6, 40))
    starts = [step.obs]
    for _ in range(39):
        state, step = env.step(state, torch.zeros(40, dtype=torch.long))
        starts.append(step.obs)
    table = torch.stack(starts)  # [episode, stream]
    counts = table.flatten().bincount()
    assert len(counts) == 9 and counts.min() > 130 and counts.max() < 226  # 1600 draws: 178 +- 4 standard deviations
    assert len(table.unique(dim=0)) == len(table.unique(dim=1).T) == 40
