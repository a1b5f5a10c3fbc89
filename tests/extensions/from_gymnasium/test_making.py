"""Tasks of Gymnasium environments: arguments, attributes, options of resets, wrappers, and drawn tasks."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from toy_env import Shaped, shaped

from icrl.app.compose import load_config
from icrl.contracts import ConfigError
from icrl.envs import make_env
from icrl.extensions.exact.expectation import optimal_exact
from icrl.extensions.from_gymnasium.gymnasium_env import GymnasiumEnv
from icrl.extensions.from_gymnasium.making import draw_tasks, set_attribute
from icrl.extensions.from_gymnasium.streams import PlayedState
from icrl.randomness import stream_seeds
from icrl.runs.files import check_same

PENDULUM = {"g": [5.0, 15.0], "set.m": [0.5, 1.5]}
MAPS = {"call": "gymnasium.envs.toy_text.frozen_lake:generate_random_map", "size": 4}


def test_attributes_are_set_inside_all_wrappers_and_options_reach_every_reset() -> None:
    Shaped.made.clear()
    task = {"weight": 2.0, "set.gains": [0.5, -1.0], "set.inner.steps_of_all": 7, "reset.start": 3.0}
    env = GymnasiumEnv(shaped(tasks=[task, {}], wrappers=["FlattenObservation", "RecordEpisodeStatistics"]))
    state, step = env.reset(torch.tensor([[0]]), stream_seeds(0, 1))
    assert 3.0 <= step.obs[0, 0] < 4.0
    for _ in range(7):  # an episode of 6 steps
        state, step = env.step(state, torch.tensor([[0.1, 0.2]]))
    toy = Shaped.made[-1]
    assert toy.options == [{"start": 3.0}] * 2 and toy.gains.tolist() == [0.5, -1.0] and toy.inner.steps_of_all == 7
    assert toy.weight == 2.0 and state.episode.item() == 1
    assert step.obs[0, 0].item() == np.float32(toy.total)
    other = GymnasiumEnv(shaped(tasks=[{}, task]))
    other.reset(torch.tensor([[0]]), stream_seeds(0, 1))
    assert Shaped.made[-1].options == [None] and Shaped.made[-1].gains.tolist() == [1.0, 1.0]


def test_an_attribute_may_have_the_name_of_its_owner() -> None:
    inner = SimpleNamespace(a=1.0)
    outer = SimpleNamespace(a=inner)
    set_attribute(outer, "set.a.a", 5.0)
    assert outer.a is inner and inner.a == 5.0


def test_an_array_of_the_class_is_changed_for_one_task_alone() -> None:
    kind = type("Kind", (), {"weights": np.ones(2), "counts": np.arange(2)})
    for factor in (2.0, 3.0):
        made = kind()
        set_attribute(made, "scale.weights", factor)
        assert made.weights.tolist() == [factor] * 2 and kind.weights.tolist() == [1, 1]  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="counts holds integers"):
        set_attribute(kind(), "scale.counts", 0.5)


def test_factors_multiply_attributes_in_the_order_of_the_task() -> None:
    Shaped.made.clear()
    task = {"scale.gains": [0.5, -1.0], "scale.weight": 3.0, "set.weight": 2.0}
    GymnasiumEnv(shaped(tasks=[task, {"weight": 2.0, "set.weight": 0.5, "scale.weight": 3.0}]))
    assert [toy.gains.tolist() for toy in Shaped.made] == [[0.5, -1.0], [1.0, 1.0]]
    assert [toy.weight for toy in Shaped.made] == [2.0, 1.5]


def test_with_a_seed_all_episodes_begin_alike_and_differ_in_their_steps() -> None:
    config = shaped(tasks=[{"reset.seed": 7}, {"reset.seed": 8, "reset.start": 3.0}, {}])
    env = GymnasiumEnv(config)
    state, step = env.reset(torch.tensor([[0], [0], [1], [2]]), stream_seeds(0, 4))
    starts, ends = [step.obs[:, 0]], []
    for number in range(18):  # three episodes
        before, (state, step) = state, env.step(state, torch.zeros(4, 2))
        if number == 9:  # amid the second one
            restored = GymnasiumEnv(config).step(PlayedState(*(field.clone() for field in before)), torch.zeros(4, 2))
            assert restored[1].obs.equal(step.obs)
        if step.terminated.all():
            starts, ends = [*starts, step.obs[:, 0]], [*ends, step.final_obs[:, 0]]
    begun, ended = torch.stack(starts), torch.stack(ends)
    drawn = [np.random.default_rng(7).random(), np.random.default_rng(8).random() + 3.0]
    assert np.allclose(begun[:, [0, 2]], [drawn] * 4) and begun[:, 0].equal(begun[:, 1])
    assert len(begun[:, 3].unique()) == 4
    moved = ended - begun[:3]
    assert len(moved[:, :3].unique()) == 9  # of two streams on one level, too


def test_drawn_tasks_lie_in_their_ranges_and_do_not_depend_on_their_number() -> None:
    ranges = PENDULUM | {"steps": [3, 6], "map": ["a", "b", "c"], "fixed": True, "list": [[[1, 2]], [[3]], [[4]]]}
    tasks = draw_tasks({"random": ranges, "count": 100, "seed": 3})
    assert tasks == draw_tasks(draw_tasks(json.loads(json.dumps({"random": ranges, "count": 100, "seed": 3}))))
    assert draw_tasks({"random": ranges, "count": 20, "seed": 3}) == tasks[:20]
    assert (
        tasks[:20] != draw_tasks({"random": ranges, "count": 20}) and len({json.dumps(task) for task in tasks}) == 100
    )
    assert {task["steps"] for task in tasks} == {3, 4, 5, 6} and {task["map"] for task in tasks} == {"a", "b", "c"}
    assert all(task["fixed"] is True and type(task["steps"]) is int for task in tasks)
    g, m = (np.array([task[name] for task in tasks]) for name in ("g", "set.m"))
    assert 5 <= g.min() < 5.6 and 14.4 < g.max() <= 15 and abs(g.mean() - 10) < 5 * 10 / 12**0.5 / 100**0.5
    assert m.min() >= 0.5 and m.max() <= 1.5 and abs(np.corrcoef(g, m)[0, 1]) < 0.4


def test_spaced_tasks_go_from_one_end_to_the_other_together() -> None:
    found = draw_tasks({"spaced": {"g": [5.0, 9.0], "set.m": [1, 2]}, "count": 5})
    assert found == [{"g": g, "set.m": m} for g, m in ((5, 1), (6, 1.25), (7, 1.5), (8, 1.75), (9, 2))]
    assert draw_tasks({"spaced": {"g": [5.0, 9.0]}, "count": 1}) == [{"g": 5.0}]


def test_a_run_with_values_of_a_function_has_those_of_its_record(tmp_path: Path) -> None:
    (tmp_path / "tuples_of_a_test.py").write_text("def ends(seed):\n    return (seed % 9, (1, 2)), {3: None}\n")
    tasks = f"env.tasks={{random: {{desc: {{call: '{tmp_path}/tuples_of_a_test.py:ends'}}}}, count: 6}}"
    config = load_config(["env=gymnasium", tasks])
    assert config.env.tasks[0]["desc"][1] == {"3": None}
    check_same(config, json.loads(json.dumps(config.model_dump())), ("env",), "the run")


def test_values_of_a_function_are_functions_of_the_seed() -> None:
    """Maps of the wanted size, all different."""
    tasks = draw_tasks({"random": {"desc": MAPS | {"p": 0.6}, "is_slippery": False}, "count": 40, "seed": 2})
    assert tasks[:9] == draw_tasks({"random": {"desc": MAPS | {"p": 0.6}, "is_slippery": False}, "count": 9, "seed": 2})
    assert len({*map(json.dumps, tasks)}) == 40 and not any(task["is_slippery"] for task in tasks)
    assert all([*map(len, task["desc"])] == [4] * 4 for task in tasks)


@pytest.mark.parametrize("size", [6, 8])
def test_frozen_lakes_of_any_size(size: int) -> None:
    """The planner reaches every goal, after as many steps as there are to the opposite corner, or more."""
    config = load_config(
        ["env=frozen_lake", "env.tasks.count=12"]
        + [f"env.tasks.random.desc.size={size}", "env.max_episode_steps=45"] * (size > 6)
    )
    assert config.source.history_steps == {6: 1230, 8: 1850}[size]
    env = make_env(config.env)
    optimum = optimal_exact(env, env.all_tasks())
    assert env.spec.width == size and env.spec.num_obs == size**2
    assert config.tasks.num_train == len(env.all_tasks()) * 2 // 3
    assert optimum.success.tolist() == [1.0] * len(env.all_tasks()) and (optimum.steps_to_goal >= 2 * size - 2).all()


def test_a_drawn_world_says_its_tasks_and_has_training_and_held_out_ones() -> None:
    draw = "env.tasks={random: {g: [5.0, 15.0], set.m: [0.5, 1.5]}, count: 9}"
    config = load_config(["env=gymnasium", "env.id=Pendulum-v1", draw])
    assert config.env.tasks == draw_tasks({"random": PENDULUM, "count": 9}) and config.tasks.num_train == 6
    listed = "env.tasks=" + json.dumps(config.env.tasks).replace('"', "")
    again = load_config(["env=gymnasium", "env.id=Pendulum-v1", listed])
    assert again.env == config.env
    assert len(set(make_env(config.env).fingerprint(torch.arange(9)[:, None]))) == 9


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"random": {}, "count": 3}, "must be a list of mappings, or {random"),
        ({"random": PENDULUM}, "with 0 < n <= 10000"),
        ({"random": PENDULUM, "count": 3, "seed": -1}, "0 <= s"),
        ({"random": {"g": [9.0, 5.0]}, "count": 3}, "env.tasks.random.g=[9.0, 5.0]: must be [LOW, HIGH]"),
        ({"random": {"map": ["a", "b"]}, "count": 3}, "env.tasks.count=3: the values make"),
        ({"spaced": {"g": 5.0}, "count": 3}, "env.tasks.spaced.g=5.0: must be [LOW, HIGH]"),
        ({"spaced": {"g": [5.0, 9.0]}, "count": 3, "seed": 1}, "must be a list of mappings"),
        ({"random": {"desc": {"call": "toy_env:nothing"}}, "count": 1}, "call=toy_env:nothing: there is no such"),
        ({"random": {"desc": {"call": "nowhere:map"}}, "count": 1}, "call=nowhere:map: ModuleNotFoundError"),
        ({"random": {"desc": MAPS | {"width": 3}}, "count": 1}, "unexpected keyword argument 'width'"),
    ],
)
def test_wrong_draws_are_refused(given: dict[str, Any], part: str) -> None:
    with pytest.raises(ConfigError) as refused:
        draw_tasks(given)
    assert part in str(refused.value)
