"""Implicit Q-learning on a world whose values are known by dynamic programming."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from critics import config_of, fresh_critic
from torch import Tensor

from icrl.app.compose import compose_config
from icrl.config.schedules import Clock
from icrl.contracts import Batch, Step
from icrl.envs import make_env
from icrl.envs.rollout import rollout, start_streams
from icrl.envs.rooms import next_cells
from icrl.extensions.offline_rl.critic import Critic
from icrl.extensions.offline_rl.ilql import ImplicitQLearning
from icrl.extensions.offline_rl.options import OfflineConfig
from icrl.nn.gpt import Window, context_of
from icrl.randomness import Noise, stream_seeds
from icrl.runs.distributed import Ranks
from icrl.training.updates import Updater

CPU = torch.device("cpu")
WORLD = compose_config(
    OfflineConfig,
    [
        *("env=tiny_room", "env.size=3", "env.max_episode_steps=6", "tasks.num_train=3"),
        *("data.num_development_tasks=0", "trainer.evaluate=false"),
        *("model.context_len=6", "model.embed_dim=16", "model.num_layers=1", "model.num_heads=2", "model.ff_dim=32"),
        *("model.position=env_time", "model.obs_encoding=cell", "data.kept_steps=0"),
        *("critic=ilql", "critic.conservative_scaling=0", "critic.return_lambda=0"),
        *("critic.target_update_rate=0.3", "optimizer=adamw", "optimizer.weight_decay=0"),
        "optimizer.learning_rate={kind: linear, progress: percent, points: [[0, 0.01], [0.5, 0.01], [1, 0.0005]]}",
    ],
)
ENV, SIZE, LIMIT, GOAL, START = make_env(WORLD.env), 3, 6, 1, 4  # the goal is at most two moves away


class Chance:
    def initial_carry(self, num_streams: int) -> None: ...

    def act(self, carry: None, step: Step, noise: Tensor) -> tuple[Tensor, None]:
        return (noise * 5).long(), None


def random_play(number: int, num_steps: int, goals: Sequence[int] = (GOAL,)) -> dict[str, Tensor]:
    """Columns `[number, num_steps]` of random play, with one goal after the other."""
    tasks = torch.tensor(goals).repeat(-(-number // len(goals)))[:number, None]
    streams = start_streams(Chance(), ENV, tasks, stream_seeds(0, number))
    played, _ = rollout(Chance(), ENV, streams, num_steps, Noise(stream_seeds(1, number)))
    return {name: column.T for name, column in played._asdict().items()}


def windows_of(columns: dict[str, Tensor], number: int, length: int) -> Batch:
    rows, num_steps = columns["obs"].shape
    row, start = torch.randint(rows, (number, 1)), torch.randint(num_steps - length + 1, (number, 1))
    window = {name: column[row, start + torch.arange(length)] for name, column in columns.items()}
    return Batch(**window, weight=torch.ones(number, length), training_reward=window["reward"])


def expectile_of(values: list[float], expectile: float) -> float:
    """The v at which the weighted sum of (value - v) is 0."""
    v = np.mean(values)
    for _ in range(50):
        v = np.average(values, weights=np.where(np.array(values) >= v, expectile, 1 - expectile))
    return float(v)


@torch.no_grad()
def values_on(seen: Batch, critic: Critic) -> tuple[Tensor, Tensor]:
    """Q of the actions taken, mean of both, and V."""
    values = critic.target(context_of(Window(*seen[:3], seen.timestep)))
    return values.q.mean(0).gather(-1, seen.action[..., None])[..., 0], values.value


def exact_values(config: OfflineConfig, value_of: Callable[[list[float]], float]) -> tuple[Tensor, Tensor]:
    """Q `[time, cell, action]` and V `[time, cell]` by dynamic programming; V is `value_of` the Q of a cell."""
    critic, to = config.critic, next_cells(SIZE).view(SIZE**2, 5).tolist()
    q, value = np.zeros((LIMIT, SIZE**2, 5)), np.zeros((LIMIT, SIZE**2))
    for _ in range(60):
        for time, cell, action in np.ndindex(q.shape):
            led = to[cell][action]
            won, over = led == GOAL, led == GOAL or time == LIMIT - 1
            following = value[min(time + 1, LIMIT - 1), led]  # within an episode the clock is no end
            if critic.horizon == "episode":
                following *= not won
            elif over:
                following = value[0, START]
            q[time, cell, action] = float(won) + critic.discount_factor * following
        value = np.array([[value_of(of_cell) for of_cell in of_time] for of_time in q.tolist()])
    return torch.from_numpy(q), torch.from_numpy(value)


def learned_from(columns: dict[str, Tensor], config: OfflineConfig, num_updates: int, size: int = 64) -> Critic:
    """A critic after `num_updates` updates on `size` windows."""
    torch.manual_seed(0)
    critic = fresh_critic(config, ENV.spec).train()
    updater = Updater(critic, ImplicitQLearning(critic), config, CPU, Ranks(), critic.after_update)
    for update in range(num_updates):
        clock = Clock(update / num_updates, update, 0, update)
        updater.update(windows_of(columns, size, config.model.context_len), clock)
    return critic.eval()


@pytest.mark.parametrize(
    ("backup", "horizon", "expectile"), [("max", "episode", 0.5), ("expectile", "across_episodes", 0.9)]
)
def test_values_of_a_small_world_become_the_true_ones(backup: str, horizon: str, expectile: float) -> None:
    """Error over the actions, cells and times of random play: 2 % of the largest value on average, at most 8 %."""
    form = {"backup": backup, "v_loss_scaling": float(backup == "expectile"), "expectile": expectile}
    form |= {"horizon": horizon, "discount_per": "step", "discount_factor": 0.6}
    config = config_of(WORLD, critic=form)
    columns = random_play(1000, 40)
    critic = learned_from(columns, config, 600)
    seen = windows_of(columns, 400, 6)
    q, value = values_on(seen, critic)
    true_q, true_value = exact_values(config, max if backup == "max" else lambda q: expectile_of(q, expectile))
    time, cell, action = seen.timestep, seen.obs, seen.action
    for error in (q - true_q[time, cell, action], value - true_value[time, cell]):
        assert error.abs().mean() < 0.02 * true_q.max() and error.abs().max() < 0.08 * true_q.max()


def test_values_do_not_depend_on_the_place_in_a_window() -> None:
    """With random play and unknown goals. To count last steps only if they won would raise their value."""
    form = {"horizon": "episode", "discount_factor": 0.6, "expectile": 0.5}
    config = config_of(WORLD, model={"position": "learned"}, encoder={"position": "learned"}, critic=form)
    columns = random_play(400, 40, [goal for goal in range(SIZE**2) if goal != START])
    critic = learned_from(columns, config, 200, 32)
    of_place = values_on(windows_of(columns, 1000, 6), critic)[0].mean(0)
    assert (of_place.max() - of_place.min()).item() < 0.05
