"""Worlds of MiniGrid, MuJoCo and Meta-World, each only where its package is installed: their tasks and rewards against
the same environments by hand, their experts, and all three stages at the smallest size."""

import sys
from collections import deque
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from harness import SMALL, STAGES, done
from hypothesis import given, settings
from hypothesis import strategies as st
from installed import FILMED, needs

from icrl.app.compose import load_config
from icrl.contracts import ConfigError
from icrl.data.history_store import open_histories
from icrl.envs import make_env
from icrl.envs.tasks import split_tasks
from icrl.extensions.from_gymnasium.gymnasium_env import GymnasiumEnv
from icrl.extensions.gym_worlds.mini_grid import first_actions
from icrl.randomness import stream_seeds
from icrl.runs.files import read_json


@pytest.mark.parametrize(
    ("world", "package"), [("minigrid_fetch", "minigrid"), ("ml1_reach", "metaworld"), ("ant_dir", "mujoco")]
)
def test_a_missing_package_is_named_with_how_to_install_it(
    world: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = ("gymnasium.envs.mujoco", "icrl.extensions.gym_worlds.locomotion") if package == "mujoco" else ()
    for module in [one for one in sys.modules if one.startswith(imported)]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError) as refused:
        make_env(load_config([f"env={world}"]).env)
    extra = "gymnasium[mujoco]" if package == "mujoco" else f"in-context-rl[{package}]"
    assert f'pip install "{extra}"' in str(refused.value) and "\n" not in str(refused.value)


@settings(max_examples=30)
@given(st.integers(0, 2**16), st.floats(0.3, 1.0))
def test_shortest_ways_are_those_of_a_search(seed: int, share: float) -> None:
    rng, headings = np.random.default_rng(seed), ((1, 0), (0, 1), (-1, 0), (0, -1))
    free = np.zeros((6, 7), bool)
    free[1:-1, 1:-1] = rng.random((4, 5)) < share
    ready = (rng.random((6, 7, 4)) < 0.05) & free[:, :, None]
    found = first_actions(free, ready, 6)

    def after(place: tuple[int, int, int], action: int) -> tuple[int, int, int]:
        column, row, heading = place
        if action < 2:
            return column, row, (heading + (-1, 1)[action]) % 4
        ahead = (column + headings[heading][0], row + headings[heading][1])
        return (*ahead, heading) if free[ahead] else place

    def steps(start: tuple[int, int, int]) -> int | None:
        seen, queue = {start}, deque([(start, 0)])
        while queue:
            place, number = queue.popleft()
            if ready[place]:
                return number
            for action in range(3):
                if (then := after(place, action)) not in seen:
                    seen.add(then)
                    queue.append((then, number + 1))
        return None

    for column, row, heading in np.argwhere(np.repeat(free[:, :, None], 4, axis=2)).tolist():
        place = (column, row, heading)
        if (number := steps(place)) is not None:
            assert found[place] == 6 if number == 0 else steps(after(place, int(found[place]))) == number - 1


PACKAGES = {
    **dict.fromkeys(("minigrid_go_to_door", "minigrid_fetch", "minigrid_four_rooms"), "minigrid"),
    **dict.fromkeys(("ant_dir", "hopper_params", "walker_params", "half_cheetah_vel"), "mujoco"),
    **dict.fromkeys(("ml1_reach", "ml1_push", "ml1_pick_place"), "metaworld"),
}
OPTIONS = (
    *("source=ppo_vectors", "env.max_episode_steps=8", "source.num_learners=1", "source.num_envs=1"),
    *("tasks.split=random", "tasks.num_train=3", "tasks.num_held_out=2", "tasks.held_out=[]"),
    *("source.unroll_length=16", "source.num_env_steps=64", "source.history_steps=64", "source.mini_batch_size=8"),
    *("source.hidden_size=8", "data.min_final_success=0", "evals.num_eval_episodes=2", "evals.num_eval_environments=1"),
    *("evaluation.num_episodes=3", "evaluation.num_streams=1", "evaluation.ablations=false"),
)


def world(name: str) -> GymnasiumEnv:
    pytest.importorskip(PACKAGES[name])
    return make_env(load_config([f"env={name}"]).env)


def inside(env: GymnasiumEnv) -> Any:
    """Environment of the first stream, without its wrappers."""
    return env._streams._streams[0]._env.unwrapped


@needs("ppo")
@pytest.mark.parametrize("name", ["minigrid_fetch", "half_cheetah_vel", "ml1_reach"])
def test_all_stages_run_on_random_tasks_and_held_out_ones(name: str, tmp_path: Path) -> None:
    pytest.importorskip(PACKAGES[name])
    filmed = name == "minigrid_fetch"
    films = (f"source.videos_per_task={int(filmed)}", f"evaluation.videos={filmed}".lower())
    for stage in STAGES:
        done(stage, tmp_path, *OPTIONS, f"env={name}", *films, preset=SMALL)
    store = open_histories(tmp_path / "histories/small")
    assert store.columns["obs"].dtype == np.float32 and store.rewards().dtype == np.float32
    assert len(store.manifest["tasks"]["train"]) == 3 and len(store.manifest["tasks"]["held_out"]) == 2
    curves = read_json(tmp_path / "logs/small/evaluation/results.json")["curves"]
    for measured in (curves["model, held-out tasks"], curves["random"]):
        assert np.isfinite(measured["returns"]["mean"]).all()
    assert bool(list((tmp_path / "videos").rglob("*.mp4"))) == (filmed and FILMED)


@pytest.mark.parametrize("name", [name for name, package in PACKAGES.items() if package == "minigrid"])
def test_a_level_of_minigrid_is_that_of_its_seed_in_all_episodes(name: str) -> None:
    pytest.importorskip("minigrid")
    config = load_config([f"env={name}", "env.max_episode_steps=20"]).env
    env, tasks = make_env(config), torch.tensor([[0], [0], [1], [2]])
    state, step = env.reset(tasks, stream_seeds(0, 4))
    seeds = [config.tasks[task]["reset.seed"] for task in tasks[:, 0].tolist()]
    by_hand = gymnasium.make(config.id.partition(":")[2])
    starts = np.array([by_hand.reset(seed=seed)[0]["image"].reshape(-1) for seed in seeds])
    assert len(np.unique(starts, axis=0)) > 1
    level, begun = inside(env).grid.encode().copy(), 0
    for action in torch.randint(7, (120, 4), generator=torch.Generator().manual_seed(0)):
        begins = (step.timestep == 0).numpy()
        assert np.array_equal(step.obs.numpy()[begins], starts[begins])
        begun += begins
        if begins[0]:
            assert np.array_equal(inside(env).grid.encode(), level)
        state, step = env.step(state, action)
    assert begun.min() > 2


def of_velocity(task: dict[str, float], action: np.ndarray, _: float, info: dict[str, float]) -> float:
    """Reward of HalfCheetah-Vel (Finn et al., 2017)."""
    return -abs(info["x_velocity"] - task["velocity"]) - 0.05 * float((action**2).sum())


def of_direction(task: dict[str, float], _: np.ndarray, reward: float, info: dict[str, float]) -> float:
    """That of Gymnasium's Ant, whose speed ahead counts in place of that along x."""
    angle = task["direction"]
    return reward - info["x_velocity"] + info["x_velocity"] * np.cos(angle) + info["y_velocity"] * np.sin(angle)


@pytest.mark.parametrize(
    ("name", "plain", "paid"),
    [("half_cheetah_vel", "HalfCheetah-v5", of_velocity), ("ant_dir", "Ant-v5", of_direction)],
)
def test_runners_are_paid_for_their_hidden_velocity_or_direction(name: str, plain: str, paid: Any) -> None:
    """On the physics of Gymnasium's own."""
    env, task, number = world(name), load_config([f"env={name}"]).env.tasks[19], 19
    runner = gymnasium.make(plain)
    state, step = env.reset(torch.tensor([[number]]), stream_seeds(0, 1))
    runner.reset(seed=0)
    runner.unwrapped.set_state(inside(env).data.qpos.copy(), inside(env).data.qvel.copy())
    space = env.spec.action_shape
    for action in torch.rand(20, 1, *space, generator=torch.Generator().manual_seed(0)) * 2 - 1:
        state, step = env.step(state, action)
        obs, reward, _, _, info = runner.step(action[0].numpy())
        assert np.array_equal(step.obs[0].numpy(), obs[: step.obs.shape[1]].astype(np.float32))
        assert step.reward.item() == pytest.approx(paid(task, action[0].numpy(), float(reward), info), abs=1e-5)


@pytest.mark.parametrize(("name", "plain"), [("hopper_params", "Hopper-v5"), ("walker_params", "Walker2d-v5")])
def test_bodies_have_the_masses_and_frictions_of_their_task(name: str, plain: str) -> None:
    env, config = world(name), load_config([f"env={name}"]).env
    model = gymnasium.make(plain).unwrapped.model
    for task in (0, 5):
        env.reset(torch.tensor([[task]]), stream_seeds(0, 1))
        for key, factor in config.tasks[task].items():
            attribute = key.rpartition(".")[2]
            assert np.allclose(getattr(inside(env).model, attribute), factor * getattr(model, attribute), rtol=1e-12)
        assert 0.5 <= factor <= 2.0


def test_tasks_of_ml1_are_its_own_and_its_test_tasks_are_held_out() -> None:
    env, config = world("ml1_reach"), load_config(["env=ml1_reach"])
    split = split_tasks(env, config)
    assert (sorted(split.train), sorted(split.held_out)) == ([*range(50)], [*range(50, 100)])
    benchmark = pytest.importorskip("metaworld").ML1("reach-v3", seed=0)
    arm = benchmark.train_classes["reach-v3"]()
    for number, task in ((3, benchmark.train_tasks[3]), (60, benchmark.test_tasks[10])):
        arm.set_task(task)
        arm.reset()
        state, step = env.reset(torch.tensor([[number]]), stream_seeds(0, 1))
        assert np.array_equal(inside(env)._target_pos, arm._target_pos) and not step.obs[0, -3:].any()
        for action in torch.rand(9, 1, 4, generator=torch.Generator().manual_seed(0)) * 2 - 1:
            state, step = env.step(state, action)
            obs, reward, *_ = arm.step(action[0].numpy())
            assert np.array_equal(step.obs[0].numpy(), obs.astype(np.float32))
            assert step.reward.item() == np.float32(reward)


def test_what_mujoco_cannot_draw_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    env = world("hopper_params")
    monkeypatch.setenv("MUJOCO_GL", "crayon")
    assert "MUJOCO_GL" in env.not_filmed and "\n" not in env.not_filmed


@pytest.mark.parametrize("name", [name for name, package in PACKAGES.items() if package != "mujoco"])
def test_experts_of_the_presets_solve_their_tasks(name: str) -> None:
    env = world(name)
    assert env.has_planner and not env.is_exact
    tasks = env.all_tasks()[:8]
    state, step = env.reset(tasks, stream_seeds(0, 8))
    over, solved = torch.zeros(8, dtype=torch.bool), torch.zeros(8, dtype=torch.bool)
    for _ in range(env.spec.max_episode_steps):
        state, step = env.step(state, step.optimal_action)
        ended = (step.terminated | step.truncated) & ~over
        solved |= ended & (step.reward >= (10 if name.startswith("ml1") else 0.5))
        over |= ended
    assert over.all() and solved.sum() >= 7
