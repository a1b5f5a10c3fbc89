"""Policies in the point game, whose observations are point sets and whose actions are not always legal: A2C, A3C, PPO,
and models."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from models import outspoken
from point_worlds import legal_in, lived, point_game
from policies import assert_slow_past_full_contexts
from probes import CPU, check_alone_and_among_others, learn_from, learners_of, step_of
from stage_one import play
from torch import Tensor

from icrl import extensions
from icrl.envs.rollout import OpenEpisodes, finished_episodes, rollout, start_streams
from icrl.evaluation.references import references_of
from icrl.extensions.point_game.points import PointHeads
from icrl.randomness import Noise, stream_seeds, uniform
from icrl.runs.files import PROJECT
from icrl.sources.collect import SampledOrGreedy

WORLDS = {
    "host": point_game(opponents=["table_3", "random", "last", "first", "order_1203"]),
    "agent": point_game(role="agent", opponents=["zeillinger", "random_pair", "weak_spivakovsky", "random_subset"]),
}
every_role = pytest.mark.parametrize("role", WORLDS)


def seen(role: str, number: int = 30) -> Tensor:
    """Observations `[3, number, K]` of games at play."""
    tasks = WORLDS[role].all_tasks().repeat(number, 1)[:number]
    return torch.stack([step.obs for _, _, step in lived(WORLDS[role], tasks, stream_seeds(7, number), 2)])


@pytest.mark.parametrize("std", [0.1, 1000.0])
@every_role
def test_no_illegal_action_is_ever_drawn(role: str, std: float) -> None:
    """With logits of up to billions, at the lowest and the highest noise there is, in play and in evaluation. Random
    play is uniform over the others."""
    env, learner = WORLDS[role], learners_of("a2c", 3, WORLDS[role].spec)
    outspoken(learner.network, std)
    luck = torch.cat([torch.tensor([0.0, 1 - 2**-24]), uniform(stream_seeds(1, 8), 0)])
    chance = learners_of("random", 1, env.spec)
    for obs in seen(role):
        legal, probabilities = legal_in(env, obs), learner.action_probabilities(step_of(obs))
        assert (probabilities[~legal] == 0).all() and probabilities.isfinite().all()
        assert torch.allclose(probabilities.sum(1), torch.ones(len(obs)))
        assert torch.allclose(chance.action_probabilities(step_of(obs)), legal / legal.sum(1, keepdim=True))
        for policy in (learner, SampledOrGreedy(learner, 0.0), SampledOrGreedy(learner, 0.5)):
            for noise in luck:
                action, _ = policy.act((), step_of(obs), noise.expand(len(obs)))
                assert legal.gather(1, action[:, None]).all()


@every_role
def test_evaluated_actions_are_those_of_a_distribution_over_legal_actions(role: str) -> None:
    env, obs = WORLDS[role], seen(role)
    heads, legal = PointHeads(env.spec, 16, stream_seeds(0, 3), CPU), legal_in(env, obs)
    assert heads.outputs() == {}
    outspoken(heads.network)
    action = legal.long().argmax(-1)
    (log_prob, value, entropy), outputs = heads.evaluate_actions(obs, action), heads.network(obs)
    for place in np.ndindex(*action.shape):
        plain = torch.distributions.Categorical(logits=outputs[place][:-1][legal[place]])
        assert torch.allclose(log_prob[place], plain.log_prob(torch.tensor(0)), atol=1e-5)
        assert torch.allclose(entropy[place], plain.entropy(), atol=1e-5)
    assert torch.equal(value, outputs[..., -1]) and log_prob.requires_grad
    assert torch.equal(heads.value(obs), value.detach()) and not heads.value(obs).requires_grad


@pytest.mark.parametrize(("role", "kind"), [("host", "a2c"), ("agent", "a3c"), ("host", "ppo")])
def test_a_learner_alone_equals_itself_among_others(role: str, kind: str) -> None:
    check_alone_and_among_others(kind, WORLDS[role])


@pytest.mark.parametrize("kind", ["a2c", *(pytest.param(one, marks=pytest.mark.long) for one in ("a3c", "ppo"))])
def test_a_host_learns_to_win_sooner_than_the_best_players_that_do_not_know_the_agent(kind: str) -> None:
    env = point_game(opponents=["table_5"], max_episode_steps=12)
    options = {"learning_rate": 0.02, "discount": 0.8, "hidden_size": 32, "entropy_coefficient": 0.01}
    learner, task = learners_of(kind, 1, env.spec, **options), env.all_tasks()
    streams = start_streams(learner, env, task.expand(48, 1), stream_seeds(1, 48))
    noise, lengths = Noise(stream_seeds(2, 48)), {}
    for _ in range(40):
        transitions, streams = rollout(learner, env, streams, 6, noise)
        learn_from(learner, transitions)
    for name, policy in {"learned": SampledOrGreedy(learner, 0.0), **references_of(env)}.items():
        steps, _ = play(policy, env, task.expand(100, 1), 40, seed=5)
        lengths[name] = finished_episodes(steps, OpenEpisodes.none(100), env.spec)[0].length.mean()
    assert lengths["learned"] < 0.9 * min(lengths["Zeillinger"], lengths["Weak Spivakovsky"])
    assert lengths["learned"] < 0.6 * lengths["random"]


@pytest.mark.parametrize(
    ("world", "position", "tokens"),
    [("host", "sinusoidal", "transition"), ("agent", "rope", "interleaved"), ("host", "rope", "cross")],
)
def test_a_model_has_the_logits_of_a_slow_reference_past_full_contexts(world: str, position: str, tokens: str) -> None:
    assert_slow_past_full_contexts(WORLDS[world], tokens=tokens, position=position)


@pytest.mark.skipif("async_unrolls" not in extensions.NAMES, reason="needs the extension async_unrolls")
def test_another_process_plays(tmp_path: Path) -> None:
    """It has to load the world, whose options are in another module. (Processes of tests have loaded it.)"""
    sizes = ("source.num_learners=1", "source.num_env_steps=800", "source.history_steps=800", "model.context_len=20")
    options = ["experiment=point_game", "source=a3c", *sizes, f"root={tmp_path}"]
    command = [sys.executable, "-m", "src.train_agents", *options]
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr
