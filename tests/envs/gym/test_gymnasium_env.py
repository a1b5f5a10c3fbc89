"""Gymnasium environments behind the tensor environments' contract."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch
from harness import TINY, results_of, run
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from toy_env import LAKES, TOY, Toy, lake, toy

from icrl.collection.collect import LocalUnrollWorker
from icrl.config.compose import load_config
from icrl.config.env_schema import GymnasiumConfig
from icrl.contracts import ConfigError, PipelineError, Step
from icrl.envs import make_env
from icrl.envs.core import State
from icrl.envs.exact import optimal_exact, random_exact
from icrl.envs.gym.gymnasium_env import GymnasiumEnv
from icrl.envs.gym.streams import PlayedState
from icrl.envs.gym.workers import ProcessEnv
from icrl.envs.render import render_cells
from icrl.randomness import integers, stream_seeds

STREAMS = 6
TASKS = torch.tensor([[0], [1], [2], [2], [1], [0]])
SEEDS = stream_seeds(0, STREAMS)
FIRST = TASKS[:1]  # of worlds with one task


def random_actions(num_steps: int, num_streams: int = STREAMS, num_actions: int = 4) -> Tensor:
    return torch.randint(num_actions, (num_steps, num_streams), generator=torch.Generator().manual_seed(0))


def play(env: Any, tasks: Tensor, seeds: Tensor, actions: Tensor) -> list[tuple[PlayedState, Step]]:
    played = [env.reset(tasks, seeds)]
    for action in actions:
        played.append(env.step(played[-1][0], action))
    return played


def same(ours: tuple[Any, Step], theirs: tuple[Any, Step]) -> bool:
    pairs = zip((*ours[0], *ours[1]), (*theirs[0], *theirs[1]), strict=True)
    return all(a.dtype == b.dtype and torch.equal(a, b) for a, b in pairs)


# ---- play


def plain_loop(arguments: dict[str, Any], limit: int, seed: int, actions: list[int]) -> Iterator[list[Any]]:
    """A stream as a plain loop: obs, reward, terminated, truncated, final_obs, timestep, episode."""
    env = gymnasium.make("FrozenLake-v1", **arguments)
    episode, timestep = 0, 0
    env.reset(seed=int(integers(torch.tensor(seed), 0, 2**31)))
    for action in actions:
        final_obs, reward, terminated, truncated, _ = env.step(action)
        timestep += 1
        truncated = truncated or timestep == limit
        obs = final_obs
        if terminated or truncated:
            episode, timestep = episode + 1, 0
            obs, _ = env.reset(seed=int(integers(torch.tensor(seed), episode, 2**31)))
        yield [obs, int(reward), terminated, truncated, final_obs, timestep, episode]


@example(seed=1, task=2, limit=3, actions=[1, 2] * 20)  # slips in many episodes
@settings(max_examples=10, deadline=None)
@given(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2),
    st.integers(1, 9),
    st.lists(st.integers(0, 3), min_size=1, max_size=40),
)
def test_steps_are_those_of_a_plain_loop(seed: int, task: int, limit: int, actions: list[int]) -> None:
    env = GymnasiumEnv(lake(max_episode_steps=limit))
    played = play(env, torch.tensor([[task]]), torch.tensor([seed]), torch.tensor(actions)[:, None])
    first = played[0][1]
    assert first.obs.tolist() == first.final_obs.tolist() == [0] and not first.terminated and not first.truncated
    expected_steps = plain_loop(LAKES[task], limit, seed, actions)
    for number, ((state, step), expected) in enumerate(zip(played[1:], expected_steps, strict=True), 1):
        shown = [step.obs, step.reward, step.terminated, step.truncated, step.final_obs, step.timestep, state.episode]
        assert [value.item() for value in shown] == expected
        assert state.state_index.item() == step.obs.item() and state.timestep.item() == step.timestep.item()
        this_episode = actions[number - state.timestep.item() : number]
        assert state.actions.tolist() == [this_episode + [0] * (limit - len(this_episode))]


def test_streams_do_not_depend_on_their_neighbours_nor_on_the_past() -> None:
    env, actions, some = GymnasiumEnv(lake()), random_actions(40), torch.tensor([4, 2])
    whole = play(env, TASKS, SEEDS, actions)
    assert whole[-1][0].episode.min() > 3
    for ours, expected in zip(play(env, TASKS[some], SEEDS[some], actions[:, some]), whole, strict=True):
        state, step = (type(part)(*(field[some] for field in part)) for part in expected)
        assert same(ours, (state, step))
    slips = [step.obs for _, step in play(env, TASKS[2:4], SEEDS[2:4], actions[:, 2:3].expand(-1, 2))]
    assert any(obs[0] != obs[1] for obs in slips)  # the same actions on the same lake


@pytest.mark.parametrize("config", [lake(), toy(), lake(tasks=LAKES[2:])], ids=["lakes", "toy", "slippery"])
def test_any_state_can_be_restored(config: GymnasiumConfig) -> None:
    """In the middle of episodes, by environments that are new or in another state."""
    env, other = GymnasiumEnv(config), GymnasiumEnv(config)
    actions = random_actions(30, num_actions=env.spec.num_actions)
    played = play(env, TASKS % len(config.tasks), SEEDS, actions)
    assert played[17][0].timestep.max() > 1 and played[17][0].episode.min() > 0
    for start in (0, 29, 17, 18):
        state = PlayedState(*(field.clone() for field in played[start][0]))
        for expected, action in zip(played[start + 1 :], actions[start:], strict=True):
            assert same(ours := other.step(state, action), expected)
            state = ours[0]


@pytest.mark.parametrize("limit", [5, 130])
def test_our_time_limit_counts(limit: int) -> None:
    """Frozen lakes are registered with 100 steps."""
    env = GymnasiumEnv(lake(max_episode_steps=limit))
    played = play(env, FIRST, SEEDS[:1], torch.zeros(270, 1).long())  # against the wall
    assert [number for number, (_, step) in enumerate(played) if step.truncated] == list(range(limit, 271, limit))
    assert not any(step.terminated for _, step in played) and env.spec.max_episode_steps == limit


def test_an_environment_may_end_sooner_by_itself() -> None:
    env = GymnasiumEnv(toy(fault="truncate", at=4, slip=0, size=30))
    played = play(env, FIRST, SEEDS[:1], torch.zeros(12, 1).long())
    assert [number for number, (_, step) in enumerate(played) if step.truncated] == [4, 8, 12]
    assert same(env.step(PlayedState(*played[9][0]), torch.tensor([0])), played[10])


def test_rewards_are_indices_of_their_values() -> None:
    tasks = [{"reward": torch.tensor(0.1).item(), "slip": 0}]  # rounded to float32
    env = GymnasiumEnv(lake(id=TOY, tasks=tasks, width=0, reward_values=[2, 0, 0.1]))
    played = play(env, FIRST, SEEDS[:1], torch.ones(12, 1).long())
    assert {(int(step.reward), bool(step.terminated)) for _, step in played[1:]} == {(1, False), (2, True)}


def test_environments_are_closed_when_they_are_no_longer_needed() -> None:
    Toy.open_ones.clear()
    env = GymnasiumEnv(lake(id=TOY, tasks=[{}, {"size": 5}], width=0))
    assert not Toy.open_ones
    for tasks in (TASKS % 2, TASKS % 2, 1 - TASKS % 2, TASKS[:2] % 2):
        env.step(env.reset(tasks, SEEDS[: len(tasks)])[0], torch.zeros(len(tasks)).long())
        assert len(Toy.open_ones) == len(tasks)
    env.close()
    env.close()
    assert not Toy.open_ones


# ---- the transition table


@cache
def slippery() -> GymnasiumEnv:
    return GymnasiumEnv(lake(tasks=LAKES[2:], max_episode_steps=12))


def test_outcomes_have_the_frequencies_of_play() -> None:
    env, num_streams = slippery(), 60
    actions = random_actions(100, num_streams)
    counts: Counter[tuple[int, ...]] = Counter()
    tried: Counter[tuple[int, int]] = Counter()
    played = play(env, torch.zeros(num_streams, 1).long(), stream_seeds(1, num_streams), actions)
    for (state, _), (_, step), action in zip(played, played[1:], actions, strict=False):
        for now in zip(state.state_index, action, step.final_obs, step.reward, step.terminated, strict=True):
            cell, done, *outcome = (int(value) for value in now)
            counts[cell, done, *outcome] += 1
            tried[cell, done] += 1
    assert len(tried) == 7 * 4  # all but the hole and the goal
    expected: Counter[tuple[int, ...]] = Counter()
    for cell, action in tried:
        parts = env.outcomes(torch.tensor([0]), torch.tensor(cell), torch.tensor(action))
        for chance, *outcome in zip(*(part.tolist() for part in parts), strict=True):
            expected[cell, action, *outcome] += chance
    for key, chance in expected.items():
        number = tried[key[0], key[1]]
        assert abs(counts[key] / number - chance) < 5 * (0.25 / number) ** 0.5, key
    assert set(counts) <= {key for key, chance in expected.items() if chance > 0}


def test_fewer_outcomes_are_filled_up_with_impossible_ones() -> None:
    env = GymnasiumEnv(lake())
    outcomes = env.outcomes(env.all_tasks()[:, None, None], torch.arange(9)[:, None], torch.arange(4))
    assert outcomes.probability.shape == (3, 9, 4, 3)
    assert torch.allclose(outcomes.probability.sum(-1), torch.ones(3, 9, 4).double())
    assert (outcomes.probability[:2, :, :, 0] == 1).all()
    for cell, action, expected in ((0, 2, [1.0, 1, 0, False]), (7, 2, [1.0, 8, 1, True]), (1, 1, [1.0, 4, 0, True])):
        assert [part[0, cell, action, 0].item() for part in outcomes] == expected


def test_the_optimal_action_attains_the_optimum_by_play() -> None:
    env, num_streams = GymnasiumEnv(lake(max_episode_steps=9)), 40
    exact = optimal_exact(env, env.all_tasks())
    assert exact.episode_return[:2].tolist() == [1, 1] and exact.steps_to_goal[:2].tolist() == [4, 2]
    assert random_exact(env, env.all_tasks()).episode_return.max() < 0.4
    for task, optimum in enumerate(exact.episode_return.tolist()):
        state, step = env.reset(torch.full((num_streams, 1), task), stream_seeds(2, num_streams))
        total, episodes = 0, 0
        for _ in range(45):
            assert torch.equal(step.optimal_action, env.optimal_action(state))
            state, step = env.step(state, step.optimal_action)
            total += int(step.reward.sum())
            episodes += int((step.terminated | step.truncated).sum())
        assert abs(total / episodes - optimum) < 5 * (0.25 / episodes) ** 0.5


def test_plans_are_for_states_of_any_shape() -> None:
    env = GymnasiumEnv(lake())
    cell, zero = torch.arange(9).expand(3, 9), torch.zeros(3, 9).long()
    best = env.optimal_action(State(env.all_tasks()[:, None].expand(3, 9, 1), zero, zero, cell, zero))
    assert best.shape == (3, 9) and best.dtype == torch.int64
    assert best[0, 7] == best[0, 6] == 2 and best[0, 2] == best[0, 5] == 1  # along the walls, to the corner


def test_starts_are_those_of_the_table() -> None:
    assert slippery().starts.tolist() == [0]
    taxi = GymnasiumEnv(lake(id="Taxi-v4", tasks=[{}], width=0, reward_values=[-10, -1, 20], max_episode_steps=2))
    rides = [(start // 4 % 5, start % 4) for start in taxi.starts.tolist()]  # places of a passenger and of its goal
    assert len(rides) == 300 and all(passenger < 4 and passenger != goal for passenger, goal in rides)
    two = GymnasiumEnv(lake(tasks=[{"desc": ["SFS", "FHF", "FFG"], "is_slippery": False}]))
    assert two.has_planner and two.starts.tolist() == [0, 2]
    assert optimal_exact(two, two.all_tasks()).steps_to_goal.item() == 3  # 4 from the one, 2 from the other
    assert set(two.reset(torch.zeros(50, 1).long(), stream_seeds(0, 50))[1].obs.tolist()) == {0, 2}


ELSEWHERE = {"desc": ["FFS", "FHF", "FFG"], "is_slippery": False}


@pytest.mark.parametrize("config", [toy(), lake(tasks=[LAKES[0], ELSEWHERE])], ids=["no table", "starts that differ"])
def test_without_a_table_the_optimal_action_is_unknown(config: GymnasiumConfig) -> None:
    env = GymnasiumEnv(config)
    assert not env.has_planner
    for state, step in play(env, TASKS % len(config.tasks), SEEDS, random_actions(5, num_actions=2)):
        assert (step.optimal_action == env.spec.num_actions).all()
        assert torch.equal(env.optimal_action(state), step.optimal_action)
    with pytest.raises(ConfigError, match="env.id"):
        random_exact(env, env.all_tasks())


# ---- names and pictures


def test_names_and_maps() -> None:
    env = GymnasiumEnv(lake())
    assert [env.label(task) for task in env.all_tasks()] == ["task_0", "task_1", "task_2"]
    assert [env.map_view(task) for task in env.all_tasks()] == [(3, 3, (8,)), (3, 3, (2,)), (3, 3, (8,))]
    assert env.goal_cell(env.all_tasks()) is None and len(set(env.fingerprint(env.all_tasks()))) == 3
    view = GymnasiumEnv(lake(tasks=[{"desc": ["SFG", "GFF", "FGG"], "is_slippery": False}])).map_view(TASKS[0])
    assert view.goals == (2, 3, 7, 8) and len(render_cells(torch.arange(9).numpy(), view)) == 9


@given(st.integers(2, 300))
@settings(max_examples=25, deadline=None)
def test_observations_of_no_square_are_folded_into_rows(num_obs: int) -> None:
    """Each has a cell of its own, and the grid is no strip."""
    env = GymnasiumEnv(toy(size=num_obs))
    rows, columns, goals = env.map_view(TASKS[0])
    assert rows <= columns < 2 * num_obs**0.5 + 2 and not goals
    assert 0 <= rows * columns - num_obs < columns
    assert torch.equal(env.cell(torch.arange(num_obs), torch.zeros(num_obs)), torch.arange(num_obs))


@pytest.mark.parametrize(
    ("name", "rewards", "expected"),
    [("Taxi-v4", [-10, -1, 20], (20, 25, (0, 85, 410, 475))), ("CliffWalking-v1", [-1, -100], (6, 8, ()))],
)
def test_maps_of_registered_environments(name: str, rewards: list[float], expected: tuple[Any, ...]) -> None:
    env = GymnasiumEnv(lake(id=name, tasks=[{}], width=0, reward_values=rewards, max_episode_steps=2))
    assert env.map_view(TASKS[0]) == expected


# ---- refusals


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"id": "FrozenLake-v9"}, ["env.id=FrozenLake-v9", "v1"]),
        ({"id": "FrozenLake"}, ["env.id=FrozenLake", "No registered env"]),
        ({"id": "no_such_module:A-v0"}, ["env.id=no_such_module:A-v0", "No module named"]),
        ({"tasks": []}, ["env.tasks=[]"]),
        ({"tasks": [LAKES[0], {"dsc": 1}]}, ["env.tasks[1]={'dsc': 1}", "dsc", "unexpected keyword"]),
        ({"tasks": [{"map_name": "9x9"}]}, ["env.tasks[0]={'map_name': '9x9'}", "KeyError"]),
        ({"tasks": [*LAKES, {}]}, ["env.tasks[3]={}", "16 observations", "env.tasks[0]", "9 observations"]),
        ({"tasks": [LAKES[0], LAKES[1] | {"max_episode_steps": 7}]}, ["env.tasks[1]", "env.max_episode_steps"]),
        ({"tasks": [*LAKES, {}, dict(LAKES[1])]}, ["env.tasks[1]", "env.tasks[4]", "must differ"]),
        ({"id": "CartPole-v1", "tasks": [{}]}, ["env.tasks[0]={}", "CartPole-v1", "Box", "Discrete"]),
        ({"id": TOY, "tasks": [{"first": 1}]}, ["env.tasks[0]={'first': 1}", "from 0"]),
        ({"width": 2}, ["env.width=2", "number of observations, which is 9"]),
        ({"reward_values": [0.0, 0.5]}, ["env.reward_values=[0.0, 0.5]", "lacks 1"]),
        ({"reward_values": [0.0, 1.0, 0.0]}, ["env.reward_values=[0.0, 1.0, 0.0]", "none twice"]),
        ({"reward_values": []}, ["env.reward_values=[]"]),
    ],
)
def test_wrong_options_are_refused_before_any_work(changes: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        GymnasiumEnv(lake(**changes))
    message = str(refused.value)
    assert all(part in message for part in parts) and "\n" not in message, message


@pytest.mark.parametrize("way", [GymnasiumEnv, ProcessEnv])
@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ({"fault": "reset"}, ["env.tasks[0]", "LookupError: no such thing"]),
        ({"fault": "step"}, [TOY, "env.tasks[0]", "Unpicklable: cannot go on"]),
        ({"fault": "obs"}, ["env.tasks[0]", "observation", "Discrete(5)"]),
        ({"reward": 0.7, "slip": 0}, ["env.reward_values=[0.0, 1.0]", "lacks 0.7"]),
        ({"reward": float("nan"), "slip": 0}, ["env.reward_values=[0.0, 1.0]", "lacks nan"]),
    ],
)
def test_errors_inside_are_reported(way: Any, arguments: dict[str, Any], parts: list[str]) -> None:
    with closing(way(toy(**arguments))) as env, pytest.raises(PipelineError) as failed:
        play(env, TASKS[:2] * 0, SEEDS[:2], torch.ones(9, 2).long())
    message = str(failed.value)
    assert all(part in message for part in parts) and "\n" not in message, message


def test_it_goes_on_after_an_error() -> None:
    Toy.open_ones.clear()
    env, up = GymnasiumEnv(toy(fault="step", at=3, slip=0, size=30)), torch.tensor([1])
    state = play(env, FIRST, SEEDS[:1], torch.ones(2, 1).long())[-1][0]
    for _ in range(2):
        with pytest.raises(PipelineError):
            env.step(state, up)
        assert not Toy.open_ones
    again, after = env.reset(FIRST, SEEDS[:1])
    assert env.step(again, up)[1].obs == after.obs + 1


def test_an_environment_that_remembers_earlier_episodes_cannot_be_resumed() -> None:
    env = GymnasiumEnv(toy(fault="memory", at=2, slip=0, size=30))
    played = play(env, FIRST, SEEDS[:1], torch.ones(4, 1).long())
    with pytest.raises(PipelineError, match="cannot be resumed"):
        env.step(PlayedState(*played[-1][0]), torch.tensor([1]))


# ---- the preset, and stage one


def test_the_preset_has_different_maps_that_can_all_be_solved() -> None:
    config = load_config(["env=gymnasium"])
    assert isinstance(config.env, GymnasiumConfig)
    env = make_env(config.env)
    tasks = env.all_tasks()
    assert len({tuple(task["desc"]) for task in config.env.tasks}) == len(tasks) == 36
    assert config.tasks.num_train * 3 == len(tasks) * 2
    optimum = optimal_exact(env, tasks)
    assert (optimum.success == 1).all() and optimum.steps_to_goal.min() >= 2
    assert len({env.map_view(task).goals for task in tasks}) >= 12
    assert random_exact(env, tasks).success.mean() < 0.3


PRESET = tuple(option for option in TINY if not option.startswith("env."))
SMALL = """env=gymnasium env.max_episode_steps=4 tasks.num_train=2 data.num_development_tasks=1 source.evaluate=false
source.num_envs=1 source.unroll_length=5 source.num_env_steps=30 source.history_steps=30""".split()
SMALL.append("env.tasks=[{map_name: 4x4}, {map_name: 4x4, is_slippery: false}, {map_name: 4x4, success_rate: 0.5}]")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("whole")
    assert run("train_agents", root, *SMALL, preset=PRESET).code == 0
    return root


@pytest.mark.parametrize("way", ["tensor", "process"])
def test_an_interrupted_run_equals_an_uninterrupted_one(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """In the middle of episodes: 5 steps an unroll, 4 an episode."""
    options = (*SMALL, f"source.vectorization={way}")
    calls, play_on = 0, LocalUnrollWorker.play

    def play_until(self: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt
        return play_on(self)

    monkeypatch.setattr(LocalUnrollWorker, "play", play_until)
    with pytest.raises(KeyboardInterrupt):
        run("train_agents", tmp_path, *options, preset=PRESET)
    assert run("train_agents", tmp_path, *options, preset=PRESET).code == 0
    assert calls == 4 + 4  # it went on from the checkpoint after the second unroll
    ours, expected = results_of(tmp_path), results_of(whole)
    assert set(ours) == set(expected)
    assert any(name.endswith("obs.npy") for name in expected) and any(name.endswith(".pt") for name in expected)
    for name in expected:
        assert ours[name] == expected[name] or (way == "process" and not name.endswith((".npy", ".pt"))), name
