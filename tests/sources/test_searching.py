"""The searcher as a source."""

from typing import Any

import pytest
import torch
from probes import CPU, START, alone_and_among_others

from icrl.collection.teachers import searcher_of
from icrl.config.compose import load_config
from icrl.config.options import replace
from icrl.contracts import ConfigError, EnvSpec, Rollout
from icrl.envs import make_env
from icrl.envs.rollout import rollout, start_streams
from icrl.randomness import Noise, stream_seeds
from icrl.sources.bandit_policies import ThompsonSampling
from icrl.sources.searchers import PermutedSearcher, Searcher
from icrl.sources.searching import Searching, in_context_learner

CONFIG = load_config(["source=searcher", "env.size=5", "env.max_episode_steps=10"])
ENV: Any = make_env(CONFIG.env)
NUM_STREAMS = 48


def searching(noise: Any, num_learners: int = 1, spec: EnvSpec = ENV.spec) -> Searching:
    config: Any = replace(CONFIG.source, noise=noise)
    learner = Searching(config, spec, stream_seeds(0, num_learners), CPU)
    learner.policy = searcher_of(CONFIG.env)
    learner.set_clock(START)
    return learner


def play(policy: Any, num_steps: int = 60) -> Rollout:
    tasks = ENV.all_tasks().repeat(NUM_STREAMS // len(ENV.all_tasks()), 1)
    streams = start_streams(policy, ENV, tasks, stream_seeds(1, len(tasks)))
    return rollout(policy, ENV, streams, num_steps, Noise(stream_seeds(2, len(tasks))))[0]


def test_without_noise_it_is_the_searcher():
    for ours, theirs in zip(play(searching(0.0)), play(Searcher(ENV)), strict=True):
        assert torch.equal(ours, theirs)


def test_with_noise_alone_it_is_chance():
    actions = play(searching(1.0), 500).action
    shares = torch.bincount(actions.flatten(), minlength=5) / actions.numel()
    assert shares.tolist() == pytest.approx([0.2] * 5, abs=0.02)


def test_some_noise_makes_as_many_steps_random_and_leaves_ties_to_chance():
    """In an open room the searcher never stays where it is before it has found the goal: who does was thrown off."""
    played = play(searching(0.25), 2000)
    before = played.reward.cumsum(0) == 0
    stays = (played.action[before] == 0).double().mean().item()
    assert stays == pytest.approx(0.25 / 5, abs=0.02)
    first = played.action[0]
    assert {1, 2, 3, 4} <= set(first.tolist())


def test_noise_follows_its_schedule():
    learner = searching({"kind": "linear", "progress": "percent", "points": [[0, 1.0], [1, 0.0]]})
    learner.set_clock(START._replace(percent=0.75))
    assert learner.update(None).metrics["noise"].tolist() == [0.25]  # type: ignore[arg-type]  # it reads nothing


def test_it_remembers_over_episodes():
    """Whoever found the goal finds it in every later episode, as fast as can be."""
    played = play(searching(0.0), 400)
    late = played.reward[200:].float().sum(0)
    distance = (ENV.all_tasks()[:, 0] // 5 - 2).abs() + (ENV.all_tasks()[:, 0] % 5 - 2).abs()
    assert (late >= 200 // distance.repeat(2) - 1).all()


def test_what_a_searcher_concludes_is_from_what_was_done():
    """Also where noise threw it off: the true permutation is never ruled out, and rewards are credited to their arm."""
    config: Any = load_config(["env=dark_room_permuted", "env.size=3", "source=searcher", "source.noise=0.3"])
    env = make_env(config.env)
    learner = Searching(config.source, env.spec, stream_seeds(0, 1), CPU)
    learner.policy = searcher_of(config.env)
    learner.set_clock(START)
    tasks = env.all_tasks()[::7]
    streams = start_streams(learner, env, tasks, stream_seeds(1, len(tasks)))
    _, streams = rollout(learner, env, streams, 100, Noise(stream_seeds(2, len(tasks))))
    assert streams.carry.consistent.gather(1, tasks[:, 1:]).all()

    config = load_config(["env=bandit", "source=searcher", "source.noise=0.3"])
    env = make_env(config.env)
    learner = Searching(config.source, env.spec, stream_seeds(0, 1), CPU)
    learner.policy = searcher_of(config.env)
    learner.set_clock(START)
    streams = start_streams(learner, env, env.all_tasks()[:40], stream_seeds(1, 40))
    played, streams = rollout(learner, env, streams, 50, Noise(stream_seeds(2, 40)))
    pulled = torch.nn.functional.one_hot(played.action[:-1], env.spec.num_actions)  # the last is not counted yet
    assert torch.equal(streams.carry.count, pulled.sum(0).float())
    assert torch.equal(streams.carry.total, (pulled * played.reward[:-1, :, None]).sum(0).float())


@pytest.mark.parametrize("index", range(4))
def test_a_learner_alone_and_among_others(index: int):
    class OfThatRoom(Searching):
        def __init__(self, config: Any, spec: EnvSpec, seeds: torch.Tensor, device: torch.device) -> None:
            super().__init__(config, spec, seeds, device)
            room: Any = CONFIG.env
            env = replace(room, size=4, random_start=True, max_episode_steps=7)
            self.policy = searcher_of(env)

    alone_and_among_others(OfThatRoom, replace(CONFIG.source, noise=0.2), index, 30, 2)


@pytest.mark.parametrize(
    ("world", "kind"),
    [
        ("dark_room", Searcher),
        ("dark_room_permuted", PermutedSearcher),
        ("dark_key_to_door", Searcher),
        ("bandit", ThompsonSampling),
    ],
)
def test_every_world_has_its_own(world: str, kind: type):
    config = load_config([f"env={world}"]).env
    assert type(in_context_learner(make_env(config), config)) is kind


def test_where_there_is_none_is_an_error():
    with pytest.raises(ConfigError, match=r"source\.name=searcher: there is no searcher with env\.name=gymnasium"):
        searcher_of(load_config(["env=gymnasium", "source=searcher"]).env)
