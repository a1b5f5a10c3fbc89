"""Posterior sampling in random MDPs against scalar loops, NumPy's distributions and the planner."""

import numpy as np
import pytest
import torch
from small_worlds import anymdp, garnet

from icrl.envs.exact import optimal_exact, random_exact
from icrl.envs.rollout import rollout, start_streams
from icrl.evaluation.in_context import play_episodes
from icrl.extensions.worlds.learners import Knowledge, PosteriorSamplingRL, dirichlet
from icrl.randomness import Noise, stream_seeds

MAKERS = {"garnet": garnet, "anymdp": anymdp}


@pytest.mark.parametrize("shape", [[0.1, 0.1, 0.1], [1.0, 2.0, 5.0], [0.25, 300.25, 100.25]])
def test_dirichlet_numbers_have_their_means_and_deviations(shape: list[float]) -> None:
    size, parameters = 20_000, torch.tensor(shape)
    drawn = dirichlet(parameters.expand(size, 3), stream_seeds(0, 3 * size).view(size, 3)).double().numpy()
    expected = np.random.default_rng(0).dirichlet(shape, size)
    assert np.allclose(drawn.sum(1), 1) and np.isfinite(drawn).all()
    error = 6 * expected.std(0) / size**0.5
    assert (abs(drawn.mean(0) - expected.mean(0)) < error).all()
    np.testing.assert_allclose(drawn.std(0), expected.std(0), rtol=0.15)


@pytest.mark.parametrize("name", MAKERS)
def test_memory_equals_a_scalar_count(name: str) -> None:
    """Over several episodes, with actions that another one chose: transitions, rewards and ends of each stream."""
    env = MAKERS[name](num_states=5, num_actions=3, num_tasks=4, max_episode_steps=4)
    policy, tasks = PosteriorSamplingRL(env), env.all_tasks()

    class Other:
        """Acts at random beside the policy, which sees these actions."""

        initial_carry = staticmethod(policy.initial_carry)

        def act(self, carry, step, noise):
            _, carry = policy.act(carry, step, noise)
            action = (noise * 3).long()
            return action, policy.replace_action(carry, action)

    seeds = stream_seeds(0, 4)
    played, streams = rollout(Other(), env, start_streams(Other(), env, tasks, seeds), 30, Noise(seeds))
    count, ends = np.zeros((4, 5, 3, 5)), np.zeros((4, 5), bool)
    paid = np.full((4, 5), np.nan)
    for t in range(29):  # the last step is not counted yet
        for b in range(4):
            obs, action, landed = (int(column[t, b]) for column in (played.obs, played.action, played.next_obs))
            count[b, obs, action, landed] += 1
            paid[b, landed] = float(played.reward[t, b])
            ends[b, landed] |= bool(played.terminated[t, b])
    np.testing.assert_array_equal(streams.carry.count, count)
    np.testing.assert_array_equal(streams.carry.paid, paid)
    np.testing.assert_array_equal(streams.carry.ends, ends)


@pytest.mark.parametrize("name", MAKERS)
def test_with_all_known_it_plays_the_optimum(name: str) -> None:
    """After very many transitions of each kind the drawn MDP is the true one, and its plan earns as much."""
    env = MAKERS[name](num_states=6, num_actions=3, num_tasks=8, max_episode_steps=7)
    tasks, policy = env.all_tasks(), PosteriorSamplingRL(env)
    states, actions = torch.arange(6)[:, None], torch.arange(3)
    rules = env.outcomes(tasks[:, None, None].expand(-1, 6, 3, -1), states.expand(8, 6, 3), actions.expand(8, 6, 3))
    count = torch.zeros(8, 6, 3, 6).scatter_add_(3, rules.state_index, 1e6 * rules.probability.float())
    reached = torch.zeros(8, 6).scatter_add_(1, rules.state_index.flatten(1), rules.probability.flatten(1).float()) > 0
    paid, ends = torch.full((8, 6), torch.nan), torch.zeros(8, 6)
    paid.scatter_(1, rules.state_index.flatten(1), rules.reward.float().flatten(1))
    ends.scatter_(1, rules.state_index.flatten(1), rules.terminated.float().flatten(1))
    start = env.reset(tasks, stream_seeds(0, 8))[1]
    empty = policy.initial_carry(8)
    known = Knowledge(count, paid.where(reached, torch.nan), ends > 0, *empty[3:])
    _, carry = policy.act(known, start, Noise(stream_seeds(1, 8)).draw(1)[0])
    probability, after, reward, over = (column.double() for column in rules)
    value, best = (torch.zeros(8, 6, dtype=torch.double) for _ in range(2))
    for left in range(1, 8):  # return of its plan, and of the best one, from each state
        goes_on = probability * (1 - over)
        plan, each = carry.plan[:, -left, :, None], after.long().flatten(1)
        paying = (probability * reward).sum(-1)
        returns, most = (paying + (goes_on * v.gather(1, each).view_as(goes_on)).sum(-1) for v in (value, best))
        value, best = returns.gather(2, plan)[..., 0], most.amax(-1)
    np.testing.assert_allclose(value[:, 0], best[:, 0], rtol=0.01)


def test_it_learns_in_a_garnet() -> None:
    """Far above random play in its last episodes, and as bad as that in the first."""
    env = garnet(num_states=6, num_tasks=10, max_episode_steps=20)
    tasks = env.all_tasks()
    played, _ = play_episodes(PosteriorSamplingRL(env), env, tasks, 2, 40, seed=0)
    random, optimum = (float(found(env, tasks).episode_return.mean()) for found in (random_exact, optimal_exact))
    first, last = played.returns[..., :1].mean(), played.returns[..., -10:].mean()
    assert first < random + 0.2 * (optimum - random) and last > random + 0.8 * (optimum - random)
