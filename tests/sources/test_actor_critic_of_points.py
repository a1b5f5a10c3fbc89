"""A2C and PPO in the point game, whose observations are point sets and whose actions are not always legal."""

import copy
from functools import cache
from typing import Any

import numpy as np
import pytest
import scalar_points as scalar
import torch
from models import outspoken
from point_worlds import legal_in, lived, point_game
from probes import CPU, START, learn_from
from scalar_points import Points
from torch import Tensor

from icrl.collection.collect import EpsilonGreedy
from icrl.config.compose import load_config
from icrl.config.options import replace
from icrl.contracts import Rollout, Step
from icrl.envs.episodes import OpenEpisodes, finished_episodes
from icrl.envs.rollout import rollout, start_streams
from icrl.point_game.world import PointFamily
from icrl.randomness import Noise, stream_seeds, uniform
from icrl.sources.a2c import A2C
from icrl.sources.actor_critic import PointHeads, TableHeads, make_heads
from icrl.sources.experts import Random
from icrl.sources.ppo import PPO

KINDS: dict[str, Any] = {"a2c": A2C, "ppo": PPO}
WORLDS = {
    "host": point_game(opponents=["table_3", "random", "last", "first@0.5"], dimensions=[3, 2]),
    "agent": point_game(role="agent", opponents=["zeillinger", "random_pair", "weak_spivakovsky", "random_subset"]),
}
every_kind = pytest.mark.parametrize("kind", KINDS)
every_role = pytest.mark.parametrize("role", WORLDS)


def learner_of(kind: str, env: PointFamily, seeds: Tensor, **changes: Any) -> Any:
    config: Any = load_config([f"source={kind}", "source.hidden_size=16"]).source
    learner = KINDS[kind](replace(config, **changes), env.spec, seeds, CPU)
    learner.set_clock(START)
    return learner


def seen(role: str, number: int = 60) -> Tensor:
    """Observations `[3, number, K]` of games at play."""
    env = WORLDS[role]
    tasks = env.all_tasks().repeat(number, 1)[:number]
    return torch.stack([row[2].obs for row in lived(env, tasks, stream_seeds(7, number), 2)])


def step_of(obs: Tensor) -> Step:
    zero = torch.zeros(len(obs), dtype=torch.long)
    return Step(obs, zero, zero.bool(), zero.bool(), obs, zero, zero)


# ---- legal actions


@pytest.mark.parametrize("std", [0.1, 3.0, 1000.0])
@every_kind
@every_role
def test_no_illegal_action_is_ever_drawn(role: str, kind: str, std: float) -> None:
    """With logits of up to billions, at the lowest and the highest noise there is, in play and in evaluation."""
    env, learner = WORLDS[role], learner_of(kind, WORLDS[role], stream_seeds(0, 3))
    outspoken(learner.network, std)
    luck = torch.cat([torch.tensor([0.0, 1 - 2**-24]), uniform(stream_seeds(1, 40), 0)])
    for obs in seen(role):
        legal, probabilities = legal_in(env, obs), learner.action_probabilities(step_of(obs))
        assert (probabilities[~legal] == 0).all() and probabilities.isfinite().all()
        assert torch.allclose(probabilities.sum(1), torch.ones(len(obs)))
        for policy in (learner, EpsilonGreedy(learner, 0.0), EpsilonGreedy(learner, 0.5)):
            for noise in luck:
                action, _ = policy.act((), step_of(obs), noise.expand(len(obs)))
                assert legal.gather(1, action[:, None]).all()


@every_role
def test_chance_is_uniform_over_what_is_legal(role: str) -> None:
    config: Any = load_config(["source=random"]).source
    chance, obs = Random(config, WORLDS[role].spec, stream_seeds(0, 1), CPU), seen(role)[0]
    chance.set_clock(START)
    legal = legal_in(WORLDS[role], obs)
    assert torch.allclose(chance.action_probabilities(step_of(obs)), legal / legal.sum(1, keepdim=True))
    drawn = torch.stack([chance.act((), step_of(obs), uniform(stream_seeds(t, len(obs)), t))[0] for t in range(400)])
    assert legal.gather(1, drawn.T).all()
    assert all(
        set(actions.tolist()) == set(allowed.nonzero()[:, 0].tolist())
        for actions, allowed in zip(drawn.T, legal, strict=True)
    )


# ---- what is said


@every_role
def test_what_is_said_is_that_of_a_distribution_over_legal_actions(role: str) -> None:
    env, obs = WORLDS[role], seen(role)
    heads = make_heads(env.spec, 16, stream_seeds(0, 3), CPU)
    assert isinstance(heads, PointHeads) and heads.outputs() == {}
    outspoken(heads.network)
    legal = legal_in(env, obs)
    action = heads.act(obs.flatten(0, 1)[:60], torch.rand(60)).expand(3, 60)
    action = torch.where(legal.gather(-1, action[..., None])[..., 0], action, legal.long().argmax(-1))
    said, outputs = heads.evaluate_actions(obs, action), heads.network(obs)
    for t in range(3):
        for stream in range(60):
            allowed = legal[t, stream]
            plain = torch.distributions.Categorical(logits=outputs[t, stream, :-1][allowed])
            place = torch.tensor(int(allowed[: action[t, stream]].sum()))
            assert torch.allclose(said.log_prob[t, stream], plain.log_prob(place), atol=1e-5)
            assert torch.allclose(said.entropy[t, stream], plain.entropy(), atol=1e-5)
            assert said.value[t, stream] == outputs[t, stream, -1]
    assert torch.equal(heads.log_prob(obs, action), said.log_prob.detach()) and said.log_prob.requires_grad
    assert torch.equal(heads.value(obs), said.value.detach()) and not heads.value(obs).requires_grad


def test_heads_are_tables_where_an_observation_is_one_number() -> None:
    spec = WORLDS["host"].spec._replace(points=(0, 0), num_obs=9)
    assert isinstance(make_heads(spec, 8, stream_seeds(0, 2), CPU), TableHeads)


# ---- learning


def played(learner: Any, env: PointFamily, streams: slice, num_updates: int) -> Rollout:
    """Twelve streams, three of a task each, or those of `streams`; the learner learns from every 4 steps."""
    tasks = env.all_tasks()[:4].repeat_interleave(3, 0)[streams]
    where = start_streams(learner, env, tasks, stream_seeds(0, 12, 0)[streams])
    noise, steps = Noise(stream_seeds(0, 12, 1)[streams]), []
    for _ in range(num_updates):
        transitions, where = rollout(learner, env, where, 4, noise)
        learn_from(learner, transitions)
        steps.append(transitions)
    return Rollout(*(torch.cat(column) for column in zip(*steps, strict=True)))


@pytest.mark.parametrize("index", [0, 2])
@every_kind
@every_role
def test_a_learner_alone_is_the_learner_among_others(role: str, kind: str, index: int) -> None:
    env, streams = WORLDS[role], slice(3 * index, 3 * index + 3)
    others, one = (
        learner_of(kind, env, seeds) for seeds in (stream_seeds(0, 4, 2), stream_seeds(0, 4, 2)[index : index + 1])
    )
    together, alone = played(others, env, slice(None), 12), played(one, env, streams, 12)
    for column, columns in zip(alone, together, strict=True):
        assert torch.equal(column, columns[:, streams])
    for (name, ours), (_, theirs) in zip(one.parameters(), others.parameters(), strict=True):
        assert torch.allclose(ours[0], theirs[index], atol=1e-5), name


@every_kind
@every_role
def test_every_parameter_learns_and_an_illegal_action_nothing(role: str, kind: str) -> None:
    env = WORLDS[role]
    learner = learner_of(kind, env, stream_seeds(0, 4))
    before = {name: value.detach().clone() for name, value in learner.parameters()}
    steps = played(learner, env, slice(None), 6)
    assert all(value.isfinite().all() for _, value in learner.parameters())
    for name, value in learner.parameters():
        assert ((value - before[name]).flatten(1).abs().amax(1) > 0).all(), name
    if role == "host":  # the task of learner 1 has two coordinates: its host is never asked about the other subsets
        never = ~legal_in(env, steps.obs).flatten(0, 1).any(0)
        assert not never.any()
        small = env.all_tasks()[:4, 1] == 2
        heads, old = dict(learner.parameters())["weights.heads"], before["weights.heads"]
        assert small.any() and torch.equal(heads[small][..., 1:4], old[small][..., 1:4])


def test_restored_learners_act_as_the_saved_ones() -> None:
    env, other = WORLDS["host"], learner_of("a2c", WORLDS["host"], stream_seeds(9, 4))
    learner = learner_of("a2c", env, stream_seeds(0, 4))
    played(learner, env, slice(None), 3)
    other.load_state_dict(copy.deepcopy(learner.state_dict()))
    first, second = (played(one, env, slice(None), 3) for one in (learner, other))
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(first, second, strict=True))


# ---- a tiny game


TINY = {
    "dimensions": [3],
    "clouds": [{"max_num_points": 4, "max_value": 3}],
    "opponents": ["table_5"],
    "max_episode_steps": 12,
}


def best_lengths(env: PointFamily, starts: list[Points]) -> list[int]:
    """The fewest moves of a host who knows what the agent answers, by a search over all that it can play."""
    subsets = scalar.subsets(3)
    answers = [env._choice[0, action].item() for action in range(len(subsets))]

    @cache
    def fewest(points: tuple, left: int) -> int:
        if len(points) < 2 or not left:
            return 0
        nexts = (
            scalar.reduce(scalar.shift([*points], subset, answer))
            for subset, answer in zip(subsets, answers, strict=True)
        )
        return 1 + min(fewest(tuple(sorted(scalar.left(scalar.reposition(after)))), left - 1) for after in nexts)

    return [fewest(tuple(sorted(scalar.left(points))), 6) for points in starts]


def lengths(steps: Rollout, env: PointFamily) -> float:
    return float(finished_episodes(steps, OpenEpisodes.none(steps.obs.shape[1]), env.spec)[0].length.mean())


@pytest.mark.parametrize(("kind", "num_updates"), [("a2c", 200), ("ppo", 200)])
def test_a_host_learns_to_win_as_fast_as_one_can(kind: str, num_updates: int) -> None:
    env = point_game(**TINY)
    options = {"learning_rate": 0.01, "discount": 0.8, "hidden_size": 32, "entropy_coefficient": 0.01}
    learner = learner_of(kind, env, stream_seeds(0, 1), **options)
    tasks = env.all_tasks().expand(16, 3)
    streams, noise = start_streams(learner, env, tasks, stream_seeds(1, 16)), Noise(stream_seeds(2, 16))
    for _ in range(num_updates):
        transitions, streams = rollout(learner, env, streams, 8, noise)
        learn_from(learner, transitions)
    number = 300
    tasks, seeds = env.all_tasks().expand(number, 3), stream_seeds(5, number)
    policies = {"learner": EpsilonGreedy(learner, 0.0), "chance": chance(env)}
    found = {}
    for name, policy in policies.items():
        steps = rollout(policy, env, start_streams(policy, env, tasks, seeds), 60, Noise(stream_seeds(6, number)))[0]
        found[name] = lengths(steps, env)
    starts = [scalar.rows_of(points) for points in env.points_of(env.reset(tasks, seeds)[1].obs).tolist()]
    best = float(np.mean(best_lengths(env, starts)))
    assert best <= found["learner"] < best + 0.15 * (found["chance"] - best)


def chance(env: PointFamily) -> Random:
    config: Any = load_config(["source=random"]).source
    policy = Random(config, env.spec, torch.zeros(1, dtype=torch.long), CPU)
    policy.set_clock(START)
    return policy
