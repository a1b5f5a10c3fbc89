"""Random MDPs against plain Python: their tables, play, the best of all policies by enumeration; posterior sampling."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from policies import Beside
from small_worlds import anymdp, garnet

from icrl.contracts import ConfigError
from icrl.envs.core import MapView
from icrl.envs.rollout import rollout, start_streams
from icrl.evaluation.in_context import play_episodes
from icrl.extensions.exact.expectation import optimal_exact, random_exact
from icrl.extensions.worlds import random_mdps
from icrl.extensions.worlds.learners import Knowledge, PosteriorSamplingRL, dirichlet
from icrl.extensions.worlds.random_mdps import RandomMDP
from icrl.randomness import Noise, stream_seeds

MAKERS = {"garnet": garnet, "anymdp": anymdp}


def table_of(env: RandomMDP, task: int) -> dict[tuple[int, int], list[tuple[float, int, float, bool]]]:
    """Possible outcomes of each state and action: probability, next state, reward, end."""
    table = {}
    for state, action in itertools.product(range(env.num_states), range(env.spec.num_actions)):
        found = env.outcomes(torch.tensor([task]), torch.tensor(state), torch.tensor(action))
        rows = zip(*(column.tolist() for column in found), strict=True)
        table[state, action] = [(p, s, env.spec.reward_values[r], end) for p, s, r, end in rows if p > 0]
    return table


@pytest.mark.parametrize(("num_states", "paying"), [(5, 1), (16, 2), (30, 3)])
def test_garnets_lead_to_two_states_and_a_tenth_pays(num_states: int, paying: int) -> None:
    env = garnet(num_states=num_states, num_tasks=6)
    assert env.num_paying == paying and not env.goal_ends
    for task in range(6):
        every = list(itertools.chain(*table_of(env, task).values()))
        for outcomes in table_of(env, task).values():
            assert len({state for _, state, _, _ in outcomes}) == len(outcomes) == 2
            assert sum(p for p, *_ in outcomes) == pytest.approx(1)
        assert all(len({reward for _, s, reward, _ in every if s == state}) <= 1 for state in range(num_states))
        pays = {s for _, s, reward, _ in every if reward}
        assert len(pays) <= paying and 0 not in pays and not any(end for *_, end in every)
        columns = math.ceil(math.sqrt(num_states))
        assert env.map_view(torch.tensor([task])) == MapView(math.ceil(num_states / columns), columns, (*sorted(pays),))


def test_probabilities_of_garnets_are_intervals_beside_a_uniform_cut() -> None:
    """The sorted intervals are those of a stick broken at a uniform place."""
    found = garnet(num_tasks=300)._probability.sort(dim=-1).values.flatten(0, 2).mean(0)
    assert found.tolist() == pytest.approx([1 / 4, 3 / 4], abs=5e-3)


def test_places_of_an_anymdp_by_the_formula() -> None:
    """Every probability from the drawn numbers, place by place, in plain Python."""
    env = anymdp(num_states=7, num_actions=3, num_tasks=12)
    keys, shifts = env.draw(0, 7, 3), env.draw(1, 7, 3)
    low, names = env.draw(2, 7) < 0.15, env.draw(3, 6)
    for task in range(12):
        name = [0, *(1 + int(one) for one in names[task].argsort())]
        pitfalls = {p for p in range(1, 6) if low[task, p] and (p == 1 or not low[task, p - 1])}
        expected = dict[tuple[int, int], dict[int, tuple[float, float, bool]]]()
        for place, action in itertools.product(range(7), range(3)):
            part = int(keys[task, place].argsort()[action]) + float(shifts[task, place, action])
            centre = part / 3 * 5 - 2
            weight = {o: math.exp(-((o - centre) ** 2) / (2 * 0.25**2)) for o in range(-2, 4) if 0 <= place + o < 7}
            expected[name[place], action] = {
                name[place + o]: (w / sum(weight.values()), float(place + o == 6), place + o in {*pitfalls, 6})
                for o, w in weight.items()
            }
        for key, outcomes in table_of(env, task).items():
            assert len(outcomes) == len(expected[key])
            for probability, state, reward, end in outcomes:
                assert (probability, reward, end) == (pytest.approx(expected[key][state][0]), *expected[key][state][1:])
        assert env.map_view(torch.tensor([task])).goals == (name[6],)


@pytest.mark.parametrize("num_actions", [2, 50])
def test_actions_of_the_shortest_anymdp_stay_on_the_line(num_actions: int) -> None:
    task, action = torch.arange(20)[:, None, None, None], torch.arange(num_actions)
    outcomes = anymdp(num_states=3, num_actions=num_actions).outcomes(task, torch.arange(3)[:, None], action)
    assert torch.allclose(outcomes.probability.sum(-1), torch.ones(1).double(), atol=1e-6)


def test_no_two_pitfalls_are_neighbours_so_every_goal_can_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_mdps, "PITFALL_SHARE", 0.9)
    env = anymdp(num_tasks=50, max_episode_steps=40)
    assert (optimal_exact(env, env.all_tasks()).success > 0).all()


@pytest.mark.parametrize("name", MAKERS)
def test_the_plan_is_the_best_of_all_policies(name: str) -> None:
    """Every action for each of 3 states and 3 steps, valued by a recursion over all courses."""
    env = MAKERS[name](num_states=3, num_actions=2, num_tasks=4, max_episode_steps=3)
    found = optimal_exact(env, env.all_tasks()).returns
    for task in range(4):
        table = table_of(env, task)

        def value(policy: tuple[int, ...], state: int, time: int, table: Any = table) -> float:
            if time == 3:
                return 0.0
            outcomes = table[state, policy[3 * time + state]]
            return sum(p * (r + (0.0 if end else value(policy, s, time + 1))) for p, s, r, end in outcomes)

        best = max(value(policy, 0, 0) for policy in itertools.product(range(2), repeat=9))
        assert float(found[task]) == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("name", MAKERS)
def test_play_follows_the_table(name: str) -> None:
    """Next states as often as the table says, within 5 standard deviations, and the rewards and ends of the table."""
    env = MAKERS[name](num_states=5, num_actions=2, num_tasks=3, max_episode_steps=6)
    tasks = env.all_tasks().repeat_interleave(2000, 0)
    state, step = env.reset(tasks, stream_seeds(0, len(tasks)))
    assert (step.obs == 0).all()
    tables, seen = [table_of(env, task) for task in range(3)], np.zeros((3, 5, 2, 5))
    for time in range(18):
        before, action = step.obs, torch.full((len(tasks),), time // 2 % 2)
        state, step = env.step(state, action)
        np.add.at(seen, (tasks[:, 0], before, action, step.final_obs), 1)
        for row in range(0, len(tasks), 97):
            outcomes = {s: (r, end) for _, s, r, end in tables[int(tasks[row, 0])][int(before[row]), int(action[row])]}
            assert outcomes[int(step.final_obs[row])] == (float(step.reward[row]), bool(step.terminated[row]))
    for task, table in enumerate(tables):
        for (place, action), outcomes in table.items():
            times = seen[task, place, action].sum()
            for probability, after, *_ in outcomes:
                error = 5 * math.sqrt(times * probability * (1 - probability)) + 3  # of rare ones
                assert abs(seen[task, place, action, after] - times * probability) <= error


@pytest.mark.parametrize("name", MAKERS)
def test_a_task_is_a_function_of_its_number(name: str) -> None:
    few, many = (MAKERS[name](num_tasks=number) for number in (4, 9))
    same = few.fingerprint(few.all_tasks())
    assert same == many.fingerprint(many.all_tasks())[:4] and len({*same}) == 4
    assert few.label(torch.tensor([2])) == "mdp_2"


def test_tables_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_tasks . num_states.2 . num_actions must be at most"):
        garnet(num_states=100, num_tasks=5000)


# ---- posterior sampling against scalar loops, NumPy's distributions and the planner


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
    policy, seeds = Beside(PosteriorSamplingRL(env), 3), stream_seeds(0, 4)
    played, streams = rollout(policy, env, start_streams(policy, env, env.all_tasks(), seeds), 30, Noise(seeds))
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
    paid.scatter_(1, rules.state_index.flatten(1), rules.reward_index.float().flatten(1))
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


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_not_known_is_drawn_from_the_prior(name: str) -> None:
    """Plans of one step, in worlds where one of the states 1 and 2 pays. First, action 0 has led to state 2 once, which
    pays, and action 1 was never done. Then action 0 leads to state 1 and action 1 to state 2 every other time, where
    none of the two was entered, or state 2 alone, and pays."""
    size, rng = 20_000, np.random.default_rng(0)
    env = MAKERS[name](num_states=3, num_actions=2, num_tasks=3, max_episode_steps=1)
    policy, seeds = PosteriorSamplingRL(env), stream_seeds(0, size)
    start, empty = env.reset(torch.zeros(size, 1).long(), seeds)[1], policy.initial_carry(size)
    once, known = torch.zeros(2, 2, 3)
    once[0, 2], known[0, 1], known[1, 0], known[1, 2] = 1, 2e6, 1e6, 1e6
    drawn = (rng.dirichlet(np.array([1, 1, 1 + 3 * more]) / 3, size)[:, 2] for more in (1, 0))
    never = math.nan
    cases = [(once, (0.0, 1.0), np.greater(*drawn).mean()), (known, (never, never), 1 / 2), (known, (never, 1.0), 0)]
    for seen, paid_there, expected in cases:
        count = empty.count.clone()
        count[:, 0] = seen
        paid = torch.tensor([0.0, *paid_there]).expand(size, -1)
        action, _ = policy.act(empty._replace(count=count, paid=paid), start, Noise(seeds).draw(1)[0])
        assert (action == 0).double().mean() == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("name", MAKERS)
def test_it_learns(name: str) -> None:
    """Far above random play in its last episodes, and as bad as that in the first."""
    env = MAKERS[name](num_states=6, num_tasks=10, max_episode_steps=20)
    tasks = env.all_tasks()
    played, _ = play_episodes(PosteriorSamplingRL(env), env, tasks, 1, 25, seed=0)
    random, optimum = (float(found(env, tasks).returns.mean()) for found in (random_exact, optimal_exact))
    first, last = played.returns[..., :1].mean(), played.returns[..., -5:].mean()
    assert first < random + 0.2 * (optimum - random) and last > random + 0.8 * (optimum - random)
