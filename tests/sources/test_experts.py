"""Sources that learn nothing: how often they do what, over a life."""

from typing import Any

import pytest
import torch
from probes import START, alone_and_among_others

from icrl.config.compose import load_config
from icrl.config.options import replace
from icrl.config.schedules import Clock
from icrl.contracts import Rollout, Step
from icrl.envs import make_env
from icrl.envs.exact import noisy_exact, optimal_exact, random_exact
from icrl.envs.rollout import rollout, start_streams
from icrl.randomness import Noise, stream_seeds
from icrl.sources.experts import NoiseDistillation, Optimal, Random

CONFIG = load_config(["source=noise_distillation", "env.size=4", "env.max_episode_steps=8"])
ENV = make_env(CONFIG.env)
CPU = torch.device("cpu")


def expert(
    kind: type[NoiseDistillation] = NoiseDistillation, clock: Clock = START, num_learners: int = 1, **changes: Any
) -> NoiseDistillation:
    learners = kind(replace(CONFIG.source, **changes), ENV.spec, stream_seeds(0, num_learners), CPU)
    learners.set_clock(clock)
    return learners


def play(learners: NoiseDistillation, num_streams: int, num_steps: int) -> Rollout:
    tasks = ENV.all_tasks()[torch.arange(num_streams) % len(ENV.all_tasks())]
    streams = start_streams(learners, ENV, tasks, stream_seeds(0, num_streams))
    return rollout(learners, ENV, streams, num_steps, Noise(stream_seeds(0, num_streams, 1)))[0]


def shown(optimal_action: list[int]) -> Step:
    best = torch.tensor(optimal_action)
    zero = torch.zeros_like(best)
    return Step(zero, zero, zero.bool(), zero.bool(), zero, zero, best)


def test_the_mixture_by_hand():
    """Noise 1 falls to 0 at 0.9 of the life; at 0.45 of it half the actions are random, so 0.1 for each of 5."""
    learners = expert(clock=START._replace(percent=0.45))
    assert learners.noise.tolist() == [pytest.approx(0.5)]
    probabilities = learners.action_probabilities(shown([2, 0]))
    expected = torch.tensor([[0.1, 0.1, 0.6, 0.1, 0.1], [0.6, 0.1, 0.1, 0.1, 0.1]])
    assert torch.allclose(probabilities, expected)


def test_what_is_done_has_the_frequencies_of_the_mixture():
    played = play(expert(clock=START._replace(percent=0.45)), 500, 40)
    best = (played.action == played.optimal_action).double().mean().item()
    assert best == pytest.approx(0.6, abs=5 * (0.6 * 0.4 / 20_000) ** 0.5)


def test_the_life_goes_from_chance_to_the_optimum():
    start, end = (expert(clock=START._replace(percent=percent)) for percent in (0.0, 0.95))
    assert (start.noise.tolist(), end.noise.tolist()) == ([1.0], [0.0])
    assert torch.equal(play(end, 15, 8).action, play(end, 15, 8).optimal_action)
    agreement = (play(start, 500, 40).action == play(start, 500, 40).optimal_action).double().mean().item()
    assert agreement == pytest.approx(0.2, abs=0.02)


def test_the_noise_stays_above_its_floor():
    learners = expert(clock=START._replace(percent=1.0), num_learners=2)
    learners.find_least_noise = lambda: torch.tensor([0.25, 0.75])
    assert learners.noise.tolist() == [0.25, 0.75]
    learners.set_clock(START._replace(percent=0.45))
    assert learners.noise.tolist() == [pytest.approx(0.5), 0.75]
    assert learners.action_probabilities(shown([0, 0, 0, 0]))[:, 0].tolist() == pytest.approx([0.6, 0.6, 0.4, 0.4])


@pytest.mark.parametrize(("kind", "exact"), [(Optimal, optimal_exact), (Random, random_exact)])
def test_planner_and_chance_get_what_is_expected_of_them(kind, exact):
    """Their play beside the exact expectation."""
    source = load_config([f"source={kind.__name__.lower()}"]).source
    learners = kind(source, ENV.spec, stream_seeds(0, 1), CPU)
    learners.set_clock(START)
    tasks = ENV.all_tasks()
    played = play(learners, 100 * len(tasks), 8)
    first = (
        (played.reward * (played.terminated.cumsum(0) - played.terminated.long() == 0)).sum(0).double().mean().item()
    )
    assert first == pytest.approx(exact(ENV, tasks).success.mean().item(), abs=0.05)


def test_chance_needs_no_planner():
    learners = Random(load_config(["source=random"]).source, ENV.spec, stream_seeds(0, 1), CPU)
    learners.set_clock(START)
    nobody_knows = shown([5, 5])
    assert torch.equal(learners.action_probabilities(nobody_knows), torch.full((2, 5), 0.2))


def test_another_expert_than_the_planner():
    class AlwaysLeft:
        def action_probabilities(self, step: Step) -> torch.Tensor:
            return torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0]).expand(len(step.obs), 5)

    learners = expert(clock=START._replace(percent=0.45))
    learners.expert = AlwaysLeft()
    assert torch.allclose(learners.action_probabilities(shown([2])), torch.tensor([[0.1, 0.1, 0.1, 0.1, 0.6]]))


def test_an_update_tells_the_noise_and_changes_nothing():
    learners = expert(clock=START._replace(percent=0.45))
    before = learners.action_probabilities(shown([1]))
    learned = learners.update(None)  # type: ignore[arg-type]
    assert learned.metrics["noise"].tolist() == [pytest.approx(0.5)] and learned.td_error is None
    assert torch.equal(learners.action_probabilities(shown([1])), before)


def test_a_restored_expert_acts_as_the_saved_one():
    saved, restored = expert(clock=START._replace(percent=0.3)), expert()
    saved.find_least_noise = lambda: torch.tensor([0.7])
    restored.load_state_dict(saved.state_dict())
    assert torch.equal(restored.noise, saved.noise) and restored.noise.item() == pytest.approx(0.7)


@pytest.mark.parametrize("index", [0, 3])
def test_an_expert_alone_is_one_among_others(index):
    alone_and_among_others(NoiseDistillation, CONFIG.source, index, 30, 2)


def test_noise_costs_return():
    returns = [noisy_exact(ENV, ENV.all_tasks(), noise).episode_return.mean().item() for noise in (0.0, 0.3, 0.7, 1.0)]
    assert returns == sorted(returns, reverse=True) and returns[0] == 1.0
