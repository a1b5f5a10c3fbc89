"""The loop of stage one against itself written out, and its clock against counting."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from probes import CPU, changed
from small_histories import MARK
from stage_one import root_with_others
from torch import Tensor

from icrl.app.compose import load_config
from icrl.config.schedules import Clock
from icrl.contracts import Sample, Step, UpdateResult
from icrl.envs import make_env
from icrl.envs.rollout import rollout
from icrl.randomness import stream_seeds
from icrl.sources.collect import UnrollWorker, collect, make_experience, make_learners
from icrl.sources.learners import Learner
from icrl.sources.options import SourceConfig, clock_of, num_iterations, own_windows

SMALL = ("env.size=4", "env.max_episode_steps=6", "source.num_learners=2", "source.num_envs=2")
CONFIG: Any = load_config([*SMALL, "source.hidden_size=8", "source.unroll_length=4"])
TABULAR: Any = load_config([*SMALL, "source=q_learning"])
ENV = make_env(CONFIG.env)


class Recorder(Learner):
    """Learners that act on the noise alone and keep their samples."""

    def __init__(self, num_learners: int) -> None:
        super().__init__(TABULAR.source, ENV.spec, stream_seeds(0, num_learners), CPU)
        self.updates: list[tuple[Clock, Sample]] = []
        self.clocks: list[Clock] = []  # at each step

    def act(self, carry: tuple[()], step: Step, noise: Tensor) -> tuple[Tensor, tuple[()]]:
        self.clocks.append(self.clock)
        return (noise * 5).long(), carry

    def action_probabilities(self, step: Step) -> Tensor:
        return torch.tensor([[0.1, 0.2, 0.4, 0.0, 0.3]]).expand(len(step.obs), -1)

    def update(self, sample: Sample) -> UpdateResult:
        self.updates.append((self.clock, sample))
        td_error = sample.rollout.obs.float().mean(0)
        return UpdateResult({"number": torch.full((self.num_learners,), len(self.updates))}, td_error)


def test_learners_do_not_share_their_random_numbers() -> None:
    """Two learners of one task, and a run with another seed, are all different."""
    env, lives = make_env(changed(CONFIG.env, random_start=True)), []
    for seed in (0, 1):
        learner, streams, noise = make_learners(changed(CONFIG, seed=seed), env, env.all_tasks()[[3]], CPU)
        lives += rollout(learner, env, streams, 20, noise)[0].obs.T.tolist()
    assert len({tuple(life) for life in lives}) == 8


@st.composite
def paces(draw: st.DrawFn) -> SourceConfig:
    """Settings that do not conflict: windows of the unroll divide it, batches the windows."""
    num_envs, kind = draw(st.integers(1, 4)), draw(st.sampled_from(["unroll", "sweep", "draw"]))
    offline = draw(st.booleans())
    changes: dict[str, Any] = {}
    if kind == "unroll":
        num_windows, batches = draw(st.integers(1, 3)), draw(st.integers(int(offline), 3))
        length = draw(st.integers(1, 3)) if offline or draw(st.booleans()) else 0
        broken = length == 0 or (length == 1 and draw(st.booleans()))  # a fraction: unrolls of different lengths
        unroll_length = draw(st.integers(10, 35)) / 10 if broken else num_windows * length
        windows = num_envs * (1 if broken else num_windows)
        assume(not batches or windows % batches == 0)
        size = windows // batches if batches else 0
    else:
        unroll_length, capacity = draw(st.integers(10, 35)) / 10, draw(st.integers(1, 12))
        length, size = draw(st.integers(0, capacity)), draw(st.integers(int(offline or kind == "draw"), 5))
        changes = {"clear_replay_buffer": False, "replay_buffer_length": capacity}
        changes |= {"whole_replay_buffer_training": kind == "sweep"}
        changes |= {"priority_replay": kind == "draw" and draw(st.booleans())}
    before = draw(st.integers(0, 3)) if offline else 0
    if offline:
        changes |= {"offline_buffer_dir": ["others"], "rl_train_after_update_steps": before}
    changes |= {"num_envs": num_envs, "unroll_length": unroll_length, "mini_batch_length": length}
    changes |= {"initial_collect_steps": draw(st.integers(0, 30)), "mini_batch_size": size, "num_env_steps": 0}
    changes["num_iterations"] = before + draw(st.integers(1, 7))
    if kind != "unroll" and draw(st.booleans()):  # the last iterations may learn from the replay alone
        most = int(unroll_length * (changes["num_iterations"] - before))
        changes["num_env_steps"] = num_envs * draw(st.integers(1, most))
        assume(changes["initial_collect_steps"] < changes["num_env_steps"])
    return changed(TABULAR.source, num_updates_per_train_iter=draw(st.integers(1, 3)), **changes)


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with histories of the first task."""
    return root_with_others(tmp_path_factory.mktemp("others"), TABULAR, [0], 3)


@settings(max_examples=50)
@given(source=paces())
def test_the_clock_counts_what_is_done(others: Path, source: Any) -> None:
    """Env steps and updates, iteration by iteration. Updates on own experience begin with enough env steps and a
    window. The learner acts and learns by the clock of its iteration. A sample has the learners' own windows, then
    those of recorded histories, with their weights."""
    learner, env_steps, updates, kept = Recorder(2), 0, 0, 0
    config, task = changed(TABULAR, source=source, root=str(others)), ENV.all_tasks()[:1]
    _, streams, noise = make_learners(config, ENV, task, CPU)
    worker = UnrollWorker(source, ENV, learner, streams, noise)
    loop = collect(learner, worker, make_experience(config, ENV.spec, task, CPU))
    offline, pretraining = bool(source.offline_buffer_dir), source.rl_train_after_update_steps
    for iteration, (transitions, metrics, _) in enumerate(loop, 1):
        at, new, steps = clock_of(source, iteration - 1), learner.updates[updates:], len(transitions.obs)
        over = 0 < source.num_env_steps == env_steps
        assert (steps == 0) == (iteration <= pretraining or over) and transitions.obs.shape[1] == 2 * source.num_envs
        assert not steps or all(clock == at for clock in learner.clocks[-steps:])
        assert [clock for clock, _ in new] == [at._replace(updates=at.updates + k) for k in range(len(new))]
        env_steps += steps * source.num_envs
        kept = steps if source.clear_replay_buffer else min(kept + steps, source.replay_buffer_length)
        updates = len(learner.updates)
        due = (steps > 0 or over) and env_steps >= source.initial_collect_steps
        own = due and kept >= source.mini_batch_length
        assert bool(own_windows(source, iteration)) == own
        assert bool(new) == bool(metrics) == (own or offline)
        for clock, sample in new:
            assert_mixed(source, clock, sample, own, offline)
        assert not new or metrics["number"].tolist() == [updates] * 2
        assert learner.clock == clock_of(source, iteration)
        assert clock_of(source, iteration)[1:] == (iteration, env_steps, updates)
        assert clock_of(source, iteration).percent == iteration / num_iterations(source)
    assert iteration == num_iterations(source) and env_steps == (source.num_env_steps or env_steps)


def assert_mixed(source: Any, clock: Clock, sample: Sample, own: bool, offline: bool) -> None:
    """For each of two learners its own windows come before those of recorded histories. The weighted mean of any loss
    is the mean over its own, weighted by importance, plus that over the others."""
    from_others = (sample.rollout.timestep[0] == MARK).unflatten(0, (2, -1))
    weight, num_own = sample.weight.unflatten(0, (2, -1)), int((~from_others[0]).sum())
    assert (from_others[:, num_own:]).all() and not from_others[:, :num_own].any()
    assert from_others.shape[1] - num_own == (source.mini_batch_size if offline else 0)
    assert bool(num_own) == own
    loss = torch.rand(2, from_others.shape[1], generator=torch.Generator().manual_seed(clock.updates))
    importance = weight[:, :num_own] / weight[:, :num_own].amax(1, keepdim=True) if num_own else weight[:, :0]
    assert source.priority_replay or (importance == 1).all()
    expected = (importance * loss[:, :num_own]).sum(1) / max(num_own, 1)
    if offline:
        expected += loss[:, num_own:].mean(1)
    torch.testing.assert_close((weight * loss).mean(1), expected)
