"""Streams that change their task between episodes."""

from typing import Any

import pytest
import torch
from worlds import room

from icrl.app.compose import load_config
from icrl.contracts import ConfigError
from icrl.envs.rooms import DarkRoom, DarkRoomConfig
from icrl.envs.tasks import changing
from icrl.randomness import stream_seeds


def test_streams_change_their_task_between_episodes() -> None:
    """Only at ends of episodes, at the given share of them, to training tasks that are not set aside; two halves of a
    life equal the whole, and other streams do not matter."""
    env, num_streams = room(size=5, max_episode_steps=4), 300
    tasks = env.all_tasks()[:12]
    config: Any = load_config(["source.task_change=0.3", "data.num_development_tasks=2"])
    world, seeds = changing(env, config, env.all_tasks(), list(range(12))), stream_seeds(0, num_streams)
    assert changing(env, load_config([]), env.all_tasks(), list(range(12))) is env

    def life(streams: int, parts: list[int]) -> tuple[list[Any], list[Any]]:
        state, step = world.reset(tasks[:1].expand(streams, 1), seeds[:streams])
        states, steps = [state], [step]
        for part in parts:
            for _ in range(part):
                state, step = world.step(type(state)(*(column.clone() for column in state)), env.optimal_action(state))
                states.append(state)
                steps.append(step)
        return states, steps

    states, steps = life(num_streams, [200])
    goals = torch.stack([state.task[:, 0] for state in states])
    ended = torch.stack([step.terminated | step.truncated for step in steps[1:]])
    changed = goals[1:] != goals[:-1]
    assert not changed[~ended].any() and set(goals.flatten().tolist()) == set(tasks[:10, 0].tolist())
    assert changed[ended].double().mean().item() == pytest.approx(0.3 * 9 / 10, abs=0.02)
    again, _ = life(5, [80, 120])
    assert torch.equal(again[-1].task, states[-1].task[:5])
    best = torch.stack([step.optimal_action for step in steps])
    assert torch.equal(best, torch.stack([env.optimal_action(state) for state in states]))


def test_a_world_whose_streams_are_made_for_a_task_cannot_change_it() -> None:
    class Own(DarkRoom):
        def step(self, state: Any, action: Any) -> Any:
            return super().step(state, action)

    config, env = load_config(["source.task_change=0.5"]), Own(DarkRoomConfig())
    with pytest.raises(ConfigError, match=r"task_change=0\.5: a stream of env"):
        changing(env, config, env.all_tasks(), [0, 1])
    with pytest.raises(ConfigError, match=r"task_change=0\.5 needs source\.async_unroll=false"):
        load_config(["source.task_change=0.5", "source.async_unroll=true"])
