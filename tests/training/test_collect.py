"""The loop of stage one against itself written out, and its pace against counting."""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from src.config import load_config
from src.contracts import Rollout, Step
from src.envs import make_env
from src.envs.rollout import rollout, start_streams
from src.envs.tasks import streams_of
from src.pace import clock_of, num_iterations
from src.randomness import Noise, stream_seeds
from src.schedules import Clock
from src.training.collect import EpsilonGreedy, LocalPlayer, collect, make_learners, mini_batches
from src.training_schema import SourceConfig

CPU = torch.device("cpu")
SMALL = ("env.size=4", "env.max_episode_steps=6", "source.num_learners=2", "source.num_envs=2")
CONFIG = load_config([*SMALL, "source.hidden_size=8", "source.unroll_length=4"])
TABULAR = load_config([*SMALL, "source=q_learning"])
ENV = make_env(CONFIG.env)


def source_config(**changes: Any) -> SourceConfig:
    return dataclasses.replace(TABULAR.source, **changes)


class Recorder:
    """A learner that acts on the noise alone and keeps what it is given."""

    def __init__(self, num_learners: int) -> None:
        self.num_learners = num_learners
        self.updates: list[tuple[Clock, Rollout]] = []
        self.clocks: list[Clock] = []  # at each step

    def set_clock(self, clock: Clock) -> None:
        self._clock = clock

    def initial_carry(self, num_streams: int) -> tuple[()]:
        return ()

    def act(self, carry: tuple[()], step: Step, noise: Tensor) -> tuple[Tensor, tuple[()]]:
        self.clocks.append(self._clock)
        return (noise * 5).long(), carry

    def action_probabilities(self, obs: Tensor) -> Tensor:
        return torch.tensor([[0.1, 0.2, 0.4, 0.0, 0.3]]).expand(len(obs), -1)

    def update(self, rollout: Rollout) -> dict[str, Tensor]:
        self.updates.append((self._clock, rollout))
        return {"number": torch.full((self.num_learners,), len(self.updates))}

    def parameters(self) -> Iterator[tuple[str, Tensor]]:
        yield from ()

    def outputs(self) -> dict[str, Tensor]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def player_of(source: SourceConfig, learner: Recorder) -> LocalPlayer[tuple[()]]:
    count = learner.num_learners * source.num_envs
    tasks = streams_of(ENV.all_tasks()[: learner.num_learners], source.num_envs)
    streams = start_streams(learner, ENV, tasks, stream_seeds(0, count))
    return LocalPlayer(source, ENV, learner, streams, Noise(stream_seeds(1, count)))


def same(ours: Rollout, theirs: Rollout) -> bool:
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_collect_learns_from_each_rollout() -> None:
    """The loop equals rollouts and updates written out, and learners stand on their own task."""
    tasks = ENV.all_tasks()[[3, 12]]
    learner, streams, noise = make_learners(CONFIG, ENV, tasks, CPU)
    assert streams.state.task[:, 0].tolist() == [3] * 4 + [13] * 4  # the centre, cell 10, is no task
    other, where, other_noise = make_learners(CONFIG, ENV, tasks, CPU)
    loop = collect(CONFIG.source, learner, LocalPlayer(CONFIG.source, ENV, learner, streams, noise))
    for iteration, (transitions, metrics, now) in enumerate(itertools.islice(loop, 3)):
        expected, where = rollout(other, ENV, where, 4, other_noise)
        assert same(transitions, expected)
        other.set_clock(clock_of(CONFIG.source, iteration))
        expected_metrics = other.update(expected)
        assert all(torch.equal(metrics[name], value) for name, value in expected_metrics.items())
        assert len(metrics["entropy"]) == 4
        assert torch.equal(now.step.obs, where.step.obs)


def test_learners_do_not_share_their_luck() -> None:
    """Two learners of one task, and a run with another seed, are all different."""
    env = make_env(dataclasses.replace(CONFIG.env, random_start=True))
    lives = []
    for seed in (0, 1):
        config = dataclasses.replace(CONFIG, seed=seed)
        learner, streams, noise = make_learners(config, env, env.all_tasks()[[3]], CPU)
        source = dataclasses.replace(config.source, unroll_length=20)
        transitions, _ = LocalPlayer(source, env, learner, streams, noise).play()
        lives += list(transitions.obs.T)
    for one, other in itertools.combinations(lives, 2):
        assert not torch.equal(one, other)


@st.composite
def paces(draw: st.DrawFn) -> SourceConfig:
    """Settings that do not conflict: windows divide the unroll, batches the windows."""
    num_envs = draw(st.integers(1, 4))
    num_windows, batches = draw(st.integers(1, 3)), draw(st.integers(0, 3))
    windows_have_length = draw(st.booleans())
    length = draw(st.integers(1, 3)) if windows_have_length else 0
    broken = length == 0 or (length == 1 and draw(st.booleans()))  # a fraction, and so unrolls of different lengths
    unroll_length = draw(st.integers(10, 35)) / 10 if broken else num_windows * length
    windows = num_envs * (1 if broken else num_windows)
    assume(not batches or windows % batches == 0)
    return source_config(
        num_envs=num_envs,
        num_iterations=draw(st.integers(1, 7)),
        num_env_steps=0,
        unroll_length=unroll_length,
        initial_collect_steps=draw(st.integers(0, 30)),
        num_updates_per_train_iter=draw(st.integers(1, 3)),
        mini_batch_length=length,
        mini_batch_size=windows // batches if batches else 0,
    )


@settings(max_examples=80, deadline=None)
@given(paces())
def test_the_clock_counts_what_is_done(source: SourceConfig) -> None:
    """Env steps and updates, iteration by iteration; no update before there are enough env steps, and then at each;
    the learner acts, learns and is handed over by the clock of its iteration."""
    learner, env_steps, updates = Recorder(2), 0, 0
    loop = collect(source, learner, player_of(source, learner))
    for iteration, (transitions, metrics, _) in enumerate(loop, 1):
        before, at = len(learner.updates), clock_of(source, iteration - 1)
        new = learner.updates[updates:]
        assert all(clock == at for clock in learner.clocks[-len(transitions.obs) :])
        assert [clock for clock, _ in new] == [at._replace(updates=at.updates + k) for k in range(len(new))]
        env_steps += transitions.obs.shape[0] * source.num_envs
        updates = before
        assert bool(new) == bool(metrics) == (env_steps >= source.initial_collect_steps)
        assert not new or metrics["number"].tolist() == [updates] * 2
        assert learner._clock == clock_of(source, iteration)
        assert clock_of(source, iteration)[1:] == (iteration, env_steps, updates)
        assert clock_of(source, iteration).percent == iteration / num_iterations(source)
    assert iteration == num_iterations(source)


@settings(max_examples=40, deadline=None)
@given(st.integers(100, 450), st.integers(1, 8))
def test_unrolls_go_on_from_any_iteration(hundredths: int, first: int) -> None:
    """Of any fraction of a step: the same transitions, and learning at the same clocks."""
    source = source_config(num_iterations=9, unroll_length=hundredths / 100)
    whole = Recorder(2)
    unrolls = list(collect(source, whole, player_of(source, whole)))
    again = Recorder(2)
    seeds = stream_seeds(1, 4)
    player = LocalPlayer(source, ENV, again, unrolls[first - 1][2], Noise(seeds), first)
    resumed = list(collect(source, again, player, first))
    assert len(resumed) == 9 - first
    for (ours, _, _), (theirs, _, _) in zip(resumed, unrolls[first:], strict=True):
        assert same(ours, theirs)
    assert [clock for clock, _ in again.updates] == [clock for clock, _ in whole.updates[first:]]


def test_nothing_is_learned_before_the_first_steps() -> None:
    """8 env steps of 2 environments, 3 steps an iteration: after iterations 1 and 2 there are 6, then 12."""
    config = dataclasses.replace(CONFIG, source=dataclasses.replace(CONFIG.source, unroll_length=3))
    source = dataclasses.replace(config.source, initial_collect_steps=8)
    learner, streams, noise = make_learners(config, ENV, ENV.all_tasks()[:1], CPU)
    before = [parameter.detach().clone() for _, parameter in learner.parameters()]
    loop = collect(source, learner, LocalPlayer(source, ENV, learner, streams, noise))
    for learned in (False, True):
        next(loop)
        changed = [not torch.equal(old, new) for old, (_, new) in zip(before, learner.parameters(), strict=True)]
        assert changed == [learned] * len(before)


def numbered(num_steps: int, num_streams: int) -> Rollout:
    """Transitions whose every column but the ends tells step and stream."""
    number = torch.arange(num_steps)[:, None] * 100 + torch.arange(num_streams)
    return Rollout(*[number] * 5, number % 3 == 0, number % 5 == 0, number)


@settings(max_examples=80, deadline=None)
@given(paces(), st.integers(1, 3), st.integers(1, 50))
def test_a_sweep_uses_every_transition_once(source: SourceConfig, num_learners: int, iteration: int) -> None:
    """In windows of steps that follow each other in one stream, each at the place of its learner, in batches of the
    size that is asked for, and in another order each time."""
    num_envs, num_steps = source.num_envs, int(source.unroll_length)
    given_transitions = numbered(num_steps, num_learners * num_envs)
    parts = list(mini_batches(source, given_transitions, num_learners, iteration, 3))
    length = source.mini_batch_length or num_steps
    windows = num_envs * num_steps // length
    size = source.mini_batch_size or windows
    assert {part.obs.shape for part in parts} == {(length, num_learners * size)}
    sweeps = source.num_updates_per_train_iter
    assert len(parts) == sweeps * (windows // size)
    for part in parts:
        steps, streams = part.obs // 100, part.obs % 100
        assert (steps == steps[0] + torch.arange(length)[:, None]).all() and (steps[0] % length == 0).all()
        assert (streams == streams[0]).all()
        assert (streams[0] // num_envs).tolist() == torch.arange(num_learners).repeat_interleave(size).tolist()
        assert all(torch.equal(column, part.obs) for column in (*part[:5], part.optimal_action))
        assert torch.equal(part.terminated, part.obs % 3 == 0) and torch.equal(part.truncated, part.obs % 5 == 0)
    for sweep in range(sweeps):
        used = torch.cat([part.obs.flatten() for part in parts[sweep * len(parts) // sweeps :][: len(parts) // sweeps]])
        assert used.sort().values.tolist() == given_transitions.obs.flatten().sort().values.tolist()


def test_sweeps_iterations_and_seeds_are_in_different_orders() -> None:
    source = source_config(num_envs=6, num_updates_per_train_iter=2, mini_batch_length=1, mini_batch_size=2)
    orders = [
        torch.cat([part.obs for part in mini_batches(source, numbered(5, 6), 1, iteration, seed)], 1).flatten().tolist()
        for iteration, seed in ((1, 0), (2, 0), (1, 1))
    ]
    sweeps = [order[half : half + 30] for order in orders for half in (0, 30)]
    assert len({tuple(sweep) for sweep in sweeps}) == 6
    assert all(sweep != sorted(sweep) for sweep in sweeps)


@pytest.mark.parametrize("index", [0, 2])
def test_mini_batches_of_a_learner_do_not_depend_on_the_others(index: int) -> None:
    source = source_config(num_envs=4, num_updates_per_train_iter=2, mini_batch_length=2, mini_batch_size=3)
    together = numbered(6, 12)
    alone = Rollout(*(column[:, 4 * index : 4 * index + 4] for column in together))
    for ours, theirs in zip(mini_batches(source, alone, 1, 7, 5), mini_batches(source, together, 3, 7, 5), strict=True):
        assert same(ours, Rollout(*(column[:, 3 * index : 3 * index + 3] for column in theirs)))


def test_evaluation_policies() -> None:
    """Drawn from the learners' probabilities at epsilon 1, the most probable action at 0, by hand between them."""
    noise = (torch.arange(1000) + 0.5) / 1000
    zero = torch.zeros(1000).long()
    step = Step(zero, zero, zero.bool(), zero.bool(), zero, zero)
    for epsilon, expected in (
        (1.0, [0.1, 0.2, 0.4, 0.0, 0.3]),
        (0.0, [0, 0, 1, 0, 0]),
        (0.5, [0.05, 0.1, 0.7, 0, 0.15]),
    ):
        policy = EpsilonGreedy(Recorder(1), epsilon)
        action, carry = policy.act(policy.initial_carry(1000), step, noise)
        assert carry == ()
        assert (action.bincount(minlength=5) / 1000).tolist() == pytest.approx(expected, abs=0.002)
