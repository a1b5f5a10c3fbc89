"""Stage one with its updates, beside the same A2C written in JAX (`jax_a2c.py`), both on one core.

    python -m benchmarks.jax_source [--check] [KEY=VALUE ...]

Both sides play and learn from all agents of `experiment=reference` (57) and of the default (570), and return the same
columns of all transitions. XLA has one thread, may use the widest vectors of the core, and its compilation is timed
apart. The process keeps freed memory, as our programs do. Rates are per second of processor time.

`--check` trains both sides over their whole lives instead: it prints the share of agents that solve their task at the
end, and compares the transitions of the JAX program with the rules of the world.
"""

import os
import sys
import time
from collections import deque
from collections.abc import Iterable

import jax  # type: ignore  # needs benchmarks/requirements.txt
import numpy as np
import torch
from torch import Tensor

from benchmarks.jax_a2c import Transitions, make_program, new_agents
from benchmarks.measure import Report, side_by_side
from benchmarks.stage_one import CPU, UPDATES, ours, unrolls
from icrl.app.compose import load_config
from icrl.app.root import Config
from icrl.contracts import Rollout
from icrl.envs import make_env
from icrl.envs.rooms import DarkRoom
from icrl.envs.tasks import split_tasks
from icrl.recording.source_agents import SOLVED, EpisodeStatistics
from icrl.runs.device import keep_freed_memory
from icrl.sources.a2c import A2CConfig
from icrl.sources.options import num_iterations

PEER, OURS = "JAX", "ours"
EXPERIMENTS = ("reference", "default")


class Peer:
    """All agents of a configuration in JAX."""

    def __init__(self, config: Config) -> None:
        env, options = make_env(config.env), config.source
        assert isinstance(env, DarkRoom)
        assert isinstance(options, A2CConfig)
        tasks = env.all_tasks()
        self.goals = tasks[split_tasks(env, config).train].repeat_interleave(options.num_learners, dim=0)  # [L, 1]
        self._key, initial = jax.random.split(jax.random.key(config.seed))
        self._agents = new_agents(options, env, len(self.goals), initial)
        start, self._done = time.perf_counter(), np.int32(0)
        self._inputs = (self.goals[:, 0].numpy().astype(np.int32), self._key)
        program = make_program(options, env, UPDATES)
        self._run = program.lower(self._agents, *self._inputs, self._done).compile()
        self.compile_seconds = time.perf_counter() - start

    def play(self) -> Transitions:
        """Transitions of the next `UPDATES` updates."""
        self._agents, transitions, metrics = self._run(self._agents, *self._inputs, self._done)
        self._done += np.int32(UPDATES)
        jax.block_until_ready((self._agents, transitions, metrics))
        return transitions

    def work(self) -> int:
        """Play; returns the number of env steps."""
        return self.play().obs.size

    def last_rollout(self, num_updates: int) -> Rollout:
        """Play `num_updates` updates; returns the transitions `[T, L * N]` of the last `UPDATES` of them."""
        for _ in range(num_updates // UPDATES - 1):
            self.play()
        columns = (np.asarray(column).swapaxes(1, 2) for column in self.play())  # [updates, T, L, N]
        return Rollout(*(torch.from_numpy(x.reshape(len(x) * x.shape[1], -1).astype(np.int64)) for x in columns))


def solved(config: Config, num_agents: int, parts: Iterable[Rollout]) -> float:
    """Share of agents whose success over the last episodes of `parts` is at least `SOLVED`."""
    found = EpisodeStatistics(make_env(config.env).spec, num_agents, config.source.num_envs)
    for part in parts:
        found.add(part)
    return float((found.summary()["success"] >= SOLVED).mean())


def check_rules(config: Config, goals: Tensor, played: Rollout) -> None:
    """Raise `AssertionError` unless `played` `[T, L * N]` follows the rules of the world."""
    env, (obs, action) = make_env(config.env), played[:2]
    task = goals.repeat_interleave(config.source.num_envs, dim=0).expand(len(obs), -1, -1)
    _, next_obs, reward, terminated = (column[..., -1] for column in env.outcomes(task, obs, action))
    truncated = played.timestep + 1 >= env.spec.max_episode_steps
    ended = terminated | truncated
    timestep = (played.timestep + 1).masked_fill(ended, 0)
    obs_after = torch.where(ended, env.starts[0], next_obs)
    expected = (next_obs, reward, terminated, truncated, timestep[:-1], obs_after[:-1])
    found = (played.next_obs, played.reward, played.terminated, played.truncated, played.timestep[1:], obs[1:])
    assert all((one == other).all() for one, other in zip(expected, found, strict=True))


def main(arguments: list[str]) -> None:
    os.environ["XLA_FLAGS"] = (  # read when JAX is first used
        "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1 --xla_cpu_prefer_vector_width=512"
    )
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    keep_freed_memory()
    given = [part for part in arguments if part != "--check"]
    report = Report("jax_source", given)
    for experiment in EXPERIMENTS:
        overrides = [f"experiment={experiment}", *given]
        config = load_config(overrides)
        peer = Peer(config)
        title = f"{experiment}: {len(peer.goals)} agents, JAX compiled in {peer.compile_seconds:.1f} s"
        if "--check" in arguments:
            print(title)
            total = num_iterations(config.source)
            shares = {OURS: solved(config, len(peer.goals), deque(unrolls(config, CPU), UPDATES))}
            last = peer.last_rollout(total)
            check_rules(config, peer.goals, last)
            shares[PEER] = solved(config, len(peer.goals), [last])
            print(", ".join(f"{name}: {share:.3f} solve their task" for name, share in shares.items()))
        else:
            ways = {PEER: peer.work, OURS: ours(overrides)}
            report.show(title, side_by_side(ways, rounds=7, clock=time.process_time), "env step", PEER)


if __name__ == "__main__":
    main(sys.argv[1:])
