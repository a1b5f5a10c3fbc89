"""Gymnasium environments as worlds: their transition tables, maps and refusals."""

import json
import re
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from installed import needs
from other_worlds import changed, holding_out, played
from refusals import check_refusal, refusals
from toy_env import LAKES, TOY, lake, toy

from icrl.app.compose import load_config
from icrl.config.options import replace
from icrl.contracts import ConfigError
from icrl.envs import make_env
from icrl.envs.policies import Chance
from icrl.envs.tasks import development_of, split_tasks
from icrl.evaluation.in_context import play_episodes
from icrl.evaluation.trained import changes_of
from icrl.extensions.exact.expectation import optimal_exact, random_exact
from icrl.extensions.from_gymnasium.gymnasium_env import GymnasiumConfig, GymnasiumEnv
from icrl.extensions.from_gymnasium.making import VisibleTask
from icrl.randomness import stream_seeds
from icrl.runs.files import PROJECT, check_same


def test_outcomes_have_the_frequencies_of_play() -> None:
    env, counts, tried = GymnasiumEnv(lake(tasks=LAKES[2:], max_episode_steps=12)), Counter(), Counter()
    state, _ = env.reset(torch.zeros(60, 1).long(), stream_seeds(1, 60))
    for action in torch.randint(4, (100, 60), generator=torch.Generator().manual_seed(0)):
        before, (state, step) = state, env.step(state, action)
        columns = (before.inner, action, step.final_obs, step.reward, step.terminated)
        counts.update(zip(*(column.tolist() for column in columns), strict=True))
        tried.update(zip(before.inner.tolist(), action.tolist(), strict=True))
    assert len(tried) == 7 * 4  # all but the hole and the goal
    expected = Counter()
    for cell, action in tried:
        parts = env.outcomes(torch.tensor([0]), torch.tensor(cell), torch.tensor(action))
        for share, *outcome in zip(*(part.tolist() for part in parts), strict=True):
            expected[cell, action, *outcome] += share
    for key, share in expected.items():
        number = tried[key[:2]]
        assert abs(counts[key] / number - share) < 5 * (0.25 / number) ** 0.5, key
    assert set(counts) <= {key for key, share in expected.items() if share > 0}


def test_fewer_outcomes_are_filled_up_with_impossible_ones() -> None:
    env = GymnasiumEnv(lake())
    outcomes = env.outcomes(env.all_tasks()[:, None, None], torch.arange(9)[:, None], torch.arange(4))
    assert outcomes.probability.shape == (3, 9, 4, 3)
    assert torch.allclose(outcomes.probability.sum(-1), torch.ones(3, 9, 4).double())
    assert (outcomes.probability[:2, :, :, 0] == 1).all()
    for cell, action, expected in ((0, 2, [1.0, 1, 0, False]), (7, 2, [1.0, 8, 1, True]), (1, 1, [1.0, 4, 0, True])):
        assert [part[0, cell, action, 0].item() for part in outcomes] == expected
    exact = optimal_exact(env, env.all_tasks()[:2])
    assert exact.returns.tolist() == [1, 1] and exact.steps_to_goal.tolist() == [4, 2]


def test_starts_are_those_of_the_table() -> None:
    taxi = GymnasiumEnv(lake(id="Taxi-v4", tasks=[{}], width=0, reward_values=[-10, -1, 20], max_episode_steps=2))
    rides = [(start // 4 % 5, start % 4) for start in taxi.starts.tolist()]  # places of a passenger and of its goal
    assert len(rides) == 300 and all(passenger < 4 and passenger != goal for passenger, goal in rides)
    two = GymnasiumEnv(lake(tasks=[{"desc": ["SFS", "FHF", "FFG"], "is_slippery": False}]))
    assert two.has_planner and two.starts.tolist() == [0, 2]
    assert optimal_exact(two, two.all_tasks()).steps_to_goal.item() == 3  # 4 from the one, 2 from the other
    assert set(two.reset(torch.zeros(50, 1).long(), stream_seeds(0, 50))[1].obs.tolist()) == {0, 2}


ELSEWHERE = {"desc": ["FFS", "FHF", "FFG"], "is_slippery": False}
WITHOUT = {"no table": toy(), "starts that differ": lake(tasks=[LAKES[0], ELSEWHERE])}
WITHOUT |= {"a wrapper, which may change the rules": lake(wrappers=["RecordEpisodeStatistics"])}


@pytest.mark.parametrize("config", WITHOUT.values(), ids=WITHOUT)
def test_without_a_table_the_optimal_action_is_unknown(config: GymnasiumConfig) -> None:
    env = GymnasiumEnv(config)
    assert not env.has_planner
    state, first = env.reset(env.all_tasks(), stream_seeds(0, len(config.tasks)))
    after, step = env.step(state, torch.zeros_like(first.obs))
    for unknown in (first.optimal_action, step.optimal_action, env.optimal_action(after)):
        assert (unknown == env.spec.num_actions).all()
    with pytest.raises(ConfigError, match="env.id"):
        random_exact(env, env.all_tasks())


def test_names_and_maps() -> None:
    env = GymnasiumEnv(lake())
    assert [env.label(task) for task in env.all_tasks()] == ["task_0", "task_1", "task_2"]
    assert [env.map_view(task) for task in env.all_tasks()] == [(3, 3, (8,)), (3, 3, (2,)), (3, 3, (8,))]
    assert env.goal_cell(env.all_tasks()) is None and len(set(env.fingerprint(env.all_tasks()))) == 3
    view = GymnasiumEnv(lake(tasks=[{"desc": ["SFG", "GFF", "FGG"], "is_slippery": False}])).map_view(torch.tensor([0]))
    assert view.goals == (2, 3, 7, 8)


def test_observations_of_no_square_are_folded_into_rows() -> None:
    """Each has a cell of its own, and the grid is no strip."""
    for num_obs in (*range(2, 40), 97, 300):
        env = GymnasiumEnv(toy(size=num_obs))
        rows, columns, goals = env.map_view(torch.tensor([0]))
        assert rows <= columns < 2 * num_obs**0.5 + 2 and not goals
        assert 0 <= rows * columns - num_obs < columns
        assert torch.equal(env.cell(torch.arange(num_obs), torch.zeros(num_obs)), torch.arange(num_obs))


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"id": "FrozenLake-v9"}, ["env.id=FrozenLake-v9", "v1"]),
        ({"tasks": []}, ["env.tasks=[]"]),
        ({"tasks": [*LAKES, {}]}, ["env.tasks[3]={}", "16 observations", "env.tasks[0]", "9 observations"]),
        ({"tasks": [LAKES[0], LAKES[1] | {"max_episode_steps": 7}]}, ["env.tasks[1]", "env.max_episode_steps"]),
        ({"tasks": [*LAKES, {}, dict(LAKES[1])]}, ["env.tasks[1]", "env.tasks[4]", "must differ"]),
        ({"id": "CartPole-v1", "tasks": [{}]}, ["env.width=3", "Box", "do not number cells"]),
        ({"id": TOY, "tasks": [{"first": 1}]}, ["env.tasks[0]={'first': 1}", "from 0"]),
        ({"width": 2}, ["env.width=2", "number of observations, which is 9", "give env.width=3"]),
        ({"reward_values": [0.0, 1.0, 0.0]}, ["env.reward_values=[0.0, 1.0, 0.0]", "no duplicates"]),
        ({"reward_values": [-1.0, 0.5]}, ["lacks 0, 1", "give env.reward_values=[0.0,1.0]"]),
        ({"id": TOY, "tasks": [{}], "width": 0, "reward_values": [-1.0, 0.0]}, ["env.success=goal", "env.success=end"]),
        ({"id": TOY, "tasks": [{"fault": "made"}]}, ["env.tasks[0]={'fault': 'made'}: SystemExit: os._exit(0)"]),
        ({"id": TOY, "tasks": [{"fault": "spaceless"}]}, ["env.tasks[0]={'fault': 'spaceless'}", "observations None"]),
        ({"tasks": [{"side": 3}]}, ["unexpected keyword argument", "FrozenLake-v1 takes desc, map_name, is_slippery"]),
    ],
)
def test_wrong_options_are_refused_before_any_work(changes: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        GymnasiumEnv(lake(**changes))
    message = str(refused.value)
    assert all(part in message for part in parts) and "\n" not in message, message


def test_rewards_are_those_of_the_tables_unless_they_are_given() -> None:
    listed, found = GymnasiumEnv(lake()), GymnasiumEnv(lake(reward_values=None))
    assert found.spec == listed.spec and found.has_planner
    taxi = GymnasiumEnv(lake(id="Taxi-v4", tasks=[{}], width=0, reward_values=None, max_episode_steps=2))
    assert taxi.spec.reward_values == (-10.0, -1.0, 20.0) and taxi.spec.is_discrete
    no_table = {"id": TOY, "tasks": [{}], "width": 0}
    assert GymnasiumEnv(lake(**no_table, reward_values=None)).spec.reward_values == (0.0, 1.0)
    assert GymnasiumEnv(lake(**no_table, reward_values=[])).spec.reward_values == ()
    any_number = GymnasiumEnv(lake(reward_values=[]))
    assert any_number.spec.reward_values == () and not any_number.has_planner


def test_the_preset_has_different_maps_that_can_all_be_solved() -> None:
    config = load_config(["env=gymnasium"])
    env = make_env(config.env)
    tasks = env.all_tasks()
    maps = {tuple(task["desc"]) for task in config.env.tasks}
    assert len(maps) == len(tasks) == config.tasks.num_train * 3 // 2 == 36
    optimum = optimal_exact(env, tasks)
    assert (optimum.success == 1).all() and optimum.steps_to_goal.min() >= 2
    assert len({env.map_view(task).goals for task in tasks}) >= 12
    assert random_exact(env, tasks).success.mean() < 0.3


def test_maps_that_differ_only_where_nobody_gets_are_told() -> None:
    """Behind holes, or behind the goal. A hole that can be entered counts."""
    maps = (["SFH", "FGH", "HHF"], ["SFH", "FGH", "HHH"], ["SFF", "FGH", "HHH"], ["SFH", "FGF", "HHH"])
    with pytest.warns(UserWarning, match=r"env\.tasks\[0\] and \[1\] have .* and 1 further") as told:
        GymnasiumEnv(lake(tasks=[{"is_slippery": False, "desc": desc} for desc in maps]))
    assert len(told) == 1
    GymnasiumEnv(lake(tasks=[{"is_slippery": False, "desc": desc} for desc in maps[1:3]]))


@pytest.mark.parametrize("success", ["survival", "return"])
def test_success_by_survival_or_by_a_return(success: str) -> None:
    """Play has the exact success rate, as far as it can; a walk of 6 steps to the goal returns -6."""
    cliff = {"id": "CliffWalking-v1", "tasks": [{}, {"is_slippery": True}], "width": 0, "reward_values": [-100.0, -1.0]}
    env = GymnasiumEnv(lake(**cliff, success=success, success_return=-20.0, max_episode_steps=16))
    exact, best = random_exact(env, env.all_tasks()).success, optimal_exact(env, env.all_tasks()).success
    assert best.tolist()[0] == (0.0 if success == "survival" else 1.0)
    played, _ = play_episodes(Chance(env.spec), env, env.all_tasks(), 20, num_episodes=10, seed=0)
    for rate, found in zip(exact.tolist(), played.success.mean((1, 2)).tolist(), strict=True):
        assert abs(rate - found) < 5 * (0.25 / 200) ** 0.5
    assert (played.success == (played.returns >= -20 if success == "return" else played.lengths == 16)).all()


def commands_of_the_docs() -> list[list[str]]:
    """Options of the commands for Gymnasium worlds in docs/worlds.md."""
    text = (PROJECT / "docs/worlds.md").read_text().replace("\\\n", " ")
    blocks = re.findall(r"^python -m src\.pipeline (env=gymnasium .*?)(?=\n\n|\n```)", text, re.M | re.S)
    return [shlex.split(block) for block in blocks]


def test_the_commands_of_the_docs_satisfy_all_rules_and_the_cliffs_are_where_they_say() -> None:
    configs = [load_config(options) for options in commands_of_the_docs()]
    assert [config.env.id for config in configs] == ["FrozenLake-v1", "examples.cliffs:Cliffs-v0", "Taxi-v4"]
    for config in configs:
        env = make_env(config.env)
        split = split_tasks(env, config)
        assert env.has_planner and development_of(env, config, split.train) and split.held_out
    cliffs = make_env(configs[1].env)
    optimum = optimal_exact(cliffs, cliffs.all_tasks())
    assert optimum.success.tolist() == [1] * 5 and optimum.returns.tolist() == [-13, -11, -11, -11, -11]
    right = [cliffs.outcomes(task, torch.tensor(36), torch.tensor(1)) for task in cliffs.all_tasks()]  # of the start
    assert [cliffs.spec.reward_values[fall.reward_index[0]] for fall in right] == [-100, -1, -1, -1, -1]


@pytest.mark.parametrize(("_", "overrides", "named"), refusals(Path(__file__).with_name("refusals.txt")))
def test_a_refusal_names_field_value_and_what_is_allowed(_: str, overrides: list[str], named: list[str]) -> None:
    check_refusal(load_config, overrides, named)


def test_lists_of_mappings_are_kept_as_written() -> None:
    tasks = "env.tasks=[{desc: [SF, FG], is_slippery: true}, {}]"
    config: Any = load_config(["env=gymnasium", tasks, "env.reward_values=[-1, 0.5]", "env.id=m:A/B-v0"])
    assert config.env.tasks == [{"desc": ["SF", "FG"], "is_slippery": True}, {}]
    assert config.env.reward_values == [-1.0, 0.5] and config.env.id == "m:A/B-v0" and config.env.variant == "a_b_v0"
    check_same(config, json.loads(json.dumps(config.model_dump())), ["env"], "logs/here")


def test_an_older_run_is_the_same_world_and_a_time_out_makes_no_other_one() -> None:
    config: Any = load_config(["env=gymnasium_pendulum"])
    before = config.model_dump()
    del before["env"]["timeout"], before["env"]["num_workers"]
    assert changes_of(replace(config, env=replace(config.env, timeout=5.0, num_workers=2)), before) == {}


def test_a_module_of_the_world_must_be_that_of_the_trained_one() -> None:
    config: Any = load_config(["env=gymnasium", "env.id=m:A-v0"])
    with pytest.raises(ConfigError, match=r"env\.id=n:A-v0: the model was trained in env\.id=m:A-v0"):
        changes_of(changed(config, id="n:A-v0"), config.model_dump())


@needs("other_worlds")
def test_tasks_are_compared_by_what_they_mean() -> None:
    """A task is its environment with its arguments."""
    lake = holding_out(load_config(["env=gymnasium", "env.width=0"]), 0)
    one, two, three = ({"desc": desc, "is_slippery": False} for desc in (["SF", "FG"], ["SF", "GF"], ["SG", "FF"]))
    wet, turned = {"is_slippery": True, "desc": ["SF", "FG"]}, dict(reversed(two.items()))
    before = changed(lake, tasks=[one, two, three])
    assert sorted(played(changed(lake, tasks=[wet, turned, one, three]), before, [0, 1])) == [[0], [3]]
    other = changed(lake, tasks=[wet, turned, one], max_episode_steps=9)
    assert sorted(played(other, before, [0, 1, 2])) == [[0]]


WET_AND_DRY = ("env=gymnasium", "env.tasks=[{is_slippery: 1}, {is_slippery: 0}]")
CARTS = ("env=gymnasium_cart_pole", "env.max_episode_steps=9")
TURNED = "env.tasks=[{set.gravity: 9, set.length: 1}, {set.length: 2, set.gravity: 8}]"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (WET_AND_DRY, "needs vectors as observations, not Discrete"),
        ((*CARTS, "env.tasks=[{set.gravity: [9.8]}, {set.gravity: 9}]"), "must be a number"),
        ((*CARTS, TURNED), "must have the same keys, in the same order"),
        ((*CARTS, "env.tasks=[{set.gravity: 9}, {}]"), "must have the same keys, in the same order"),
    ],
)
def test_worlds_that_cannot_show_their_tasks_are_refused(options: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_env(load_config([*options, "env.task_visible=true"]).env)


def test_tasks_are_shown_with_observations_of_doubles_without_a_warning() -> None:
    env = gymnasium.make("Pendulum-v1")
    env.observation_space = gymnasium.spaces.Box(-8.0, 8.0, (3,), np.float64)
    assert VisibleTask(env, [2.0]).observation_space.dtype == np.float32


def test_a_seed_of_the_resets_leaves_one_of_many_starts_to_which_no_mean_over_all_applies() -> None:
    for tasks, is_exact in (("[{}, {is_rainy: true}]", True), ("[{reset.seed: 4}, {reset.seed: 5}]", False)):
        options = ["env=gymnasium", "env.id=Taxi-v4", "env.max_episode_steps=20", f"env.tasks={tasks}"]
        env = make_env(load_config(options).env)
        assert env.has_planner and env.is_exact == is_exact
